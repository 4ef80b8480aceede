"""Random differentiable programs: `backward()` against the slope of the same program in NumPy, in float64.

A program's leaves are `var(shape, seed)`, its last line is `loss = ...`. NumPy moves all leaves along one direction and
takes the central difference; where two step sizes disagree there is a kink, and the result is not checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import lazyt as lt
from lazyt.errors import AutogradError
from lazyt.testing.array_programs import INEXACT, leaf
from lazyt.testing.closeness import same_bits
from lazyt.testing.mixed_programs import MixedWriter
from lazyt.testing.modes import NEVER, Mode, mode
from lazyt.testing.numpy_names import reference
from lazyt.testing.statements import Failure, Space, Stopped, space_of

Array = np.ndarray[Any, Any]

# `{F}`-tokens as in composed.py; all of float64.
SMOOTH: tuple[str, ...] = (
    "xp.exp({F0} * 0.3)", "xp.tanh({F0})", "xp.sin({F0})", "xp.cos({F0})", "xp.sigmoid({F0})", "xp.square({F0})",
    "xp.log1p(xp.abs({F0}))", "xp.sqrt(xp.abs({F0}) + 1)", "xp.atan({F0})", "xp.asinh({F0})", "xp.erf({F0})",
    "xp.softplus({F0})", "xp.relu({F0})", "xp.gelu({F0})", "xp.silu({F0})", "xp.abs({F0})", "xp.expm1({F0} * 0.2)",
    "xp.reciprocal({F0} * {F0} + 1)", "xp.cbrt({F0} + 9)", "xp.sinc({F0})", "xp.log2(xp.abs({F0}) + 1)",
    "xp.nan_to_num({F0})", "{F0} + {Y}", "{F0} * {Y}", "{F0} - {Y}", "{F0} / (1 + {P} * {P})", "xp.maximum({F0}, {Y})",
    "xp.minimum({F0}, {Y})", "xp.hypot({F0}, 1 + {P})", "xp.atan2({F0}, 1 + xp.abs({P}))", "xp.logaddexp({F0}, {P})",
    "xp.pow(xp.abs({F0}) + 1, 1.5)", "xp.where({F0} > 0, {P}, {P} * {P})", "xp.clip({F0}, -1, 2)", "xp.fmod({F0}, 7)",
    "xp.sum({F1}, axis={A})", "xp.mean({F1}, axis={A}, keepdims=True)", "xp.prod({F1} * 0.5, axis={A})",
    "xp.max({F1}, axis={A})", "xp.min({F1}, axis={A})", "xp.var({F1}, axis={A})",
    "xp.std(xp.concat([{F11}, np.array([9.0, -9.0])]))", "xp.logsumexp({F1}, axis={A})",
    "xp.cumulative_sum({F1}, axis={A})", "xp.softmax({F1}, axis={A})", "xp.log_softmax({F1}, axis={A})",
    "xp.sort({F1}, axis={A})", "xp.median({F1}, axis={A})", "xp.quantile({F1}, 0.3, axis={A})",
    "xp.diff({F1}, axis={A})", "xp.reshape({F1}, -1)", "xp.flip({F1}, axis={A})", "xp.expand_dims({F1}, axis={A})",
    "xp.broadcast_to({F0}, (2, *{F0}.shape))", "xp.roll({F1}, 1, axis={A})", "xp.concat([{F1}, {P} * 2], axis={A})",
    "xp.stack([{F0}, {P} + 1])", "{F1}[::-1]", "{F1}[1:]", "{F1}[..., :2]",
    "xp.take({F1}, np.array([0, -1, 0]), axis={A})", "{F1}[[0, 0, -1]]", "xp.repeat({F1}, 2, axis={A})",
    "xp.tile({F1}, (2, 1))", "xp.tril({F2})", "xp.triu({F2}, k=1)", "xp.pad({F11}, ((1, 2),))",
    "xp.swapaxes({F2}, 0, 1)", "xp.moveaxis({F2}, 0, -1)", "xp.squeeze(xp.expand_dims({F0}, axis=0), axis=0)",
    "xp.diagonal({F22})", "xp.rot90({F22})", "{F22} @ {F22}.T", "xp.einsum('ij,kj->ik', {F22}, {F22})",
    "xp.outer({F11}, {F11})", "xp.matmul({F22}, {F22}[0])", "xp.tensordot({F22}, {F22}, 2)", "xp.vecdot({F1}, {P})",
    "xp.linalg.inv({F22} @ {F22}.T + 9 * xp.eye({F22}.shape[0]))",
    "xp.linalg.det({F22} @ {F22}.T * 0.1 + xp.eye({F22}.shape[0]))",
    "xp.linalg.solve({F22} @ {F22}.T + 9 * xp.eye({F22}.shape[0]), {F22})",
    "xp.linalg.cholesky({F22} @ {F22}.T + 9 * xp.eye({F22}.shape[0]))", "xp.linalg.norm({F1}, axis={A})",
    "xp.trace({F22})", "xp.trapezoid({F1}, axis={A})", "xp.gradient({F11})",
    "xp.convolve({F11}, np.array([1.0, -2.0, 0.5]))", "xp.vander({F11}, 3)",
    "xp.interp({F0}, np.array([-9.0, 0.0, 9.0]), np.array([1.0, 0.0, 4.0]))", "xp.cov({F22})",
    "xp.average({F1}, weights=xp.abs({P}) + 1)", "xp.nansum({F1}, axis={A})", "xp.nanmean({F1}, axis={A})",
    "xp.real(xp.fft.fft({F1}, axis={A}))", "xp.abs(xp.fft.rfft({F11}))", "xp.cumulative_prod({F11} * 0.5)",
    "xp.select([{F0} > 1], [{P} * 2], {P})", "xp.polyval([1.0, -2.0, 0.5], {F0})", "xp.kron({F11}, {F11})",
)  # fmt: skip
_WRITES = (
    "{n} *= {v}",
    "{n} += {v}",
    "{n}[0] = {v}",
    "{n}[1:] *= 2",
    "{n}[::-1] = {n} + 0",
    "{n}[{n} > 1] = 0.5",
    "{n} -= 1",
)


class GradientWriter(MixedWriter):
    """Writes programs that end in `loss`; lazyt runs them, without gradients, while they are written."""

    def program(self, length: int) -> None:
        """Leaves, statements, and the weighted sum of the last values."""
        self.space["var"] = leaf_of(0.0)
        for i in range(1 + self.pick(2)):
            shape = ((3, 4), (5,), (3, 3), (2, 3, 2), (), (4, 1))[self.pick(6)]
            self.define(f"var({shape}, {7 * self.pick(100) + i})")
            self.read_only.add(self.alive[-1])
        for _ in range(length):
            self.statement()
        kept = [n for n in self.alive[-3:] if self.values[n].size] or self.alive[:1]
        self.lines.append(
            "loss = " + " + ".join(f"xp.sum({n} * leaf({self.values[n].shape}, 'float64', 2))" for n in kept)
        )

    def statement(self) -> None:
        """One of the templates; at times a write into a value."""
        if self.pick(6) == 5 and self.write():
            return
        if self.composed(self.choices.of(SMOOTH, 30), ""):
            n = self.alive[-1]
            v = self.values[n]
            if not np.isfinite(v).all():
                self.alive.pop()
            elif v.size and float(np.max(np.abs(v))) > 50:
                self.alive.pop()
                self.define(f"xp.tanh({n} * 0.02)")

    def write(self) -> bool:
        """A write into a value that no leaf shares."""
        leaves = {self.shares[n] for n in self.read_only}
        targets = [
            n for n in self.alive if n not in self.read_only and self.shares[n] not in leaves and self.values[n].ndim
        ]
        targets = [n for n in targets if self.values[n].shape[0]]
        if not targets:
            return False
        n = targets[-1 - self.pick(min(len(targets), 4))]
        template = _WRITES[self.pick(len(_WRITES))]
        value = "0.5" if self.pick(2) else f"xp.sum({self.name('f')})"
        return self.emit(template.format(n=n, v=f"xp.tanh({value})" if "sum" in value else value))


def leaf_of(t: float, xp: Any = lt) -> Any:
    """`var`: a leaf moved by `t` along its direction; in lazyt one that gradients are asked for."""

    def var(shape: tuple[int, ...], seed: int) -> Any:
        value = leaf(shape, "float64", 4 * seed) + t * direction(shape, seed)
        return value if xp is not lt else lt.tensor(value, dtype=lt.float64)

    return var


def direction(shape: tuple[int, ...], seed: int) -> Array:
    """Where a leaf is moved to."""
    return np.random.default_rng(seed + 1).uniform(0.5, 1.5, shape)


class Slope(NamedTuple):
    """The loss's derivative along the leaves' directions by differences, a bound of its error, and the loss."""

    along: float
    off: float
    value: float


def slope(
    lines: Sequence[str], names: Callable[[Any], Space] = space_of, leaves: Callable[[float], Any] | None = None
) -> Slope | None:
    """The slope of a program's `loss` in NumPy; None at a kink. Raises Stopped where NumPy refuses the program.

    `names` gives the names that the program uses, for the namespace of NumPy; `leaves` its `var`, as `leaf_of` does.
    """
    code = compile("\n".join(lines), "<NumPy>", "exec")

    def loss(t: float) -> float:
        space = names(reference)
        space["var"] = leaf_of(t, reference) if leaves is None else leaves(t)
        try:
            exec(code, space)
        except (ValueError, TypeError, IndexError, AttributeError, NameError, ArithmeticError) as e:
            raise Stopped(str(e)) from e
        if np.ndim(space["loss"]):
            raise Stopped("the loss is no scalar")
        return float(space["loss"])

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        here, steps = loss(0.0), (1e-4, 3e-5, 1e-5)
        sides = [((loss(h) - here) / h, (here - loss(-h)) / h) for h in steps]
    found = [(right + left) / 2 for right, left in sides]
    # Right and left of a kink (equal elements, one of which is the median) the slopes stay apart, however small the
    # step; where the loss is smooth they meet.
    apart = [abs(right - left) for right, left in sides]
    # Of a curved loss they are apart by a part that shrinks with the step, too.
    always = apart[-1] - (apart[0] - apart[-1]) * steps[-1] / (steps[0] - steps[-1])
    most = max(1.0, abs(found[1]))
    if apart[-1] > max(apart[0] / 2, 1e-4 * most) or abs(always) > 5e-5 * most:
        return None
    off = max(abs(found[0] - found[1]), abs(found[1] - found[2]), abs(found[0] - found[2]))
    if not np.isfinite(found).all() or off > 1e-4 * most:
        return None
    return Slope(found[1], off, here)


def check_gradients(lines: Sequence[str], modes: Sequence[Mode]) -> Failure | None:
    """Compare `backward()` in these modes with the slope in NumPy, and their gradients with each other's bits.

    Stopped where NumPy refuses the program, where lazyt refuses to differentiate it, and at a kink.
    """
    want = slope(lines)
    if want is None:
        raise Stopped("a kink")
    code = compile("\n".join(lines), "<program>", "exec")
    first: list[Array] | None = None
    exact = not any(INEXACT.search(line) for line in lines)
    for m in modes:
        try:
            grads, along = _run(code, m)
        except AutogradError as e:
            raise Stopped(str(e)) from e
        except Exception as e:  # noqa: BLE001 - whatever a program raises is what is looked for
            return Failure(f"gradient, {m}", "", f"{m}: {type(e).__name__}: {e}")
        scale = max(1.0, abs(want.along), *(float(np.max(np.abs(g), initial=0)) for g in grads))
        if not abs(along - want.along) <= 1e-4 * scale + 10 * want.off:
            text = f"{m}: the loss's slope is {along!r} by backward(), {want.along!r} by differences in NumPy"
            return Failure(f"gradient, {m}", "loss", text)
        if first is None:
            first = grads
        elif exact and m.sync == NEVER and not all(same_bits(a, b) for a, b in zip(first, grads, strict=True)):
            # NOTE: where syncs fall says in which order the parts of a cotangent are added.
            return Failure(f"gradient, {m}", "loss", f"{m}: other bits than {modes[0]}: {grads} and {first}")
    return None


def _run(code: Any, m: Mode) -> tuple[list[Array], float]:
    leaves: list[tuple[Any, Array]] = []

    def var(shape: tuple[int, ...], seed: int) -> Any:
        x = leaf_of(0.0)(shape, seed)
        x.requires_grad_()
        leaves.append((x, direction(shape, seed)))
        return x

    with mode(m):
        for _ in range(m.repeat):
            leaves.clear()
            space: Space = space_of(lt)
            space["var"] = var
            exec(code, space)
            if not space["loss"].requires_grad:
                raise AutogradError("nothing of the loss depends on a leaf")
            space["loss"].backward()
            lt.sync()
        grads = [np.zeros(d.shape) if x.grad is None else np.asarray(x.grad.numpy()) for x, d in leaves]
    return grads, float(sum(np.sum(g * d) for g, (_, d) in zip(grads, leaves, strict=True)))
