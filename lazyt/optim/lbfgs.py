"""L-BFGS: directions of a quasi-Newton method from the last steps and the changes of the gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lazyt.errors import ArgumentError, DTypeError, NotSupportedError
from lazyt.functions.arguments import tensor
from lazyt.functions.creation import zeros
from lazyt.functions.elementwise import abs as absolute
from lazyt.functions.joining import concat, stack
from lazyt.functions.manipulation import astype, reshape
from lazyt.functions.products import matmul
from lazyt.functions.reductions import max as largest, sum as total
from lazyt.ir import dtypes
from lazyt.optim.line_search import Point, strong_wolfe
from lazyt.optim.optimizer import Optimizer
from lazyt.optim.parameters import write_all
from lazyt.optim.states import States
from lazyt.tracing.commit import Change
from lazyt.tracing.current import restore_grad_mode, set_grad_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Group = dict[str, Any]
    State = dict[str, Any]

__all__ = ["LBFGS"]

# A pair whose curvature is not above this says nothing.
CURVED = 1e-10


class _History(NamedTuple):
    """The last steps and changes of the gradient as rows of two matrices, and their products on the host.

    `order` names the rows that count, oldest first. At least one row does not: the next pair is written there, so the
    history before stays whole until the parameters have moved.
    """

    steps: Any
    changes: Any
    order: tuple[int, ...]
    step_by_change: np.ndarray  # [i, j]: step i times change j, for i not younger than j
    change_by_change: np.ndarray

    def free(self) -> int:
        return next(i for i in range(self.steps.shape[0]) if i not in self.order)

    def grown(self, size: int) -> _History:
        """With room for one more pair: rows double, up to one more than are kept."""
        rows = self.steps.shape[0]
        if len(self.order) < rows - 1 or rows > size:
            return self
        more = min(2 * rows, size + 1) - rows
        pad = zeros((more, self.steps.shape[1]), dtype=self.steps.dtype, device=self.steps.device)
        grams = [np.pad(m, (0, more)) for m in self[3:]]
        return self._replace(
            steps=concat([self.steps, pad]), changes=concat([self.changes, pad]),
            step_by_change=grams[0], change_by_change=grams[1],
        )  # fmt: skip

    def with_pair(self, row: int, by_step: np.ndarray, by_change: np.ndarray, size: int) -> _History:
        """The pair in `row` counts from now on: its change times all steps, and times all changes, are given."""
        sy, yy = self.step_by_change.copy(), self.change_by_change.copy()
        sy[:, row], yy[:, row], yy[row, :] = by_step, by_change, by_change
        return self._replace(order=(*self.order, row)[-size:], step_by_change=sy, change_by_change=yy)

    def direction(self, by_step: np.ndarray, by_change: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """The two-loop recursion, of a gradient known by its products with all rows.

        The result is coefficients of steps, of changes and of the gradient, in whose span the direction lies.
        """
        of_steps, of_changes = np.zeros(len(by_step)), np.zeros(len(by_step))
        last = self.order[-1]
        scale = self.step_by_change[last, last] / self.change_by_change[last, last]
        for i in reversed(self.order):
            # -gradient plus the changes so far, times step i
            along = -by_step[i] + self.step_by_change[i] @ of_changes
            of_changes[i] = -along / self.step_by_change[i, i]
        shares = -of_changes
        of_changes *= scale
        for i in self.order:
            along = -scale * by_change[i] + self.change_by_change[i] @ of_changes + self.step_by_change[:, i] @ of_steps
            of_steps[i] = shares[i] - along / self.step_by_change[i, i]
        return of_steps, of_changes, -scale


class LBFGS(Optimizer):
    """A quasi-Newton method of limited memory, with a line search if asked for. As `torch.optim.LBFGS`.

    `step(closure)` evaluates the closure several times, and must read what decides where to go on: an evaluation is
    one sync (of the loss, its slope along the direction and the largest gradient), and so is a new direction (of the
    products with the history). The last update of a step stays pending. All iterations run the same few plans: the
    history is two matrices whose rows double until `history_size`. If the closure raises, or an interrupt comes, the
    parameters are what the last whole iteration left. One group; no complex parameters.

    Liu, Nocedal: On the limited memory BFGS method for large scale optimization (1989).

    >>> import lazyt as lt
    >>> w = lt.tensor([3.0, -1.0], requires_grad=True)
    >>> optimizer = lt.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - lt.asarray([1.0, 2.0])) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    13.0
    >>> [round(x, 4) for x in w.tolist()]
    [1.0, 2.0]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        limits = {"max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval}
        tolerances = {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change}
        search = {"history_size": history_size, "line_search_fn": line_search_fn}
        super().__init__(params, {"lr": lr, **limits, **tolerances, **search})

    def check(self, group: Group) -> None:
        super().check(group)
        if self.param_groups:
            raise NotSupportedError("LBFGS: not supported: several groups, because all parameters are one vector")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ArgumentError(f"LBFGS: line_search_fn is None or 'strong_wolfe', got {group['line_search_fn']!r}")
        if group["history_size"] < 1:
            raise ArgumentError(f"LBFGS: history_size is at least 1, got {group['history_size']}")
        for p in group["params"]:
            if dtypes.kind(p.dtype) == "c":
                raise NotSupportedError(
                    f"LBFGS: not supported: a parameter of {p.dtype}, because the line search compares real numbers; "
                    "optimize its real and imaginary part"
                )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move along up to `max_iter` directions; `closure()` computes the loss and the gradients anew."""
        if closure is None:
            raise DTypeError("LBFGS: step requires a closure that computes the loss and the gradients anew")
        before = set_grad_mode(False)
        try:
            return _Step(self, closure).run()
        finally:
            restore_grad_mode(before)

    def _saved(self, state: State) -> State:
        history = state.get("history")
        rest = {k: v for k, v in state.items() if k != "history"}
        if history is None:
            return rest
        curvatures = [float(history.step_by_change[i, i]) for i in history.order]
        last = history.order[-1] if history.order else None
        scale = curvatures[-1] / float(history.change_by_change[last, last]) if last is not None else 1.0
        pairs = {
            "old_dirs": [history.changes[i].clone() for i in history.order],
            "old_stps": [history.steps[i].clone() for i in history.order],
        }
        return {**rest, **pairs, "ro": [1 / c for c in curvatures], "H_diag": scale}

    def _restored(self, state: State) -> State:
        names = ("func_evals", "n_iter", "d", "t", "prev_flat_grad", "prev_loss")
        found = {k: state[k] for k in names if k in state}
        steps, changes = (state.get(k) or [] for k in ("old_stps", "old_dirs"))
        if "d" in found:
            found["history"] = _restored_history(found["d"], steps, changes)
        return found


def _new_history(like: Any) -> _History:
    pad = zeros((2, like.shape[0]), dtype=like.dtype, device=like.device)
    return _History(pad, pad + 0, (), np.zeros((2, 2)), np.zeros((2, 2)))


def _restored_history(like: Any, steps: list[Any], changes: list[Any]) -> _History:
    if not steps:
        return _new_history(like)
    pad = zeros((1, like.shape[0]), dtype=like.dtype, device=like.device)
    s, y = (concat([stack([reshape(v, (-1,)) for v in vs]), pad]) for vs in (steps, changes))
    left, right = (np.asarray(m.numpy(), np.float64) for m in (s, y))
    return _History(s, y, tuple(range(len(steps))), left @ right.T, right @ right.T)


class _Step:
    """One call of `LBFGS.step`."""

    def __init__(self, owner: LBFGS, closure: Callable[[], Any]) -> None:
        self.owner, self.closure, self.group = owner, closure, owner.param_groups[0]
        self.params = self.group["params"]
        self.state: State = {"func_evals": 0, "n_iter": 0, **owner.state.get(self.params[0], {})}

    def evaluate(self, d: Any = None, t: float = 0.0) -> tuple[Any, Point, float]:
        """The closure's loss; its values as a Point; the largest element of d. One sync."""
        before = set_grad_mode(True)
        try:
            loss = self.closure()
        finally:
            restore_grad_mode(before)
        self.state["func_evals"] += 1
        g = concat([
            zeros((p.size,), dtype=p.dtype, device=p.device) if p.grad is None else reshape(p.grad, (-1,))
            for p in self.params
        ])  # fmt: skip
        # `+ 0`: the closure may write the gradients in place.
        g = g + 0 if len(self.params) == 1 else g
        value = astype(reshape(tensor(loss).detach(), ()), g.dtype)
        numbers = [value, largest(absolute(g)), total(absolute(g))]
        if d is not None:
            numbers += [total(g * d), largest(absolute(d))]
        found = stack(numbers).numpy().astype(np.float64)
        self.size = float(found[2])
        slope, longest = (float(x) for x in found[3:]) if d is not None else (0.0, 0.0)
        return loss, Point(t, float(found[0]), slope, g, float(found[1])), longest

    def move(self, start: list[Any], d: Any, t: float, kept: State | None = None) -> None:
        """All parameters are start + t * d from now on, and `kept` is the state: both, or neither."""
        at, parts = 0, []
        for p, x in zip(self.params, start, strict=True):
            parts.append((p, x + reshape(d[at : at + p.size], p.shape) * t))
            at += p.size
        write_all(parts, () if kept is None else self.stores(kept))

    def run(self) -> Any:
        group = self.group
        first, point, _ = self.evaluate()
        evaluations = 1
        self.owner.state[self.params[0]] = self.state
        if point.steepest <= group["tolerance_grad"]:
            return first
        for n in range(1, group["max_iter"] + 1):
            d, slope, history = self.direction(point.gradient)
            t = float(group["lr"]) * (min(1.0, 1.0 / self.size) if self.state["n_iter"] == 0 else 1.0)
            rest = {"n_iter": self.state["n_iter"] + 1, "history": history, "prev_flat_grad": point.gradient}
            rest |= {"d": d, "prev_loss": point.loss}
            if slope > -group["tolerance_change"]:
                self.state = self.owner.state[self.params[0]] = {**self.state, **rest, "t": t}
                break
            before = point.loss
            last = n == group["max_iter"]
            point, t, longest, made = self.advance(d, t, point._replace(slope=slope, t=0.0), last, evaluations, rest)
            evaluations += made
            if last or evaluations >= group["max_eval"] or point.steepest <= group["tolerance_grad"]:
                break
            if abs(t) * longest <= group["tolerance_change"] or abs(point.loss - before) < group["tolerance_change"]:
                break
        return first

    def stores(self, state: State) -> list[Change]:
        """What makes this the optimizer's state."""
        states = States([*self.owner.state.items(), (self.params[0], state)])
        return [(self, "state", state), (self.owner, "_states", states)]

    def direction(self, g: Any) -> tuple[Any, float, _History]:
        """The direction at a gradient, its slope there, and the history with the last step. One sync."""
        state, size = self.state, self.group["history_size"]
        if state["n_iter"] == 0:
            return -g, -float(total(g * g).item()), _new_history(g)
        history = state["history"].grown(size)
        row = history.free()
        y, s = g - state["prev_flat_grad"], state["d"] * state["t"]
        history.steps[row], history.changes[row] = s, y
        products = [matmul(m, v) for v in (y, g) for m in (history.steps, history.changes)]
        found = stack(products).numpy().astype(np.float64)
        if found[0, row] > CURVED:
            history = history.with_pair(row, found[0], found[1], size)
        if not history.order:
            return -g, -float(total(g * g).item()), history
        of_steps, of_changes, of_gradient = history.direction(found[2], found[3])
        of_steps, of_changes = (tensor(c.astype(g.dtype), g) for c in (of_steps, of_changes))
        d = matmul(of_steps, history.steps) + matmul(of_changes, history.changes) + g * of_gradient
        return d, float(total(d * g).item()), history

    def advance(
        self, d: Any, t: float, here: Point, last: bool, evaluations: int, rest: State
    ) -> tuple[Point, float, float, int]:
        """Move along d: the point there, the step length, d's largest element, and how many evaluations it took.

        `rest` and the step length enter the state with the move. If anything is raised, nothing has moved.
        """
        start, before = [p.detach().clone() for p in self.params], self.state
        longest = 0.0

        def at(t: float) -> Point:
            nonlocal longest
            self.move(start, d, t)
            _, point, longest = self.evaluate(d, t)
            return point

        try:
            if self.group["line_search_fn"] is None:
                self.move(start, d, t, {**self.state, **rest, "t": t})
                if last:
                    return here, t, longest, 0
                _, point, longest = self.evaluate(d, t)
                return point, t, longest, 1
            longest = float(largest(absolute(d)).item())
            most = self.group["max_eval"] - evaluations
            point, made = strong_wolfe(at, here, t, longest, self.group["tolerance_change"], most)
            self.move(start, d, point.t, {**self.state, **rest, "t": point.t})
        except BaseException:
            write_all([*zip(self.params, start, strict=True)], self.stores(before))
            raise
        return point, point.t, longest, made
