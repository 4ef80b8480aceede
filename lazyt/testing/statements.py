"""A program as source text, run statement by statement beside NumPy and then as a whole in every mode.

After each statement NumPy's arrays take lazyt's values, in place, so that views go with them: what a statement gives
is always compared on the same operands, and rounding does not add up.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.ir import dtypes
from lazyt.testing import departures
from lazyt.testing.array_programs import WORD, is_loose, leaf
from lazyt.testing.closeness import Tolerance, compare, same_bits
from lazyt.testing.mixed_programs import CALLED, REFUSALS, sample
from lazyt.testing.modes import (
    AGAIN,
    ALWAYS,
    EAGER,
    FIRST,
    FIRST_BY_NUMPY,
    FIRST_RUN,
    FIRST_RUN_EACH,
    RANDOM,
    UNFUSED,
    Mode,
    mode,
)
from lazyt.testing.numpy_names import reference
from lazyt.tracing.tensor_state import Handle

Array = np.ndarray[Any, Any]
Space = dict[str, Any]

ROUNDED = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-11}
NORMALIZATION = re.compile(r"\b(group|layer|instance|batch)_norm\(")
# Modes that must give the bits of running each statement at once.
SWITCHES = (
    "wide", "split", "tile", "pairs", "together", "donate", "reuse", "native", "epilogues", "cover", "turn", "vectors",
    "pack", "gemm", "blas", "inplace",
)  # fmt: skip
SELDOM = Mode("a first run, synced at random (seed 3)", RANDOM, 3, tiers=True)
MODES = (
    FIRST,
    UNFUSED,
    Mode("two threads, small chunks", threads=2, fine=True),
    AGAIN,
    Mode("synced at random (seed 1)", RANDOM, 1),
    Mode("synced at random (seed 2)", RANDOM, 2, tiers=True),
    Mode("run again, inputs overwritten", RANDOM, 4, repeat=3, fine=True),
    *(Mode(f"no-{name}", off=(name,)) for name in SWITCHES),
)  # fmt: skip
# The meaning of the graph IR, beside NumPy: its elementary functions are NumPy's, so it has other bits than kernels.
INTERPRETED = Mode("the interpreter", ALWAYS, interpret=True)
# What `check_program` tries.
CHECKED = MODES[:6]
# What every program runs through, because it costs least.
LIGHT = (FIRST_RUN, FIRST_RUN_EACH, SELDOM, FIRST_BY_NUMPY)


@dataclass(frozen=True)
class Failure:
    """What is wrong with a program: `kind` is kept while it is shrunk, so that another bug does not take its place."""

    kind: str  # raises, numpy, a mode's name
    name: str  # the value that is wrong
    message: str
    expected: Any = None
    actual: Any = None
    line: int = 0

    def same(self, other: Failure | None) -> bool:
        """Whether another failure is of this kind."""
        return other is not None and other.kind == self.kind


class Stopped(Exception):
    """Both NumPy and lazyt refuse a statement, or NumPy does: this is no program to test."""


def space_of(xp: Any) -> Space:
    """The names that programs use, for NumPy (`reference`) or lazyt."""
    numpy = xp is not lt
    return {
        "xp": xp, "np": np, "leaf": leaf, "sample": sample, "sync": (lambda: None) if numpy else lt.sync,
        "new": (lambda x: np.array(x, order="C")) if numpy else (lambda x: x),
    }  # fmt: skip


def check(lines: Sequence[str], modes: Sequence[Mode] = CHECKED) -> Failure | None:
    """Run a program beside NumPy and in these modes; what is wrong, or None. Stopped if NumPy refuses a statement."""
    values, failure, tainted = beside_numpy(lines)
    return failure or in_modes(lines, values, tainted, modes)


def beside_numpy(lines: Sequence[str], each: Mode = EAGER) -> tuple[dict[str, Array], Failure | None, set[str]]:
    """The values at the end, each operation run at once; the first statement that is wrong; which names are inexact."""
    theirs, ours = space_of(reference), space_of(lt)
    values: dict[str, Array] = {}
    tainted: set[str] = set()
    with mode(each), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for i, line in enumerate(lines):
            refused = _refusal(_numpy_code(line), theirs)
            try:
                exec(compile(line, f"<line {i + 1}>", "exec"), ours)
            except REFUSALS as e:
                raise Stopped(f"{line}: {e}") from e
            except Exception as e:
                if refused is not None or departures.refusal_meant(e):
                    raise Stopped(f"{line}: {refused or e}") from e
                return values, Failure(raises(each), line, f"{type(e).__name__}: {e}", line=i), tainted
            if refused is not None:
                raise Stopped(f"{line}: {refused}")
            before, values = values, {n: x._array("testing") for n, x in ours.items() if isinstance(x, Handle)}
            used = WORD.findall(line)
            changed = [n for n, v in values.items() if n not in before or not same_bits(v, before[n])]
            if is_loose(line, before, tainted):
                tainted |= {*changed, *used[:1]}
            for n in values:
                failure = _against(line, n, theirs[n], values[n], [before[m] for m in used if m in before])
                if failure is not None and not _right_otherwise(line, n, values[n], before):
                    return values, Failure(**{**failure.__dict__, "line": i, "kind": beside(each)}), tainted
                _take(theirs, n, values[n])
    return values, None, tainted


def raises(each: Mode) -> str:
    """The kind of a failure: lazyt raises where NumPy does not."""
    return "raises" if each is EAGER else f"raises, {each}"


def beside(each: Mode) -> str:
    """The kind of a failure: NumPy gives something else."""
    return "numpy" if each is EAGER else f"numpy, {each}"


def written(lines: Sequence[str], history: Sequence[dict[str, Array]]) -> bool:
    """Whether NumPy gives what lazyt gave while the program was written; Stopped if NumPy refuses a statement.

    `history` has what each statement made or changed. Less is compared than by `beside_numpy`, which says what's wrong.
    """
    theirs = space_of(reference)
    values: dict[str, Array] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for line, changes in zip(lines, history, strict=True):
            refused = _refusal(_numpy_code(line), theirs)
            if refused is not None:
                raise Stopped(f"{line}: {refused}")
            operands = [values[m] for m in WORD.findall(line) if m in values]
            for n, got in changes.items():
                if not _right(line, n, theirs[n], got, operands, values):
                    return False
            for n, got in changes.items():
                _take(theirs, n, got)
            values.update(changes)
    return all(same_bits(np.asarray(theirs[n]).astype(v.dtype), v) for n, v in values.items())


def _right(line: str, n: str, want: Any, got: Array, operands: list[Array], before: dict[str, Array]) -> bool:
    e = np.asarray(want)
    if e.dtype == got.dtype and e.shape == got.shape and e.tobytes() == got.tobytes():
        return True
    return _against(line, n, e, got, operands) is None or _right_otherwise(line, n, got, before)


@lru_cache(maxsize=4096)
def _numpy_code(line: str) -> Any:
    # NOTE: NumPy has no bfloat16, so it computes in float32, on what lazyt rounded.
    return compile(line.replace("'bfloat16'", "'float32'"), "<NumPy>", "exec")


def _refusal(code: Any, space: Space) -> Exception | None:
    try:
        exec(code, space)
    except (ValueError, TypeError, IndexError, AttributeError, NameError, OverflowError, ArithmeticError) as e:
        return e
    return None


def _take(space: Space, name: str, value: Array) -> None:
    x = space[name]
    if value.dtype == dtypes.bfloat16:
        value = value.astype(np.float32)
    if isinstance(x, np.ndarray) and x.dtype == value.dtype:
        if x.flags.writeable:
            np.copyto(x, value)
    else:
        space[name] = np.array(value)


def _against(line: str, name: str, want: Any, got: Array, operands: list[Array]) -> Failure | None:
    e = np.asarray(want)
    e = departures.in_dtype(got, e, operands, line)
    if dtypes.bfloat16 in (got.dtype, *(a.dtype for a in operands)):
        e = e.astype(got.dtype)
    if (got.dtype, got.shape) != (e.dtype, e.shape):
        message = f"{got.dtype} {got.shape} where NumPy has {e.dtype} {e.shape}"
        return Failure("numpy", name, message, e, got)
    if same_bits(got, e):
        return None
    if "cumulative" in line and got.dtype == np.float16:
        return None  # lazyt rounds such a scan once, at the end
    allowed = _allowed(line, got, np.asarray(want), operands)
    found = compare(got, e, allowed)
    if found is not None:
        # Where lazyt means to differ it may.
        meant = departures.meant([a or b.strip() for a, b in CALLED.findall(line)], got, e, operands)
        if meant is not None:
            found = compare(np.where(meant, e, got), e, allowed)
    return None if found is None else Failure("numpy", name, str(found), e, got)


def _right_otherwise(line: str, name: str, got: Array, before: dict[str, Array]) -> bool:
    """Whether NumPy gives lazyt's value in another precision.

    In float64, because it adds and multiplies up float32 in float32; in ml_dtypes' bfloat16, which rounds each
    operation as lazyt does, so that a jump (of `unwrap`) is at the same place.
    """
    if not line.startswith(f"{name} = "):
        return False
    if got.dtype == dtypes.bfloat16:
        return _right_with(line, line, name, got, before, before)
    if got.dtype.name not in ("float16", "float32", "complex64"):
        return False
    wide = {n: _widened(v) for n, v in before.items()}
    double = re.sub(r"'b?float(16|32)'", "'float64'", line).replace("'complex64'", "'complex128'")
    return _right_with(double, line, name, got, before, wide)


def _widened(x: Any) -> Any:
    """An array in the widest dtype of its kind; what is none as it is."""
    kind = dtypes.kind(x.dtype) if isinstance(x, np.ndarray) else ""
    return x.astype({"f": "f8", "c": "c16"}[kind]) if kind in ("f", "c") else x


def _right_with(
    code: str, line: str, name: str, got: Array, before: dict[str, Array], values: dict[str, Array]
) -> bool:
    space = space_of(reference)
    if values is not before:
        space["sample"] = lambda *which: _widened(sample(*which))
    space.update((n, np.array(v)) for n, v in values.items())
    if _refusal(compile(code, "<NumPy>", "exec"), space) is not None:
        return False
    want = np.asarray(space[name]).astype(got.dtype)
    operands = [before[m] for m in WORD.findall(line) if m in before]
    return want.shape == got.shape and compare(got, want, _allowed(line, got, want, operands)) is None


def _allowed(line: str, got: Array, e: Array, operands: list[Array]) -> Tolerance:
    if dtypes.kind(got.dtype) not in "fc":
        return Tolerance(0.0, 0.0, why=f"{got.dtype} is exact")
    floats = [a for a in (got, e, *operands) if dtypes.kind(a.dtype) in "fc"]
    t = max([ROUNDED[str(dtypes.real_of(a.dtype))] for a in floats], default=2e-5)
    if ".linalg." in line or ".fft." in line:
        t *= 50
    elif NORMALIZATION.search(line):
        t *= 8  # rows that are nearly constant: the rounding of their mean is divided by the root of 1e-5
    scale = max([1.0, *(float(np.max(np.abs(a[np.isfinite(a)]), initial=0)) for a in floats[2:])])
    return Tolerance(t, t * scale, why="a statement")


def in_modes(
    lines: Sequence[str], values: dict[str, Array], tainted: set[str], modes: Sequence[Mode]
) -> Failure | None:
    """The first mode that gives other bits than running each statement at once."""
    code = compile("\n".join(lines), "<program>", "exec")
    for m in modes:
        try:
            got = run(code, m)
        except Exception as e:
            if departures.refusal_meant(e):
                raise Stopped(str(e)) from e
            return Failure(str(m), "", f"{m}: {type(e).__name__}: {e}")
        for n, want in values.items():
            if n not in tainted and not same_bits(got[n], want):
                message = f"{m}: {got[n].dtype} {got[n].shape}, each operation at once: {want.dtype} {want.shape}"
                if (got[n].dtype, got[n].shape) == (want.dtype, want.shape):
                    exact = Tolerance(0.0, 0.0, 0.0, "each operation at once gives these bits")
                    message = f"{m}: {compare(got[n], want, exact) or 'the sign of a zero differs'}"
                return Failure(str(m), n, message, want, got[n])
    return None


def run(code: Any, m: Mode) -> dict[str, Array]:
    """The values of a program's names in a mode."""
    with mode(m):
        for _ in range(m.repeat):
            space = space_of(lt)
            exec(code, space)
            lt.sync()
        return {n: x._array("testing") for n, x in space.items() if isinstance(x, Handle)}
