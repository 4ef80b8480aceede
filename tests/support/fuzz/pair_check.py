"""The check of a program of `operation_pairs.py`: its gradients beside central differences in NumPy, in each regime."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.errors import AutogradError, IndexOutOfRange
from lazyt.testing.gradient_programs import Slope, direction, leaf_of, slope
from lazyt.testing.mixed_programs import REFUSALS
from lazyt.testing.modes import Mode, mode
from lazyt.testing.statements import Failure, Stopped
from tests.support.fuzz.pair_names import space_for

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

PLANNED = Mode("planned whole", short=True)
FINE = Mode("planned for threads", short=True, fine=True, threads=2)
FIRST_RUN = Mode("a first run", tiers=True, short=True)
EAGERLY = Mode("in eager mode", tiers=True, short=True)
REGIMES = (PLANNED, FINE, FIRST_RUN, EAGERLY)
# A pair runs in one of them, some in eager mode too; a failure is looked at in all.
REGIMES_OF = (
    (PLANNED,), (FIRST_RUN,), (PLANNED,), (FINE,), (PLANNED,), (FIRST_RUN,), (PLANNED,), (PLANNED, EAGERLY),
)  # fmt: skip
RATE = 0.01


STEEP = 1e-5  # differences of different steps agree to this part of the slope, or they are no reference


def _slope(lines: Sequence[str], leaves: Callable[[float], Any] | None = None) -> Slope | None:
    """The slope of a program in NumPy; None at a kink, and where it is too steep for differences."""
    found = slope(lines, space_for, leaves)
    return None if found is None or found.off > STEEP * max(1.0, abs(found.along)) else found


class _Leaves:
    """The leaves of a program in lazyt: made at first, then the same ones again."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, Array, Array]] = []  # with their directions, and their values at first
        self.next = 0

    def var(self, shape: Shape, seed: int) -> Any:
        if self.next == len(self.made):
            x = leaf_of(0.0)(shape, seed)
            value = np.array(x.numpy())
            x.requires_grad_()
            self.made.append((x, direction(shape, seed), value))
        self.next += 1
        return self.made[self.next - 1][0]

    def gradients(self) -> list[Array]:
        return [np.zeros(v.shape) if x.grad is None else np.array(x.grad.numpy()) for x, _, v in self.made]

    def moved(self, values: Sequence[Array]) -> Callable[[float], Any]:
        """The leaves of NumPy's program at other values, for `slope`."""

        def at(t: float) -> Any:
            starts = iter(values)
            return lambda shape, seed: next(starts) + t * direction(shape, seed)

        return at


def _turn(code: Any, leaves: _Leaves, m: Mode, read: bool) -> tuple[float, list[Array], bool]:
    """The loss and gradients of one run, and whether the loss requires a gradient."""
    space = space_for(lt)
    space["var"], leaves.next = leaves.var, 0
    for x, _, _ in leaves.made:
        x.grad = None
    with lt.eager() if m is EAGERLY else contextlib.nullcontext():
        exec(code, space)
    loss = space["loss"]
    if read:
        float(loss)
        for name in ("m", "y"):
            space[name].tolist()
    asked = bool(loss.requires_grad)
    if asked:
        loss.backward()
    return float(loss), leaves.gradients(), asked


def _wrong(leaves: _Leaves, want: Slope, value: float, grads: Sequence[Array], asked: bool) -> tuple[str, str] | None:
    """The kind of a failure and its text: the loss or the gradients of a turn are not the expected ones."""
    along = sum(float(np.sum(g * d)) for g, (_, d, _) in zip(grads, leaves.made, strict=True))
    if not asked and abs(want.along) > 1e-6:
        return "no gradient", f"the loss requires no gradient; its slope is {want.along}"
    if not abs(value - want.value) <= 1e-8 * max(1.0, abs(want.value)):
        return "value", f"the loss is {value!r}, expected {want.value!r}"
    scale = max(1.0, abs(want.along), *(float(np.max(np.abs(g), initial=0)) for g in grads))
    if not abs(along - want.along) <= 1e-4 * scale + 10 * want.off:
        return "gradient", f"the loss's slope is {along!r} by backward(), {want.along!r} by differences in NumPy"
    return None


def _regime(lines: Sequence[str], code: Any, want: Slope, m: Mode) -> tuple[str, str] | None:
    """Three turns: as it is; behind an update, read before `backward()`; at the first values again."""
    leaves = _Leaves()
    with mode(m):
        value, first, asked = _turn(code, leaves, m, read=False)
        if (wrong := _wrong(leaves, want, value, first, asked)) is not None:
            return wrong[0], f"{m}: {wrong[1]}"
        with lt.no_grad():
            for x, _, _ in leaves.made:
                if x.grad is not None:
                    # NOTE: far from where they began, references of special functions lose their digits.
                    x -= lt.clip(RATE * x.grad, -0.1, 0.1)
        values = [np.array(x.detach().numpy()) for x, _, _ in leaves.made]
        moved = _slope(lines, leaves.moved(values))
        value, grads, asked = _turn(code, leaves, m, read=True)
        if moved is not None and (wrong := _wrong(leaves, moved, value, grads, asked)) is not None:
            return f"{wrong[0]} in turn 2", f"{m}, behind an update and a read: {wrong[1]}"
        with lt.no_grad():
            for x, _, v in leaves.made:
                x[...] = v
        value, grads, asked = _turn(code, leaves, m, read=False)
        if (wrong := _wrong(leaves, want, value, grads, asked)) is not None:
            return f"{wrong[0]} in turn 3", f"{m}, the third time: {wrong[1]}"
        scale = max(1.0, *(float(np.max(np.abs(g), initial=0)) for g in first))
        if not all(np.allclose(a, b, rtol=1e-7, atol=1e-8 * scale) for a, b in zip(first, grads, strict=True)):
            text = f"gradients {[g.tolist() for g in grads]}, at first {[g.tolist() for g in first]}"
            return "other gradients", f"{m}, the third time: {text}"
    return None


def check_pair(lines: Sequence[str] | str, regimes: Sequence[Mode] = REGIMES) -> Failure | None:
    """Run a program in each regime: what differs, or None. Stopped where it is refused; SyntaxError for no program."""
    lines = lines.splitlines() if isinstance(lines, str) else lines
    if not any(line.startswith("loss = ") for line in lines):
        raise SyntaxError("no loss")
    code = compile("\n".join(lines), "<program>", "exec")
    want = _slope(lines)
    if want is None:
        raise Stopped("a kink")
    for m in regimes:
        try:
            wrong = _regime(lines, code, want, m)
        except (AutogradError, IndexOutOfRange, np.linalg.LinAlgError, *REFUSALS) as e:
            if m is EAGERLY and m is not regimes[0]:
                return Failure(f"pairs, {m}: refused", "", f"{m}: {type(e).__name__}: {e}, only in this regime")
            raise Stopped(f"{type(e).__name__}: {e}") from e
        except Exception as e:  # noqa: BLE001 - whatever a program raises is what is looked for
            return Failure(f"pairs, {m}: raises {type(e).__name__}", "", f"{m}: {type(e).__name__}: {e}")
        if wrong is not None:
            return Failure(f"pairs, {m}: {wrong[0]}", "loss", wrong[1])
    return None
