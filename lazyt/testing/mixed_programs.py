"""Random programs over the whole operation table, with views, writes in place and aliases, as source text.

`new(x)` wraps a value that is not a view: in NumPy a C-contiguous copy, as lazyt assumes of every new value;
in lazyt nothing. Every value thus has the same aliases in both, and a write is seen by the same names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.errors import DTypeError, NotSupportedError, ScalarRangeError, ShapeError
from lazyt.ir import dtypes
from lazyt.ops.definition import OPS
from lazyt.testing.array_programs import MAX_SIZE, WORD, Pick, Writer, is_loose
from lazyt.testing.choices import EVERYTHING, Choices
from lazyt.testing.composed import COMPOSED, KINDS
from lazyt.testing.modes import FIRST_RUN_EACH, mode
from lazyt.testing.numpy_names import names

# What raises at the user's line: an operation that refuses its operands.
REFUSALS = (DTypeError, ShapeError, ScalarRangeError, NotSupportedError)
_VIEW = re.compile(
    r"xp\.(permute_dims|matrix_transpose|reshape|flip|expand_dims|broadcast_to|squeeze|swapaxes|moveaxis)\(|v\d+\[(?!\[)"
)
# The functions that a statement calls, and its operators.
CALLED = re.compile(r"xp\.([\w.]+)\(|( [-+*/%&|^<>=@!]+ )")
# Not in the table of a random program: results that NumPy and lazyt may choose differently, and what NumPy lacks.
APART = frozenset({"empty", "empty_like", "linalg.eig", "linalg.eigh", "linalg.svd", "linalg.qr", "linalg.pinv"})
# Arrays of more elements are named by their place in a sample call, and not written out.
_MOST = 64
_TOKEN = re.compile(r"\{([A-Z])(\d?)(\d?)\}")
# Composed functions whose result NumPy may give as a view, and lazyt too, but not of the same cases.
_MAYBE_VIEW = re.compile(
    r"(atleast_\dd|rollaxis|moveaxis|swapaxes|transpose|ravel|flip\w+|rot90|\w*split|broadcast_arrays|meshgrid|sliding_window_view|"
    r"ix_|diagonal|trace|array|copy|real|imag|nan_to_num|conjugate|around|fix|unwrap|resize|take|trim_zeros)\("
)


def sample(name: str, call: int, place: int) -> np.ndarray[Any, Any]:
    """An array of an operation's sample call.

    >>> sample("conv2d", 0, 1).ndim
    4
    """
    args, kwargs = _samples(name)[call]
    return _arrays([args, kwargs])[place]


def literal(a: np.ndarray[Any, Any]) -> str:
    """An array as an expression.

    >>> literal(np.array([1.5, np.nan], np.float32))
    "np.array([1.5, np.nan], 'float32')"
    """
    if dtypes.kind(a.dtype) == "c" and not np.isfinite(a).all():
        parts = literal(np.ascontiguousarray(a).reshape(-1).view(dtypes.real_of(a.dtype)))
        return f"{parts}.view({a.dtype.name!r}).reshape({a.shape})"
    body = re.sub(r"\b(nan|inf)\b", r"np.\1", repr(a.tolist()))
    made = f"np.array({body}, {a.dtype.name!r})"
    return made if a.size or a.shape == (0,) else f"np.zeros({a.shape}, {a.dtype.name!r})"


@lru_cache(maxsize=1)
def table() -> tuple[str, ...]:
    """The operations that a program may call: every one that is public and has a NumPy reference and samples."""
    return tuple(n for n in names() if n not in APART and OPS[n].samples())  # type: ignore[misc]


@lru_cache(maxsize=512)
def _samples(name: str) -> Any:
    return OPS[name].samples()  # type: ignore[misc]


def _arrays(x: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(x, np.ndarray):
        return [x]
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, list | tuple) else ()
    return [a for p in parts for a in _arrays(p)]


@dataclass(frozen=True)
class _Name:
    word: str


class MixedWriter(Writer):
    """Writes programs of every kind of statement; lazyt runs them while they are written."""

    def __init__(self, pick: Pick, choices: Choices = EVERYTHING) -> None:
        super().__init__(pick, choices=choices)
        self.space["new"] = lambda x: x
        self.space["sample"] = sample
        self.shares: dict[str, int] = {}  # names of one number share memory
        self.read_only: set[str] = set()
        self.trying = ""  # the statement that runs now

    def define(self, expression: str, made: Any = None) -> bool:
        # NOTE: an array in brackets is an index, and no view; one in a call's is what is viewed.
        view = _VIEW.match(expression) is not None and not (expression[0] == "v" and "np.array" in expression)
        if not view and not expression.startswith("new("):
            expression = f"new({expression})"
        name = f"v{len(self.lines)}"
        self.trying = f"{name} = {expression}"
        if not super().define(expression, made):
            self.trying = ""
            return False
        of = WORD.search(expression)
        self.shares[name] = self.shares[of[0]] if view and of is not None else len(self.lines)
        if view and ("broadcast_to" in expression or (of is not None and of[0] in self.read_only)):
            self.read_only.add(name)
        self.trying = ""
        return True

    def emit(self, line: str) -> bool:
        """Add a statement that writes; False, and nothing added, if it is refused."""
        self.trying = line
        self.tell([*self.lines, line])
        try:
            exec(line, self.space)
        except REFUSALS:
            self.trying = ""
            return False
        self.lines.append(line)
        used = WORD.findall(line)
        group = {n for n in self.shares if self.shares[n] == self.shares[used[0]]}
        if is_loose(line, self.values, self.tainted):
            self.tainted |= group
        self.history.append({n: self.space[n].numpy() for n in group & self.values.keys()})
        self.values.update(self.history[-1])
        self.trying = ""
        return True

    def statement(self) -> None:
        kind = self.pick(10)
        if kind < 3:
            super().statement()
        elif kind < 5 or not self.alive:
            self.call()
        elif kind < 7:
            self.composed()
        else:
            self.write()

    def call(self) -> bool:
        """One call out of the operation table, on names of this program where they fit."""
        name = self.one(table(), 24)
        calls = _samples(name)
        i = self.pick(len(calls))
        args, kwargs = calls[i]
        arrays = _arrays([args, kwargs])
        if len(arrays) == 1 and "." not in name and self.pick(4):
            args = [self.any_like(a) if isinstance(a, np.ndarray) else a for a in args]
        places = {id(a): f"xp.asarray(sample({name!r}, {i}, {k}))" for k, a in enumerate(arrays)
                  if a.size > _MOST or dtypes.kind(a.dtype) == "c"}  # fmt: skip
        words = [self.argument(a, name, places) for a in args]
        words += [f"{k}={self.argument(v, name, places)}" for k, v in kwargs.items()]
        f = f"xp.nn.functional.{name}" if "." not in name and not hasattr(lt, name) else f"xp.{name}"
        return self.result(f"{f}({', '.join(words)})")

    def composed(self, templates: Sequence[str] = (), prefix: str = "xp.") -> bool:
        """One call of a function that is made of others, or one of `templates`."""
        template = templates[self.pick(len(templates))] if templates else self.one(COMPOSED, 16)
        first = ""

        def operand(m: re.Match[str]) -> str:
            nonlocal first
            letter, least, most = m[1], int(m[2] or 0), int(m[3] or 9)
            if letter == "K":
                return str(self.pick(3))
            if letter == "A":
                return str(self.axis(first))
            if letter in "YP":
                v = self.values[first]
                kinds = self.kind(first)
                if letter == "Y":
                    return self.partner(v.shape, kinds)
                fits = [n for n in self.alive if self.kind(n) == kinds and self.values[n].shape == v.shape]
                return fits[-1 - self.pick(min(len(fits), 8))]
            if first and letter not in "AYPK":
                return first
            fits = [n for n in self.alive if self.kind(n) in KINDS[letter] and least <= self.values[n].ndim <= most]
            if not fits:
                raise LookupError
            first = fits[-1 - self.pick(min(len(fits), 8))]
            return first

        try:
            text = _TOKEN.sub(operand, template)
        except LookupError:
            return False
        text = f"{prefix}{text}"
        maybe = _MAYBE_VIEW.match(text.removeprefix("xp.")) is not None and (prefix or _VIEW.match(text) is None)
        return self.result(text, bool(maybe))

    def result(self, text: str, copied: bool = False) -> bool:
        """A statement of what a call gives: the result, or one of them."""
        made = self.try_call(text)
        if isinstance(made, tuple | list):
            if not made:
                return False
            k = self.pick(len(made))
            text, made = f"{text}[{k}]", made[k]
        if not isinstance(made, lt.Tensor):
            return False
        # NOTE: NumPy's diagonal is a view that cannot be written, lazyt's one that can.
        copied = copied or text.startswith("xp.diagonal(")
        return self.define(f"xp.copy({text})") if copied else self.define(text, made)

    def any_like(self, a: np.ndarray[Any, Any]) -> Any:
        """A name of the kind and rank of an array; the array itself where there is none."""
        name = self.name(dtypes.kind(a.dtype), a.ndim)
        return a if name is None or self.values[name].ndim != a.ndim else _Name(name)

    def try_call(self, text: str) -> Any:
        self.trying = f"v{len(self.lines)} = {text}"
        self.tell([*self.lines, self.trying])
        try:
            found = eval(text, self.space)
        except REFUSALS:
            found = None
        self.trying = ""
        return found

    def argument(self, a: Any, op: str, places: dict[int, str]) -> str:
        if isinstance(a, np.ndarray):
            fits = [n for n in self.alive if self.values[n].shape == a.shape and self.values[n].dtype == a.dtype]
            # Integers may be indices, which have a range; a matrix of linear algebra its own properties.
            if fits and "." not in op and a.dtype.kind == "f" and self.pick(3):
                return fits[-1 - self.pick(len(fits))]
            return places.get(id(a)) or f"xp.asarray({literal(a)})"
        if isinstance(a, list | tuple):
            inner = ", ".join(self.argument(x, op, places) for x in a)
            return f"[{inner}]" if isinstance(a, list) else f"({inner}{',' * (len(a) == 1)})"
        if isinstance(a, _Name):
            return a.word
        if isinstance(a, float) and not np.isfinite(a):
            return f"np.{a}".replace("np.-", "-np.")
        if isinstance(a, np.dtype | type):
            return repr(np.dtype(a).name)
        if isinstance(a, np.generic):
            return f"np.{a.dtype.name}({a.item()!r})"
        return repr(a)

    # Writes

    def key(self, shape: tuple[int, ...]) -> str:
        items: list[str] = []
        for d in shape[: self.pick(len(shape) + 1)]:
            kind = self.pick(4)
            if kind == 1 and d:
                items.append(str(self.pick(2 * d) - d))
            elif kind == 2:
                items.append(f"{self.pick(d + 1)}:")
            else:
                items.append((":", "::-1", "::2", ":1", "1:")[self.pick(5)])
        return ", ".join([*items, "..."])

    def value(self, target: str, shape: tuple[int, ...]) -> str:
        """What may be written into such a part: of no greater kind, and broadcast to it."""
        kinds = "biufc"[: "biufc".index(self.kind(target)) + 1] if target in self.values else "b"
        if "u" in kinds:
            kinds = "bu" if "f" not in kinds else kinds
        fits = [
            n for n in self.alive
            if self.kind(n) in kinds and self.values[n].ndim <= len(shape)
            and all(p in (1, q) for p, q in zip(self.values[n].shape[::-1], shape[::-1], strict=False))
        ]  # fmt: skip
        if not fits or not self.pick(3):
            return ("True", "2", "3", "0.5")[self.pick(4) if "f" in kinds else self.pick(3) if len(kinds) > 1 else 0]
        n = fits[-1 - self.pick(min(len(fits), 8))]
        return n if self.pick(2) or not self.values[n].ndim else f"{n}[::-1]"

    def write(self) -> bool:
        """A write into a name, a part of it, at indices or under a mask; seen by all its aliases."""
        targets = [n for n in self.alive if n not in self.read_only and self.values[n].size <= MAX_SIZE // 4]
        if not targets:
            return False
        n = targets[-1 - self.pick(min(len(targets), 8))]
        v = self.values[n]
        op = ("=", "+=", "*=", "-=")[self.pick(4)]
        if v.dtype.kind == "b":
            op = ("=", "&=", "|=", "^=")[self.pick(4)]
        case = self.pick(5)
        if case == 2 and v.dtype.kind == "c":
            case = 0
        if case == 1 and v.ndim and v.shape[0]:
            i = [self.pick(2 * v.shape[0]) - v.shape[0] for _ in range(1 + self.pick(3))]
            return self.emit(f"{n}[{i}] {op} {self.value(n, ())}")
        if case == 2:
            return self.emit(f"{n}[{n} {('>', '<', '!=')[self.pick(3)]} {self.value(n, ())}] = {self.value(n, ())}")
        if case == 3 and v.ndim and v.shape[0] > 1:
            to, of = (("[1:]", "[:-1]"), ("[:-1]", "[1:]"), ("[::-1]", ""))[self.pick(3)]
            return self.emit(f"{n}{to} {op} {n}{of}")
        if case == 4 and op != "=":
            return self.emit(f"{n} {op} {self.value(n, v.shape)}")
        key = self.key(v.shape)
        part = v[eval(f"np.s_[{key}]", {"np": np})]
        return self.emit(f"{n}[{key}] {op} {self.value(n, part.shape)}")


class Unwritten(Exception):
    """lazyt failed, and did not refuse, on the last of these statements."""

    def __init__(self, lines: list[str], why: str) -> None:
        super().__init__(why)
        self.lines = lines


def write_at_once(w: Writer, length: int) -> None:
    """Write a program, each statement run as the first one of its kind. Raises `Unwritten` where lazyt fails."""
    with mode(FIRST_RUN_EACH):
        try:
            w.program(length)
        except Exception as e:
            tried = getattr(w, "trying", "")
            if not tried:
                raise
            raise Unwritten([*w.lines, tried], f"{type(e).__name__}: {e}") from e
