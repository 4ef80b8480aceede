"""Every ordered pair of differentiable operations as a program: `g(f(x))`, and `g(f(x), f2(x2))` where `g` takes two.

The operations are those of the table (`lazyt/ops`), each called as in its samples; `SPELLED` has calls of operations
that no function of their name calls. The seed of a program says which pair it is: `PAIRS.total` seeds in a row visit
each pair once, any fewer are a random sample. The rest is drawn: extents, the kind of the leaves, which other value
reads the result of `f`.

The gradients are compared with central differences in NumPy (of the interpreter, where NumPy has no such function), in
each regime: planned as a whole, read before `backward()`, in three turns with an update between, and in eager mode.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import lazyt as lt
from lazyt.ir import dtypes
from lazyt.ops.definition import OPS
from lazyt.testing.gradient_programs import leaf_of
from lazyt.testing.kinds import register
from lazyt.testing.mixed_programs import REFUSALS, literal
from lazyt.testing.numpy_names import public, reference
from lazyt.testing.statements import Failure, Stopped
from tests.support.fuzz.checked_lines import CheckedLines, place
from tests.support.fuzz.pair_check import REGIMES_OF, check_pair
from tests.support.fuzz.pair_names import space_for

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

# Calls of operations that have no samples, or no function of their own name. `{0}` is an operand of the shape that
# follows, `{1}` a second one.
SPELLED: dict[str, tuple[tuple[str, tuple[Shape, ...]], ...]] = {
    "matrix_transpose": (("xp.matrix_transpose({0})", ((3, 4),)),),
    "diagonal": (("xp.diagonal({0})", ((3, 4),)), ("xp.diagonal({0}, offset=1)", ((3, 3),))),
    "full": (("xp.full((2, 3), {0})", ((),)),),
    "linspace": (("xp.linspace({0}, {1}, 5)", ((), ())), ("xp.linspace({0}, {1}, 4)", ((3,), (3,)))),
    "cube": (("{0} ** 3", ((3, 4),)),),
    "getitem": (
        ("{0}[1:]", ((5, 3),)), ("{0}[..., ::2]", ((3, 5),)), ("{0}[::-1]", ((3, 2),)), ("{0}[..., 0]", ((2, 3),)),
        ("{0}[..., None, :1]", ((2, 3),)),
    ),
    "index": (
        ("{0}[np.array([0, -1, 0])]", ((3, 2),)), ("{0}[..., np.array([[1, 0], [0, 1]])]", ((2, 2),)),
        ("{0}[np.array([True, False, True])]", ((3, 2),)),
    ),
    "split": (("xp.split({0}, [1], axis=-1)[1]", ((2, 3),)), ("xp.split({0}, [1], axis=0)[0]", ((3, 2),))),
    "unstack": (("xp.unstack({0})[0]", ((2, 3),)), ("xp.unstack({0}, axis=-1)[1]", ((3, 2),))),
    "index_put": (("put(xp.copy({0}), np.array([0, -1]), {1})", ((3, 2), (2,))),),
    "add_at": (("add(xp.copy({0}), np.array([0, -1]), {1})", ((3, 2), (2,))),),
    "add_to_slice": (("add(xp.copy({0}), slice(1, None), {1})", ((3, 2), (2,))),),
    "mask_put": (("put(xp.copy({0}), np.array([True, False, True]), {1})", ((3, 2), ())),),
    "gelu_tanh": (("gelu_tanh({0})", ((3, 4),)),),
    "linalg.cholesky": (
        ("xp.linalg.cholesky({0} @ xp.conj(xp.swapaxes({0}, -1, -2)) + 3 * np.eye(3))", ((3, 3),)),
        ("xp.linalg.cholesky({0} @ xp.conj(xp.swapaxes({0}, -1, -2)) + 3 * np.eye(2))", ((3, 2, 2),)),
    ),
    "linalg.eigvalsh": (("xp.linalg.eigvalsh({0} + xp.conj(xp.swapaxes({0}, -1, -2)))", ((3, 3),)),),
    "linalg.eigh": (("xp.linalg.eigh({0} + xp.conj(xp.swapaxes({0}, -1, -2)))[0]", ((3, 3),)),),
    "linalg.qr": (("xp.abs(xp.linalg.qr({0})[1])", ((3, 3),)),),
    "linalg.svd": (
        ("xp.linalg.svd({0})[1]", ((3, 3),)), ("xp.abs(xp.linalg.svd({0}, full_matrices=False)[0])", ((3, 2),)),
    ),
    "linalg.pinv": (("xp.linalg.pinv({0})", ((3, 2),)),),
    "kl_div_log": (("kl_div_log({0}, {1})", ((3, 4), (3, 4))),),
    "sliding_dot": (("xp.convolve({0}, {1})", ((5,), (3,))), ("xp.correlate({0}, {1}, 'same')", ((6,), (3,)))),
    "resample": (("nearest({0})", ((1, 2, 3),)), ("linear({0})", ((2, 1, 3),))),
}  # fmt: skip
# Operations of these names: random numbers, which NumPy draws otherwise, and what only layers and optimizers record.
ELSEWHERE = ("random.", "dropout", "recurrent.", "optim.", "clip_grad")
START = "x = "
LARGE, NOISE = 50.0, 1e-11  # what values may be, or differences lose too many digits
# Operations that give equal elements different places, or read one of them: any slope between is right.
ORDERS = re.compile(r"\b(sort|partition|median|nanmedian|quantile|percentile|nanquantile|nanpercentile|topk)\(")
MOST, LARGEST = 2000, 20_000  # elements of an operand: of a sample, and with extents of other values
ATTEMPTS = 6  # programs of a pair until one is not refused


class Form(NamedTuple):
    """A call of an operation: its text, and the shapes of its floating operands in a sample."""

    text: str
    shapes: tuple[Shape, ...]


class Unit(NamedTuple):
    """A differentiable operation and the ways to call it."""

    name: str
    forms: tuple[Form, ...]


@functools.lru_cache(maxsize=1)
def units() -> tuple[Unit, ...]:
    """The operations of the table that have a gradient, in order of their names."""
    found = []
    for name, op in sorted(OPS.items()):
        if not op.differentiable or name.startswith(ELSEWHERE):
            continue
        made = tuple(Form(*call) for call in SPELLED[name]) if name in SPELLED else _sampled(name)
        if made:
            found.append(Unit(name, made))
    return tuple(found)


def _sampled(name: str) -> tuple[Form, ...]:
    """The sample calls of an operation that differ in more than their dtypes."""
    record = OPS[name]
    if record.samples is None or public(name) is None:
        return ()
    called = f"xp.nn.functional.{name}" if "." not in name and not hasattr(lt, name) else f"xp.{name}"
    found: dict[Form, None] = {}
    for args, kwargs in record.samples():
        shapes: list[Shape] = []
        try:
            words = [_word(a, shapes) for a in args]
            words += [f"{k}={_word(v, shapes)}" for k, v in kwargs.items()]
        except Stopped:
            continue
        # NOTE: the gradient of the padding's row is left out, as in PyTorch, and so is no slope.
        if shapes and all(0 < math.prod(s) <= MOST for s in shapes) and "padding_idx" not in kwargs:
            found[Form(f"{called}({', '.join(words)})", tuple(shapes))] = None
    return tuple(found)


def _word(a: Any, shapes: list[Shape]) -> str:
    """An argument of a sample as text: an operand for what is floating. Stopped for what a program does not write."""
    if isinstance(a, np.ndarray | np.generic) and not isinstance(a, np.dtype):
        if dtypes.kind(a.dtype) in "fc":
            shapes.append(np.shape(a))
            return f"{{{len(shapes) - 1}}}"
        if np.size(a) > 64:
            raise Stopped("a large array of integers")
        return f"xp.asarray({literal(np.asarray(a))})".replace("{", "{{").replace("}", "}}")
    if isinstance(a, list | tuple):
        inner = ", ".join(_word(x, shapes) for x in a)
        return f"[{inner}]" if isinstance(a, list) else f"({inner}{',' * (len(a) == 1)})"
    if isinstance(a, np.dtype | type):
        kind = dtypes.kind(np.dtype(a))
        if kind not in "fc":
            raise Stopped("a cast to integers")
        return "'float64'" if kind == "f" else "'complex128'"
    if isinstance(a, float) and not math.isfinite(a):
        raise Stopped("a number that is not finite")
    return repr(a).replace("{", "{{").replace("}", "}}")


class Pairs:
    """The pairs, in an order that every run shares."""

    def __init__(self) -> None:
        self.units = units()

    @property
    def total(self) -> int:
        """How many programs visit each pair once."""
        return len(self.units) ** 2

    def of(self, seed: int) -> tuple[Unit, Unit]:
        """The pair of a seed."""
        i, j = divmod(place(seed, self.total), len(self.units))
        return self.units[i], self.units[j]


@functools.lru_cache(maxsize=1)
def pairs() -> Pairs:
    """The pairs of the table."""
    return Pairs()


# Domains that operations want: any number, a real one, (0.1, 0.9), more than 1, a positive definite matrix.
_DOMAINS = (
    "{v}", "xp.real({v})", "xp.tanh(xp.real({v})) * 0.4 + 0.5", "xp.exp(xp.tanh(xp.real({v}))) + 1",
    "{v} @ xp.conj(xp.swapaxes({v}, -1, -2)) + 3 * np.eye({n})",
)  # fmt: skip
# Leaves: an array, a row, a column, a number, parts that are joined.
_LEAVES = (
    "var({s}, {k})", "xp.broadcast_to(var({row}, {k}), {s})", "xp.broadcast_to(var({column}, {k}), {s})",
    "var((), {k}) * leaf({s}, 'float64', 4)", "xp.concat([var({part}, {k}), var({rest}, {k} + 1)], axis={axis})",
)  # fmt: skip
# Further readers of the first operation's result.
_READERS: tuple[tuple[str, ...], ...] = (
    (), ("total(m, 3)",), ("total(m[..., : (m.shape[-1] + 1) // 2], 3)",), ("xp.max(xp.real(m))",),
    ("total(m * xp.mean(m, axis=0, keepdims=True), 3)",), ("total(m[1:], 3) + total(m[:1], 5)",),
    ("c = xp.copy(m)", "w = c[..., :1]", "w *= 2", "total(c, 3)"), ("w = m[..., :1]", "w *= 2", "total(m, 3)"),
    ("total(xp.tanh(xp.real(m)), 3)",),
)  # fmt: skip


class Program:
    """Writes the program of a seed; `lines` is empty where the two operations do not fit together."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.f, self.g = pairs().of(seed)
        self.lines: list[str] = []
        self.why = ""
        self.write(0)

    def write(self, attempt: int) -> None:
        """Write another program of the same pair, in `lines`."""
        self.rng = random.Random(f"{self.seed}, {attempt}")
        self.space = space_for(reference)
        self.space["var"] = leaf_of(0.0, reference)
        self.count = 0
        self.has_second = False
        del self.lines[:]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                self._write()
            except Stopped as e:
                self.why = str(e)
                del self.lines[:]

    def _write(self) -> None:
        self._first(self.f, "x", "m")
        readers = self.rng.choice(_READERS) if self.space["m"].ndim else ()
        if readers and readers[0] == "w = m[..., :1]":  # written before it is read
            for line in readers[:2]:
                self._run(line)
            readers = readers[2:]
        self._call(self.g, "m", "y")
        read = ["total(y, 1)"]
        if self._second():
            read.append("total(y2, 2)")
        for line in readers[:-1]:
            self._run(line)
        self._run("loss = " + " + ".join([*read, *readers[-1:]]))
        if not np.isfinite(self.space["loss"]):
            raise Stopped("the loss is not finite")

    def _second(self) -> bool:
        """`y2 = g(m, f2(z))`; False, and nothing is written, where `g` takes one operand, or these do not fit."""
        if all(len(form.shapes) < 2 for form in self.g.forms):
            return False
        kept = len(self.lines)
        try:
            self._first(self.rng.choice(pairs().units), "z", "n")
            self._call(self.g, "m", "y2", "n")
        except Stopped:
            del self.lines[kept:]
            return False
        self.has_second = True
        return True

    def _run(self, line: str) -> None:
        try:
            exec(line, self.space)
        except (ValueError, TypeError, IndexError, AttributeError, ArithmeticError) as e:
            raise Stopped(f"{line}: {e}") from e
        self.lines.append(line)

    def _first(self, unit: Unit, x: str, m: str) -> None:
        """`m = f(x)` on leaves of its own."""
        for form in self.rng.sample(unit.forms, len(unit.forms)):
            shapes = form.shapes
            extents = sorted({d for s in shapes for d in s})
            if extents and self.rng.random() < 0.5:
                # An extent of 1, or an odd one, for all that have the same.
                old, new = self.rng.choice(extents), self.rng.choice((1, 1, 3, 5))
                shapes = tuple(tuple(new if d == old else d for d in s) for s in shapes)
            for some, domain in itertools.product((shapes, form.shapes), _DOMAINS):
                kept = len(self.lines)
                try:
                    names = []
                    for k, s in enumerate(some):
                        name = x if k == 0 else f"{x}{k}"
                        self._run(f"{name} = {self._leaf(s)}")
                        names.append(self._within(name, s, domain))
                    self._result(m, form.text.format(*names))
                    return
                except Stopped:
                    del self.lines[kept:]
        raise Stopped(f"{unit.name}: no operands fit")

    def _leaf(self, s: Shape) -> str:
        self.count += 1
        kind = _LEAVES[self.rng.randrange(len(_LEAVES))] if s and self.rng.random() < 0.6 else _LEAVES[0]
        axis = self.rng.randrange(len(s)) if s else 0
        if "{part}" in kind and s[axis] < 2:
            kind = _LEAVES[0]
        part, rest = [*s], [*s]
        if s:
            part[axis] = self.rng.randint(1, max(s[axis] - 1, 1))
            rest[axis] = s[axis] - part[axis]
        return kind.format(
            s=s, k=11 * self.count, row=(1, *s[1:]), column=(*s[:-1], 1), part=tuple(part), rest=tuple(rest), axis=axis
        )

    def _within(self, name: str, s: Shape, domain: str) -> str:
        if "{n}" in domain and (len(s) < 2 or s[-1] != s[-2]):
            raise Stopped("no square matrix")
        text = domain.format(v=name, n=s[-1] if s else 0)
        return text if text == name else f"({text})"

    def _call(self, unit: Unit, m: str, y: str, second: str | None = None) -> None:
        """`y = g(m)`, or `y = g(m, n)`, with what else `g` takes as leaves."""
        mark = "" if second is None else "s"  # its values have other names
        for form in self.rng.sample(unit.forms, len(unit.forms)):
            if second is not None and len(form.shapes) < 2:
                continue
            order = self.rng.sample(range(len(form.shapes)), len(form.shapes))
            given = {order[0]: m} if second is None else {order[0]: m, order[1]: second}
            for fitted, shapes in self._fitted(form, given):
                if any(math.prod(s) > LARGEST for s in shapes):
                    continue
                for domain in _DOMAINS:
                    kept = len(self.lines)
                    try:
                        names = []
                        for k, s in enumerate(shapes):
                            if k in fitted:
                                name = f"v{mark}{k}" if fitted[k] != given[k] else given[k]
                                if name != given[k]:
                                    self._run(f"{name} = {fitted[k]}")
                            else:
                                name = f"u{mark}{k}"
                                self._run(f"{name} = {self._leaf(s)}")
                            names.append(self._within(name, s, domain))
                        self._result(y, form.text.format(*names))
                        return
                    except Stopped:
                        del self.lines[kept:]
        raise Stopped(f"{unit.name}: no operands fit {self.f.name}'s result")

    def _fitted(self, form: Form, given: dict[int, str]) -> Iterator[tuple[dict[int, str], tuple[Shape, ...]]]:
        """Expressions for the given operands with the shapes of all: as they are, with axes more or fewer, cut."""
        have = {k: np.shape(self.space[n]) for k, n in given.items()}
        k = next(iter(given))
        want, got = form.shapes[k], have[k]
        if len(want) != len(got):
            wide = (*[1] * (len(want) - len(got)), *got)
            merged = (-1, *got[len(got) - len(want) + 1 :]) if want else ()
            new = wide if len(want) > len(got) else merged
            if new:
                got = np.zeros(got).reshape(new).shape
        if len(want) == len(got):
            to: dict[int, int] = {}
            for a, b in zip(want, got, strict=True):
                to.setdefault(a, b)
            shapes = tuple(got if i == k else tuple(to.get(d, d) for d in s) for i, s in enumerate(form.shapes))
            yield {i: self._shaped(n, have[i], shapes[i]) for i, n in given.items()}, shapes
            # Equal extents of a sample may mean nothing: all as the given one.
            if len(form.shapes) > 1:
                same = tuple(got if len(s) == len(want) else s for s in form.shapes)
                yield {i: self._shaped(n, have[i], same[i]) for i, n in given.items()}, same
        yield {i: self._shaped(n, have[i], form.shapes[i]) for i, n in given.items()}, form.shapes

    @staticmethod
    def _shaped(name: str, got: Shape, want: Shape) -> str:
        """A value in another shape: the same elements, the first ones, or all of them again and again."""
        if got == want:
            return name
        have, n = math.prod(got), math.prod(want)
        if have == n:
            return f"xp.reshape({name}, {want})"
        if n < have:
            return f"xp.reshape(xp.reshape({name}, (-1,))[:{n}], {want})"
        return f"xp.reshape(xp.take(xp.reshape({name}, (-1,)), np.arange({n}) % {max(have, 1)}), {want})"

    def _result(self, name: str, text: str) -> None:
        """`name = text`, of several results a floating one; Stopped where it is not finite, or empty."""
        try:
            made = eval(text, self.space)
        except (ValueError, TypeError, IndexError, AttributeError, ArithmeticError, *REFUSALS) as e:
            raise Stopped(f"{text}: {e}") from e
        if isinstance(made, tuple | list):
            some = [k for k, a in enumerate(made) if dtypes.kind(np.asarray(a).dtype) in "fc"]
            if not some:
                raise Stopped("no floating result")
            k = self.rng.choice(some)
            text, made = f"{text}[{k}]", made[k]
        a = np.asarray(made)
        if dtypes.kind(a.dtype) not in "fc" or not a.size or not np.isfinite(a).all():
            raise Stopped(f"{text}: no finite numbers")
        if np.any((a != 0) & (np.abs(a) < NOISE)):
            raise Stopped(f"{text}: rounding errors of zeros")
        if ORDERS.search(text) and any(self._ties(x) for x in re.findall(r"\b[a-z]+\d*\b", text)):
            raise Stopped(f"{text}: the order of equal elements")
        # NOTE: a power of a negative number is one at whole exponents alone.
        if ("linalg." in text or "pow(" in text) and self._is_steep(text, made):
            raise Stopped(f"{text}: rounding errors decide")
        self._run(f"{name} = new({text})" if not text.startswith(("put", "add")) else f"{name} = {text}")
        if np.max(np.abs(a)) > LARGE:
            self._run(f"{name} = {name} * {2.0 / float(np.max(np.abs(a))):.3g}")

    def _ties(self, name: str) -> bool:
        """Whether a value has equal elements."""
        a = self.space.get(name)
        return isinstance(a, np.ndarray) and np.unique(a).size < a.size

    def _is_steep(self, text: str, made: Any) -> bool:
        """Whether a change of the operands in the tenth digit changes the result in its fourth."""
        rng = np.random.default_rng(0)
        moved = {
            k: v + 1e-10 * np.maximum(np.abs(v), 1) * rng.standard_normal(v.shape)
            for k, v in self.space.items()
            if isinstance(v, np.ndarray) and dtypes.kind(v.dtype) in "fc"
        }
        return not np.allclose(eval(text, {**self.space, **moved}), made, rtol=1e-4, atol=1e-6)


class OperationPairs(CheckedLines):
    """Pairs of operations."""

    name = "pairs"
    agrees = "differences in NumPy, in each regime"
    start, fault = START, "a pair of operations whose gradient is wrong in some regime"
    checked, written = staticmethod(check_pair), Program

    @staticmethod
    def total() -> int:
        """How many seeds in a row visit each pair once."""
        return pairs().total

    def run(self, seed: int, writer: Any, covered: Any) -> Failure | None:
        """Run it in each regime; where it is refused, other programs of the same pair."""
        refused = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                writer.write(attempt)
            try:
                failure = check_pair(writer.lines, REGIMES_OF[seed % len(REGIMES_OF)]) if writer.lines else None
            except Stopped as e:
                refused = str(e)
                continue
            if writer.lines:
                covered.modes["g(f(x))"] += 1
                covered.modes["g(f(x), f2(x2))"] += writer.has_second
                return failure
            refused = writer.why
        covered.families[f"{writer.f.name}, {writer.g.name}: {refused}"[:200]] += 1
        raise Stopped(refused)


register(OperationPairs())
