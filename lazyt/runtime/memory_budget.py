"""`lazyt.memory.budget`: plans whose memory stays within a budget, because the backward computes values again.

A program that was recorded under a budget is planned as any other first, nothing of it compressed. Where that needs too
much, the launches are put in an order of low peak; where that does not suffice, `lazyt/ir/passes/compress_choice.py`
chooses what is compressed, of what may be, and `lazyt/ir/passes/recompute.py` what is computed again. Both aim lower
until the plan, with its arena laid out, is within the budget. Nothing runs meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from lazyt.backends.registry import backends
from lazyt.errors import OutOfMemory
from lazyt.interrupts import uninterrupted
from lazyt.ir import graph as g
from lazyt.ir.graph_interpreter import Environment
from lazyt.ir.passes.call_operands import nbytes
from lazyt.ir.passes.compress_choice import is_choosable
from lazyt.ir.passes.recomputation import Choice, Wish
from lazyt.ir.passes.schedule import MatmulCall
from lazyt.ir.symbolic import hint
from lazyt.runtime import memory_errors
from lazyt.runtime.decorators import Context
from lazyt.runtime.memory import size_of
from lazyt.runtime.memory_policy import Policy, Saved, verdict_of
from lazyt.tracing.current import restore_mode, set_mode
from lazyt.tracing.printer import bytes_text
from lazyt.tracing.trace import Trace, local

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from functools import partial

    from lazyt.backends.interface import Executable
    from lazyt.ir.graph import Graph
    from lazyt.ir.passes.schedule import Schedule
    from lazyt.tracing.trace import Step

    class Planned(Protocol):
        """What is asked of a plan here."""

        graph: Graph
        schedule: Schedule
        choice: Choice | None
        executable: Executable
        device: str
        holds: Callable[[tuple[int, ...]], bool]

    P = TypeVar("P", bound=Planned)

# So often the pass aims at a lower peak, before the lowest is tried.
ROUNDS = 4
# Of the temporaries, the share that is used when most is: lives of different sizes leave gaps.
PACKED = 0.87
# A plan that needs this share of what the best one needs is looked for, where that is too much.
LESS = 0.97
# A plan that uses this share of what is allowed is not tried to be made cheaper, others by these shares of the rest.
FULL = 0.9
ROOM = (1.0, 0.6, 0.3)


class Budget(NamedTuple):
    """A budget, as a field of the mode: equal ones are the same."""

    nbytes: int | None
    policy: Policy | None

    def __str__(self) -> str:
        return "a policy" if self.nbytes is None else bytes_text(self.nbytes)


class budget(Context):  # noqa: N801 - a context, as `lazyt.no_grad`
    """Plan what is recorded in this block, or decorated function, so that a training step stays within so many bytes.

    nbytes: bytes, or text such as "2 GiB" or "512 MB"; None: no bound, only the policy. What counts is what a sync
    needs at its peak: inputs (parameters, state and data), results and temporaries, where a result that takes the
    memory of an input that nothing else holds counts once. Put it around the forward pass: of the values that the
    backward reads, those recorded under the budget may be computed again from others, in place of being kept. That
    changes no bit of any result. Those recorded under `compress` too may be kept in few bits instead: the choice is for
    each value, and what there is room for stays exact (but at level "L3" and behind `adapt`, whose bits belong to all
    arrays: if that is too much, all of them are compressed). A sync raises OutOfMemory before it runs anything if no
    plan is so small; the message has the smallest budget that works, and everything stays pending.

    policy: a function of a `Saved` (operation, shape, dtype, nbytes, line, readers) that returns "keep", "recompute",
    "compress" (of what was recorded under `compress`), "offload" (to the host's memory, and back ahead of need), or
    None, which leaves the choice to the planner. It is called when the step is planned, and must depend on nothing but
    its argument. Each value follows the policy that it was recorded under; a budget around the sync takes the place of
    those in the step, its policy too. Raises NotSupportedError for "offload" on a device whose memory is the host's.

    On a GPU the planner moves values too: to the host's pinned memory as soon as they are made, back before they are
    read, beside the kernels. It does so where computing a value again would take longer.

    Where a sync falls between the forward and the backward pass, the forward's plan keeps all values that a later
    backward reads: there the budget only bounds the peak. Raises TypeError or ValueError for what is no size.

    >>> import lazyt as lt
    >>> x = lt.ones((64, 64))
    >>> w = lt.ones((64, 64)).requires_grad_()
    >>> with lt.memory.budget("1 MiB"):
    ...     loss = lt.tanh(lt.tanh(x @ w) @ w).sum()
    >>> loss.backward()
    >>> lt.memory.plan(loss).peak <= 2**20 + lt.memory.allocated()
    True
    """

    def __init__(self, nbytes: int | str | None, *, policy: Callable[[Saved], str | None] | None = None) -> None:
        size = None if nbytes is None else size_of("memory.budget", nbytes)
        if policy is not None and not callable(policy):
            raise TypeError(f"memory.budget: policy must be a function or None, not {type(policy).__name__!r}")
        if size is None and policy is None:
            raise TypeError("memory.budget: a number of bytes, a text such as '2 GiB', or a policy is required")
        self._budget = Budget(size, None if policy is None else Policy(policy))
        # Of each thread, by its trace: what stood before the innermost block of this object; then the next one.
        self._before: dict[Trace, tuple[Any, Any]] = {}

    def __enter__(self) -> Self:
        tr = local.trace
        self._before[tr] = set_mode("memory", self._budget), self._before.get(tr)
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        # NOTE: no call before the mode is restored.
        tr = local.trace
        before, outer = self._before[tr]
        restore_mode("memory", before)
        if outer is None:
            del self._before[tr]
        else:
            self._before[tr] = outer

    def _again(self) -> Self:
        return self


class Bounds(NamedTuple):
    """The budgets of a program."""

    nbytes: int | None
    policies: Mapping[int, Policy]  # of the steps that were recorded under one
    steps: frozenset[int]  # those that were recorded under a budget


def budget_of(steps: Sequence[Step], graph: Graph) -> Bounds | None:
    """The budgets of a program; None without.

    That of the sync takes the place of all others: it is the one that the last step has. Else the smallest counts that
    something in the graph was recorded under (what nobody wants any more has no budget), and each value has the policy
    that it was recorded under.
    """
    alive = {n.site.step for n in graph.nodes if isinstance(n.site, g.Origin)}
    found = {s.index: s.mode.memory for s in steps if s.mode.memory is not None and s.index in alive}
    now = steps[-1].mode.memory
    if not found and now is None:
        return None
    if now is not None:
        found = dict.fromkeys(found, now)
    sizes = [b.nbytes for b in (*found.values(), now) if b is not None and b.nbytes is not None]
    policies = {step: b.policy for step, b in found.items() if b.policy is not None}
    return Bounds(min(sizes, default=None), policies, frozenset(found))


def plan_within(
    made: partial[P], found: Bounds, extents: tuple[int, ...], scalars: Sequence[Any],
) -> P:  # fmt: skip
    """A plan within a budget, at these extents; OutOfMemory if there is none. `made` makes one, for a wish."""
    limit, policies = found.nbytes, found.policies

    def need(plan: P) -> int:
        return needed(plan, extents, scalars)

    begun = made.keywords["begun"]
    choosable = is_choosable(begun.graph) and not policies and limit is not None
    usual = made(begun=replace(begun, exact=True)) if choosable else made()
    always, temporaries = _needs(usual, extents, scalars)
    if not policies and (limit is None or always + temporaries <= limit):
        return _bounded(usual, limit, scalars)
    offload = backends[usual.device].capabilities(usual.device).offload
    verdict = verdict_of(policies, "" if offload else usual.device) if policies else None
    with_epilogue = {c.node for c in usual.schedule.launches if isinstance(c, MatmulCall) and c.epilogue is not None}
    charged = frozenset(i for i, n in enumerate(usual.graph.nodes) if n in with_epilogue)
    wish = Wish(None, found.steps, verdict, None if choosable else charged)
    if limit is None:
        return made(wish=wish)
    best = _search(lambda aim: made(wish=replace(wish, limit=aim)), always, limit, need)
    if need(best) > limit:
        best = _least(lambda aim: made(wish=replace(wish, limit=aim)), always, [best, usual], need)
    least = need(best)
    if least > limit:
        raise memory_errors.name_largest(
            OutOfMemory(_too_little(limit, least, usual, best)), best, extents, scalars, found.steps
        )
    return _bounded(best, limit, scalars)


def _search(made: Callable[[int], P], always: int, limit: int, need: Callable[[P], int]) -> P:
    """A plan within the limit that computes little again; if none is, the one that needs least.

    `checkpointing` counts the temporaries of the backward, at best packed; `always` is what comes on top.
    """
    aim, step = int((limit - always) * PACKED), 0
    for _ in range(ROUNDS):
        if aim <= 0:
            break
        plan = made(aim)
        if plan.choice is None:  # there is no backward: only the order is another one
            return plan
        size = need(plan)
        if size <= limit:
            return _cheaper(made, plan, limit, need)
        if plan.choice.peak > aim:
            break
        step = max(size - limit, 2 * step)
        aim = plan.choice.peak - step
    # NOTE: the same whatever the limit is, so that the least that is named works.
    return made(0)


def _least(made: Callable[[int], P], always: int, plans: Sequence[P], need: Callable[[P], int]) -> P:
    """The plan that needs least. That with the lowest peak by count may not: what is computed again leaves gaps.

    NOTE: no limit is asked about, so that the least that is named works.
    """
    best = min(plans, key=need)
    for _ in range(ROUNDS):
        aim = int((LESS * need(best) - always) * PACKED)
        if aim <= 0 or best.choice is None:
            break
        plan = made(aim)
        if need(plan) >= need(best):
            break
        best = plan
    return best


def _cheaper(made: Callable[[int], P], plan: P, limit: int, need: Callable[[P], int]) -> P:
    """A plan that computes less again, if this one leaves much of the limit."""
    size = need(plan)
    if plan.choice is None or not plan.choice.again or size >= FULL * limit:
        return plan
    for share in ROOM:
        other = made(plan.choice.peak + int(share * PACKED * (limit - size)))
        if need(other) <= limit:
            return other
    return plan


def needed(plan: Planned, extents: tuple[int, ...], scalars: Sequence[Any]) -> int:
    """The bytes that a run of a plan needs, in whole blocks: inputs, results and temporaries."""
    return sum(_needs(plan, extents, scalars))


def _needs(plan: Planned, extents: tuple[int, ...], scalars: Sequence[Any]) -> tuple[int, int]:
    """The bytes of inputs and results, those in place of inputs once; and of temporaries."""
    bound = plan.executable.bind(extents, scalars)
    size = Environment((), (), (extents, ())).size
    allocator = backends[plan.device].allocator
    block = allocator.block
    inputs = sum(block(size(nbytes(n))) for n in _inputs(plan))
    results: int = sum(map(block, bound.sizes)) - bound.spared()
    temporaries = bound.temporaries()
    return inputs + results, allocator.arena_block(temporaries) if temporaries else 0


def _inputs(plan: Planned) -> list[g.Node]:
    return [n for n in plan.graph.nodes if n.op == "input"]


def _bounded(plan: P, limit: int | None, scalars: Sequence[Any]) -> P:
    """The plan, which serves only extents at which it is within the limit."""
    if limit is None:
        return plan
    guards = plan.holds
    known: dict[tuple[int, ...], bool] = {}
    # NOTE: sizes do not depend on scalars; offsets among the expressions want some.
    some = list(scalars)

    def holds(extents: tuple[int, ...]) -> bool:
        if not guards(extents):
            return False
        found = known.get(extents)
        if found is None:
            if len(known) > 512:
                known.clear()
            found = known[extents] = needed(plan, extents, some) <= limit
        return found

    plan.holds = holds
    return plan


def _too_little(limit: int, least: int, usual: Planned, best: Planned) -> str:
    """The message of an impossible budget."""
    inputs = sum(hint(nbytes(n)) for n in _inputs(usual))
    choice = best.choice
    text = (
        f"memory.budget: {bytes_text(limit)} is too little: at its peak this program needs at least {least} bytes "
        f"({bytes_text(least)}), {bytes_text(inputs)} of them inputs"
    )
    if choice is not None and choice.again:
        text += f", with {len(choice.again)} values computed again"
    return text
