"""Random programs over the operation table, as source text; lazyt runs them while they are written.

Each statement is `name = expression`, with `xp` for the namespace: lazyt, or `reference`. What a statement should give
is found by running it alone in NumPy on the values that lazyt had before it, so that errors do not add up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.errors import DTypeError, ScalarRangeError, ShapeError
from lazyt.ir import dtypes
from lazyt.testing.choices import EVERYTHING, Choices

Pick = Callable[[int], int]
MAX_SIZE = 4000
LARGE = 1e4

ANY = "fiubc"
COMPLEX_UNARY = (
    "exp", "sqrt", "sin", "cos", "log", "square", "negative", "abs", "real", "imag", "conj", "reciprocal", "isfinite", "isnan",
)  # fmt: skip
ANY_UNARY = (
    "negative",
    "abs",
    "sign",
    "square",
    "floor",
    "ceil",
    "trunc",
    "isnan",
    "isfinite",
    "logical_not",
    "positive",
)
FLOAT_UNARY = (
    "exp", "sqrt", "tanh", "sin", "cos", "log", "log1p", "expm1", "exp2", "log2", "atan", "sinh", "asinh", "sigmoid", "relu",
    "round", "reciprocal", "signbit", "isinf", "tan", "cosh", "acos", "asin", "acosh", "atanh", "log10",
)  # fmt: skip
OPERATORS = ("+", "*", "-", "/", "<", ">=", "==", "!=", "//", "%", "&", "|", "^", ">", "<=")
FUNCTIONS = ("maximum", "minimum", "logical_and", "logical_xor", "fmod")
FLOAT_FUNCTIONS = ("hypot", "atan2", "copysign", "nextafter", "logaddexp")
COMPLEX_OPERATORS = ("+", "*", "-", "/", "==", "!=")
COMPLEX_REDUCTIONS = ("sum", "mean", "prod", "any", "all", "count_nonzero")
REDUCTIONS = ("sum", "max", "mean", "min", "prod", "any", "all", "var", "std", "argmax", "argmin", "count_nonzero")
# Contractions and library calls: their bits may depend on what else is planned.
INEXACT = re.compile(
    r"@|\.linalg\.|\.fft\.|\b(matmul|einsum|tensordot|dot|vdot|inner|outer|vecdot|kron|linear|conv\w*|correlate|cov|corrcoef|"
    r"trace|scaled_dot_product_attention|bmm|addmm|interp|polyval|matvec|vecmat|polymul|avg_pool2d|max_pool2d)\("
)
WORD = re.compile(r"\bv\d+\b")
_SIGNS = re.compile(r"\b(signbit|copysign)\(")


def is_loose(text: str, values: Mapping[str, np.ndarray[Any, Any]], tainted: Collection[str]) -> bool:
    """Whether the bits that a statement gives may be others in another mode, given what its names have."""
    used = WORD.findall(text)
    if INEXACT.search(text) or any(n in tainted for n in used):
        return True
    # Nothing defines the sign of a NaN (NumPy's depends on the dtype); one may come of an infinity or a zero on the way.
    seen = [values[n] for n in used if n in values] if _SIGNS.search(text) else []
    return not all(np.all(np.isfinite(v) & (v != 0)) for v in seen)


class Writer:
    """Writes a program and runs it in lazyt; `values` holds what each name had."""

    def __init__(self, pick: Pick, dims: Sequence[int] = (), choices: Choices = EVERYTHING) -> None:
        """With `dims`, arrays have extents `d[0]`, `d[1]`, ... for another run to change."""
        self.pick = pick
        self.dims = dims
        self.choices = choices
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"xp": lt, "np": np, "leaf": leaf, "d": dims}
        self.values: dict[str, np.ndarray] = {}
        self.history: list[dict[str, np.ndarray]] = []  # what each statement made or changed
        self.tainted: set[str] = set()  # what a contraction had a part in
        self.alive: list[str] = []
        self.tell: Callable[[list[str]], None] = lambda lines: None  # what is run next, in case it never comes back

    def define(self, expression: str, made: Any = None) -> bool:
        """Add a statement, which gives `made` if it ran already; False if the operation refuses these operands."""
        name = f"v{len(self.lines)}"
        if made is None:
            self.tell([*self.lines, f"{name} = {expression}"])
            try:
                made = eval(expression, self.space)
            except (DTypeError, ShapeError, ScalarRangeError):
                return False
        value = made.numpy()
        if value.size > MAX_SIZE:
            return False
        self.space[name] = made
        self.lines.append(f"{name} = {expression}")
        self.values[name] = value
        self.history.append({name: value})
        self.alive.append(name)
        if is_loose(expression, self.values, self.tainted):
            self.tainted.add(name)
        return True

    def one(self, names: Sequence[str], most: int = 8) -> str:
        """One of these, or of the part of them that this program draws from."""
        some = self.choices.of(names, most)
        return some[self.pick(len(some))]

    def dtype(self) -> str:
        return self.choices.dtypes[self.pick(len(self.choices.dtypes))]

    def kind(self, n: str) -> str:
        """'b', 'i', 'u', 'f' or 'c'."""
        return dtypes.kind(self.values[n].dtype)

    def leaf(self) -> bool:
        ndim = (2, 1, 3, 0)[self.pick(4)]
        if self.dims:
            extents = [f"d[{self.pick(len(self.dims))}]" if self.pick(4) else "1" for _ in range(ndim)]
        else:
            extents = [str(self.choices.extents[self.pick(len(self.choices.extents))]) for _ in range(ndim)]
        shape = f"({', '.join(extents)}{',' * (ndim == 1)})"
        return self.define(f"xp.asarray(leaf({shape}, '{self.dtype()}', {self.pick(100)}))")

    def name(self, kinds: str = "fiub", min_ndim: int = 0) -> str | None:
        """One of the latest names of these kinds, or of all."""
        fits = [n for n in self.alive if self.kind(n) in kinds and self.values[n].ndim >= min_ndim]
        return fits[-1 - self.pick(min(len(fits), 8))] if fits else None

    def partner(self, shape: tuple[int, ...], kinds: str = "fiub") -> str:
        """Another operand: a name that broadcasts with `shape`, or a scalar."""
        fits = [n for n in self.alive if self.kind(n) in kinds and _broadcast(self.values[n].shape, shape)]
        if not fits or self.pick(4) == 0:
            return ("2", "0.5", "-1", "3", "True", "0", "-0.0")[self.pick(7)]
        return fits[-1 - self.pick(min(len(fits), 8))]

    def statement(self) -> None:
        forms = [
            self.unary, self.binary, self.reduction, self.movement, self.slicing, self.where, self.joining, self.scanning,
            self.cast, self.indexing, self.rows, self.product, self.padding, self.leaf,
        ]  # fmt: skip
        for _ in range(4):
            if forms[self.pick(len(forms))]():
                break
        if self.alive:
            n = self.alive[-1]
            v = self.values[n]
            if v.dtype.kind in "fc" and v.size and np.nanmax(np.abs(v[np.isfinite(v)]), initial=0) > LARGE:
                self.alive.pop()
                self.define(f"xp.clip({n}, -9, 9)" if v.dtype.kind == "f" else f"{n} / (1 + xp.abs({n}))")

    def unary(self) -> bool:
        names: Sequence[str]
        match self.pick(5):
            case 0 | 1:
                n, names = self.name("f"), FLOAT_UNARY
            case 2 | 3:
                n, names = self.name(), ANY_UNARY
            case _:
                n, names = self.name("c"), COMPLEX_UNARY
        return n is not None and self.define(f"xp.{self.one(names)}({n})")

    def binary(self) -> bool:
        n = self.name("c") if self.pick(4) == 3 else self.name()
        if n is None:
            return False
        v, kind = self.values[n], self.kind(n)
        if kind == "c":
            return self.define(f"{n} {self.one(COMPLEX_OPERATORS)} {self.partner(v.shape, 'fc')}")
        if kind == "f" and self.pick(6) == 5:
            return self.define(f"xp.{self.one(FLOAT_FUNCTIONS)}({n}, {self.partner(v.shape, 'f')})")
        other = self.partner(v.shape)
        if self.pick(4) == 3:
            return self.define(f"xp.{self.one(FUNCTIONS)}({n}, {other})")
        op = self.one(OPERATORS, 6)
        return self.define(f"{other} {op} {n}" if self.pick(4) == 3 else f"{n} {op} {other}")

    def axis(self, n: str) -> int:
        return self.pick(self.values[n].ndim)

    def reduction(self) -> bool:
        n = self.name(ANY)
        if n is None:
            return False
        v = self.values[n]
        f = self.one(COMPLEX_REDUCTIONS if v.dtype.kind == "c" else REDUCTIONS)
        if v.dtype.kind == "b" and f in ("var", "std", "mean"):
            return False
        axes: Any = None
        if v.ndim and self.pick(5):
            axes = self.axis(n)
            if v.ndim > 1 and not f.startswith("arg") and self.pick(3) == 2:
                axes = tuple(sorted({axes, self.axis(n)}))
        keep = bool(self.pick(2))
        return self.define(f"xp.{f}({n}, axis={axes}{', keepdims=True' if keep else ''})")

    def movement(self) -> bool:
        n = self.name(ANY, min_ndim=1)
        if n is None:
            return False
        shape = self.values[n].shape
        match self.pick(7):
            case 0:
                order = list(range(len(shape)))
                axes = tuple(order.pop(self.pick(len(order))) for _ in shape)
                return self.define(f"xp.permute_dims({n}, {axes})")
            case 1:
                return self.define(f"xp.reshape({n}, -1)")
            case 2 if len(shape) > 1:
                i = self.pick(len(shape) - 1)
                merged = ", ".join(
                    f"{n}.shape[{k}]" + f" * {n}.shape[{k + 1}]" * (k == i) for k in range(len(shape)) if k != i + 1
                )
                return self.define(f"xp.reshape({n}, ({merged},))")
            case 3:
                return self.define(f"xp.flip({n}, axis={self.axis(n)})")
            case 4:
                return self.define(f"xp.expand_dims({n}, axis={self.pick(len(shape) + 1)})")
            case 5:
                wide = "".join("4, " if d == 1 and self.pick(2) else f"{n}.shape[{k}], " for k, d in enumerate(shape))
                return self.define(f"xp.broadcast_to({n}, ({('2, ', '')[self.pick(2)]}{wide}))")
            case _:
                return self.define(f"xp.roll({n}, {self.pick(5) - 2}, axis={self.axis(n)})")

    def slicing(self) -> bool:
        n = self.name(ANY, min_ndim=1)
        if n is None:
            return False
        items = []
        for d in self.values[n].shape:
            match self.pick(5):
                case 0:
                    items.append(":")
                case 1 if d:
                    items.append(str(self.pick(2 * d) - d))
                case 2:
                    items.append(f"::{(-1, 2, -2)[self.pick(3)]}")
                case 3:
                    items.append(f"{self.pick(d + 1)}:")
                case _:
                    items.append(f":{self.pick(d + 2) - 1}")
        return self.define(f"{n}[{', '.join(items)}, ...]")

    def where(self) -> bool:
        c, n = self.name("b"), self.name()
        if n is None:
            return False
        shape = self.values[n].shape
        condition = c if c is not None and _broadcast(self.values[c].shape, shape) else f"({n} > {self.partner(shape)})"
        if self.pick(2):
            return self.define(f"xp.where({condition}, {n}, {self.partner(shape)})")
        return self.define(f"xp.clip({n}, {self.pick(3) - 2}, {self.pick(4)})")

    def joining(self) -> bool:
        n = self.name(ANY, min_ndim=1)
        if n is None:
            return False
        axis = self.axis(n)
        shape = self.values[n].shape

        def fits(m: str) -> bool:
            s = self.values[m].shape
            return len(s) == len(shape) and all(
                p == q for i, (p, q) in enumerate(zip(s, shape, strict=True)) if i != axis
            )

        others = [m for m in self.alive if fits(m)]
        match self.pick(4):
            case 0 | 1:
                parts = [n] + [others[-1 - self.pick(len(others))] for _ in range(1 + self.pick(2))]
                return self.define(f"xp.concat([{', '.join(parts)}], axis={axis})")
            case 2:
                same = [m for m in others if self.values[m].shape == shape]
                return self.define(
                    f"xp.stack([{n}, {same[-1 - self.pick(len(same))]}], axis={self.pick(len(shape) + 1)})"
                )
            case _:
                f = ("repeat", "tile")[self.pick(2)]
                return self.define(f"xp.repeat({n}, 2, axis={axis})" if f == "repeat" else f"xp.tile({n}, (2, 1))")

    def scanning(self) -> bool:
        n = self.name(min_ndim=1)
        if n is None:
            return False
        f = ("cumulative_sum", "cumulative_prod", "sort", "argsort", "diff")[self.pick(5)]
        if f == "diff" and self.kind(n) == "b":
            return False
        more = ", stable=True" if f == "argsort" else ""
        return self.define(f"xp.{f}({n}, axis={self.axis(n)}{more})")

    def cast(self) -> bool:
        n = self.name()
        if n is None:
            return False
        to = self.dtype()
        source = n
        if self.kind(n) == "f" and to not in ("bool", "float16", "float32", "float64", "bfloat16"):
            # NumPy leaves what does not fit undefined.
            source = f"xp.clip(xp.where({n} == {n}, {n}, 0), 0, 100)"
        return self.define(f"xp.astype({source}, '{to}')")

    def indexing(self) -> bool:
        n = self.name(min_ndim=1)
        if n is None:
            return False
        axis = self.axis(n)
        size = self.values[n].shape[axis]
        if not size:
            return False
        i = [self.pick(2 * size) - size for _ in range(self.pick(4) + 1)]
        match self.pick(3):
            case 0:
                return self.define(f"xp.take({n}, np.array({i}), axis={axis})")
            case 1:
                return self.define(
                    f"{n}[{i}]" if axis == 0 else f"xp.take({n}, np.array({i}) % {n}.shape[{axis}], axis={axis})"
                )
            case _:
                k = self.name("iu", min_ndim=1)
                if k is None:
                    return False
                return self.define(f"xp.take({n}, xp.reshape({k}, -1) % {n}.shape[{axis}], axis={axis})")

    def rows(self) -> bool:
        n = self.name("f", min_ndim=1)
        if n is None:
            return False
        axis = self.axis(n)
        if not self.values[n].shape[axis]:
            return False
        match self.pick(4):
            case 0:
                return self.define(f"xp.softmax({n}, axis={axis})")
            case 1:
                return self.define(f"xp.logsumexp({n}, axis={axis}, keepdims=True)")
            case 2:
                return self.define(f"{n} - xp.mean({n}, axis={axis}, keepdims=True)")
            case _:
                return self.define(f"{n} / (1 + xp.max(xp.abs({n}), axis={axis}, keepdims=True))")

    def product(self) -> bool:
        n = self.name("f", min_ndim=1)
        if n is None:
            return False
        a = self.values[n]
        if not np.isfinite(a).all():
            return False
        fits = [
            m for m in self.alive
            if (b := self.values[m]).dtype == a.dtype and b.ndim in (1, 2) and b.shape[0] == a.shape[-1] and np.isfinite(b).all()
        ]  # fmt: skip
        if fits and self.pick(3):
            return self.define(f"{n} @ {fits[-1 - self.pick(len(fits))]}")
        if a.ndim > 1:
            return self.define(f"xp.einsum('...ij,...kj->...ik', {n}, {n})")
        return self.define(f"xp.outer({n}, {n})")

    def padding(self) -> bool:
        n = self.name("fiu", min_ndim=1)
        if n is None:
            return False
        if self.values[n].ndim > 1 and self.pick(2):
            return self.define(f"xp.{('tril', 'triu')[self.pick(2)]}({n}, k={self.pick(3) - 1})")
        widths = tuple((self.pick(3), self.pick(3)) for _ in self.values[n].shape)
        return self.define(f"xp.pad({n}, {widths})")

    def program(self, length: int) -> None:
        for _ in range(1 + self.pick(2)):
            self.leaf()
        for _ in range(length):
            self.statement()


def _broadcast(s: tuple[int, ...], t: tuple[int, ...]) -> bool:
    return all(p == q or 1 in (p, q) for p, q in zip(s[::-1], t[::-1], strict=False))


def leaf(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Small numbers; every fourth seed has NaN, infinities and zeros of both signs among them."""
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape))
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype[0] in "iu":
        return rng.integers(0 if dtype[0] == "u" else -9, 10, shape).astype(dtype)
    out = np.round(rng.uniform(-4, 4, n), 2)
    if dtype[0] == "c":
        out = out + 1j * np.round(rng.uniform(-4, 4, n), 2)
    if seed % 4 == 3 and n:
        out[rng.integers(0, n, 3)] = (np.nan, np.inf, -0.0)
    return out.reshape(shape).astype(dtypes.as_dtype(dtype))
