"""Every step of random programs fails in turn, in each way that a sync may fail: what does not read it is computed.

What depends on it raises the error, with the recorded line, and is computed when the cause is gone, gradients too.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.autograd import reverse
from lazyt.autograd.vjp_step import BACKWARD, read_by
from lazyt.config import general as settings
from lazyt.errors import IndexOutOfRange, recorded_at
from lazyt.ir.graph import Origin
from lazyt.ir.passes import pipeline
from lazyt.ir.passes.pipeline import Pass
from lazyt.runtime import first_run, plan_cache
from lazyt.testing.gradient_programs import GradientWriter, leaf_of
from lazyt.testing.statements import space_of
from lazyt.tracing import lower
from lazyt.tracing.program import ASSIGN, INPUT, MODE, Slot
from lazyt.tracing.trace import Step, local

TEXT = "this step fails"


class Injected(Exception):
    """What fails without lazyt's knowing why."""


def in_lowering(m: pytest.MonkeyPatch, fails: Callable[[Any], bool]) -> type[Exception]:
    write, alone = lower.primitives_of, first_run.Stepwise._step

    def primitives(low: Any, s: Step, *more: Any) -> Any:
        if fails(s):
            raise ValueError(TEXT)
        return write(low, s, *more)

    def step(self: Any, s: Step, *more: Any) -> None:
        if fails(s):
            raise ValueError(TEXT)
        alone(self, s, *more)

    m.setattr(lower, "primitives_of", primitives)
    m.setattr(first_run.Stepwise, "_step", step)
    return ValueError


def in_a_rule(m: pytest.MonkeyPatch, fails: Callable[[Any], bool]) -> type[Exception]:
    pull = reverse._pull

    def pulled(b: Any, n: Any, *more: Any) -> None:
        if isinstance(n.site, Origin) and fails(n.site):
            raise lt.NotSupportedError(TEXT)
        pull(b, n, *more)

    m.setattr(reverse, "_pull", pulled)
    return lt.NotSupportedError


def _of(plan: Any, fails: Callable[[Any], bool]) -> bool:
    return any(fails(n.site) for n in plan.graph.nodes if isinstance(n.site, Origin))


def in_planning(m: pytest.MonkeyPatch, fails: Callable[[Any], bool]) -> type[Exception]:
    def run(p: Any, options: Any) -> Any:
        if _of(p, fails):
            raise Injected(TEXT)
        return p

    m.setattr(pipeline, "PASSES", [*pipeline.PASSES, Pass("injected", run)])
    return Injected


def in_a_fault(m: pytest.MonkeyPatch, fails: Callable[[Any], bool]) -> type[Exception]:
    """An internal error: raised by a function of lazyt's own."""
    fuse = pipeline.fuse

    def fused(graph: Any, *more: Any, **options: Any) -> Any:
        if any(fails(n.site) for n in graph.nodes if isinstance(n.site, Origin)):
            raise lt.errors.LazytInternalError(TEXT)
        return fuse(graph, *more, **options)

    fused.__globals__  # noqa: B018 - of this module: `failed_to_plan` takes it for a user's
    m.setattr(pipeline, "fuse", fused)
    m.setattr(pipeline, "fuse_bounded", _wrapped(pipeline.fuse_bounded, fails))
    return lt.errors.LazytInternalError


def _wrapped(f: Callable[..., Any], fails: Callable[[Any], bool]) -> Callable[..., Any]:
    def wrapped(graph: Any, *more: Any, **options: Any) -> Any:
        if any(fails(n.site) for n in graph.nodes if isinstance(n.site, Origin)):
            raise lt.errors.LazytInternalError(TEXT)
        return f(graph, *more, **options)

    return wrapped


def _in_a_run(make: Callable[[Any], BaseException]) -> Callable[..., Any]:
    def injected(m: pytest.MonkeyPatch, fails: Callable[[Any], bool]) -> type[BaseException]:
        run = plan_cache.Plan.run

        def failing(self: Any, *given: Any) -> Any:
            for n in self.graph.nodes:
                if isinstance(n.site, Origin) and fails(n.site):
                    raise make(n.site)
            return run(self, *given)

        m.setattr(plan_cache.Plan, "run", failing)
        return type(make(Origin("", None)))

    return injected


def _index_error(site: Any) -> Exception:
    error = IndexOutOfRange(f"{TEXT} (recorded at {site})")
    recorded_at(error, site.site, site.step, site.backward)
    return error


WAYS: dict[str, Callable[..., Any]] = {
    "lowering": in_lowering,
    "rule": in_a_rule,
    "planning": in_planning,
    "fault": in_a_fault,
    "data": _in_a_run(_index_error),
    "memory": _in_a_run(lambda site: lt.OutOfMemory(TEXT)),
    "interrupt": _in_a_run(lambda site: KeyboardInterrupt(TEXT)),
}


def written(seed: int, length: int = 7) -> list[str]:
    """The statements of a random differentiable program."""
    rng = random.Random(seed)
    while True:
        w = GradientWriter(lambda n: rng.randrange(n))
        w.program(length)
        # NOTE: a write may spoil what a derivative reads.
        with contextlib.suppress(lt.AutogradError):
            recorded(w.lines)
            return w.lines


def recorded(lines: list[str]) -> tuple[dict[str, Any], list[Any]]:
    """Its values, all pending, and its leaves with gradients."""
    leaves: list[Any] = []

    def var(shape: tuple[int, ...], seed: int) -> Any:
        leaves.append(leaf_of(0.0)(shape, seed).requires_grad_())
        return leaves[-1]

    space = space_of(lt)
    space["var"] = var
    local.trace.start()
    exec(compile("\n".join(lines), "<program>", "exec"), space)
    space["loss"].backward(retain_graph=True)
    values = {n: x for n, x in space.items() if isinstance(x, lt.Tensor)}
    values |= {f"gradient {i}": x.grad for i, x in enumerate(leaves) if x.grad is not None}
    return values, leaves


def read(x: Any) -> Any:
    """The value of a tensor."""
    return np.asarray(x.tolist())


def leads(slot: Slot, step: Step) -> bool:
    """Whether a value depends on a step."""
    seen: set[Step] = set()
    todo = [slot.step]
    while todo:
        s = todo.pop()
        if s in seen:
            continue
        seen.add(s)
        todo += [x.step for x in s.operands if isinstance(x, Slot)]
        todo += [x.step for x in read_by(s)] if s.op is BACKWARD else []
    return step in seen


def steps_of_values() -> list[Step]:
    return [s for s in local.trace.pos.steps() if s.op not in (INPUT, MODE, ASSIGN)]


def slot_of(x: Any) -> Slot | None:
    found: Slot | None = (x if x._storage is None else x._storage)._slot
    return found


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    before = {n: settings[n] for n in names}
    settings.update(dict.fromkeys(names, False))
    try:
        yield
    finally:
        settings.update(before)


def check(way: str, record: Callable[[], Any], want: dict[str, Any], number: int, again: bool = True) -> bool:
    """One step fails in one way; False if there is no such step. again: whether the loss is differentiated then."""
    # NOTE: what was planned before does not fail in planning.
    local.trace.reset_trie()
    plan_cache.drop_all()
    values, leaves = record()
    steps = steps_of_values()
    if number >= len(steps):
        return False
    step = steps[number]

    def fails(x: Any) -> bool:
        if isinstance(x, Step):
            return x is step
        if step.op is BACKWARD:
            return bool(x.backward)
        return x.step == step.index and not x.backward and str(x.site) == str(step.site)

    # What fails in one backward step fails in all of a plan: nodes of gradients do not say which step they are of.
    failing = [s for s in steps if s is step or (s.op is BACKWARD is step.op)]
    dependent = {
        n: slot is not None and any(leads(slot, s) for s in failing) for n, x in values.items() for slot in [slot_of(x)]
    }
    views = {n for n, x in values.items() if x._view is not None}
    order = [*values]
    random.Random(number).shuffle(order)
    with pytest.MonkeyPatch.context() as m:
        kind = WAYS[way](m, fails)
        if kind is KeyboardInterrupt:
            # It comes where it comes, and nothing is lost.
            for n in order:
                with contextlib.suppress(KeyboardInterrupt):
                    read(values[n])
        else:
            for n in order:
                if n in views:
                    continue
                if not dependent[n] and way == "memory" and not again:
                    # NOTE: memory is of a whole plan, and in a training step plans share nodes of the failing one.
                    with contextlib.suppress(lt.OutOfMemory):
                        np.testing.assert_allclose(read(values[n]), want[n], rtol=1e-9, atol=1e-12, err_msg=n)
                    continue
                if not dependent[n]:
                    np.testing.assert_allclose(read(values[n]), want[n], rtol=1e-9, atol=1e-12, err_msg=n)
                    continue
                with contextlib.suppress(kind):
                    read(values[n])
                    continue
                with pytest.raises(kind) as found:
                    read(values[n])
                said = "\n".join([str(found.value), *getattr(found.value, "__notes__", ())])
                # Of a backward, the line of what it goes through may be named.
                line = "recorded at " if step.op is BACKWARD else str(step.site)
                assert line in said or str(step.site) in said or way == "memory", (n, step.op.name, said)
            assert (lt.ones(2) * 2).tolist() == [2, 2]
    for n in order:
        np.testing.assert_allclose(read(values[n]), want[n], rtol=1e-9, atol=1e-12, err_msg=n)
    if not again:
        return True
    before = [None if x.grad is None else read(x.grad) for x in leaves]
    values["loss"].backward()
    for x, g in zip(leaves, before, strict=True):
        if g is not None:
            np.testing.assert_allclose(read(x.grad), 2 * g, rtol=1e-9, atol=1e-12)
    return True


def check_all(way: str, record: Callable[[], Any], every: int = 1, again: bool = True) -> None:
    """Each step fails in turn, or each so many."""
    values, _ = record()
    want = {n: read(x) for n, x in values.items()}
    del values
    number = [*WAYS].index(way) % every
    while check(way, record, want, number, again):
        number += every
    assert number > 3


SOME = [pytest.param(19, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]


@pytest.mark.parametrize("every", SOME)
@pytest.mark.parametrize("way", WAYS)
def test_each_step_of_a_program_fails_in_turn(way: str, every: int) -> None:
    lines = written(0)
    with without("tiers"):
        check_all(way, lambda: recorded(lines), every)


@pytest.mark.slow
@pytest.mark.parametrize("tiers", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [1, 3, 5])
def test_each_step_of_other_programs_fails_in_turn(way: str, seed: int, tiers: bool) -> None:
    lines = written(seed)
    with contextlib.nullcontext() if tiers else without("tiers"):
        check_all(way, lambda: recorded(lines))


class Twice(lt.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * x * 4


def training() -> tuple[dict[str, Any], list[Any]]:
    """A step of training, with a checkpoint, a custom function, a hook, writes through views, and values beside it."""
    rng = np.random.default_rng(3)
    local.trace.start()
    w, v = (lt.tensor(rng.standard_normal(s), requires_grad=True) for s in ((3, 3), 3))
    x = lt.asarray(rng.standard_normal((4, 3)))
    optimizer = lt.optim.Adam([w, v], lr=0.1)
    h = lt.tanh(x @ w)
    h.register_hook(lambda g: g * 3)
    k = lt.utils.checkpoint.checkpoint(lambda a: lt.sin(a) * v, h)
    f = Twice.apply(k)
    u = x * 2
    u[1:, :2] = lt.exp(u[0, 0])
    u += 1
    loss = f.sum() + (h**2).mean()
    beside = lt.sort(u, axis=0) - lt.cumsum(x, axis=1)
    loss.backward()
    gradients = {"w.grad": w.grad, "v.grad": v.grad}
    optimizer.step()
    later = w.detach() * 2
    return {"h": h, "f": f, "u": u, "loss": loss, "beside": beside, "later": later, **gradients, "w": w, "v": v}, [w, v]


@pytest.mark.parametrize("every", [pytest.param(83, id="some"), pytest.param(3, id="a third", marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", WAYS)
def test_each_step_of_training_fails_in_turn(way: str, every: int) -> None:
    with without("tiers"):
        check_all(way, training, every, again=False)
    gc.collect()


def _gradient_at_a_singular_matrix(f: Callable[[Any], Any]) -> Any:
    z = lt.tensor(np.zeros((3, 3)), requires_grad=True)
    y = f(z).sum()
    y.backward()
    assert y.tolist() in (0.0, -np.inf)  # the value exists
    return z.grad


def _beyond_a_budget() -> Any:
    model = lt.nn.Sequential(*[lt.nn.Linear(64, 64) for _ in range(6)])
    with lt.memory.budget(20_000):
        loss = (model(lt.ones((64, 64))) ** 2).mean()
    loss.backward()
    return loss


def _raising(error: BaseException) -> Any:
    def function(x: Any) -> Any:
        raise error

    return lt.pure_callback(function, lt.ones(2), lt.arange(2.0) * 2)


# What cannot be computed, and its error.
HELD: dict[str, tuple[Callable[[], Any], type[BaseException], str | None]] = {
    "slogdet": (
        lambda: _gradient_at_a_singular_matrix(lambda z: lt.linalg.slogdet(z)[1]),
        np.linalg.LinAlgError,
        "Sing",
    ),
    "inverse": (lambda: lt.linalg.inv(lt.zeros((2, 2))), np.linalg.LinAlgError, "Singular"),
    "budget": (_beyond_a_budget, lt.OutOfMemory, "its largest array, of .* is of .*, recorded at"),
    "callback": (lambda: _raising(ValueError("no")), ValueError, "no"),
    "interrupt": (lambda: _raising(KeyboardInterrupt()), KeyboardInterrupt, None),
}


@pytest.mark.parametrize("name", HELD)
def test_reads_beside_a_value_that_cannot_be_computed(name: str) -> None:
    make, error, text = HELD[name]
    held = make()
    if error is KeyboardInterrupt:
        # It is raised where it comes; from then on only what calls that function raises it.
        with pytest.raises(KeyboardInterrupt):
            lt.sync()
    for _ in range(2):
        assert (lt.ones(2) * 2).tolist() == [2, 2]
        layer = lt.nn.Linear(3, 3)
        optimizer = lt.optim.SGD(layer.parameters(), lr=0.5)
        before = layer.bias.detach().numpy()
        layer(lt.ones((2, 3))).sum().backward()
        optimizer.step()
        np.testing.assert_array_equal(layer.bias.detach().numpy(), before - 1)
        with pytest.raises(error, match=text) as found:
            held.tolist()
        said = "\n".join([str(found.value), *getattr(found.value, "__notes__", ())])
        assert __file__ in said or error is KeyboardInterrupt
    del held


def test_what_failed_is_differentiated_once_there_is_memory() -> None:
    gc.collect()
    w = lt.tensor(np.ones((512, 512), np.float32), requires_grad=True)
    lt.memory.empty_cache()
    lt.memory.set_limit(lt.memory.reserved() + 100_000)
    try:
        y = lt.tanh(w @ w)
        small = lt.ones(3) + 1
        with pytest.raises(lt.OutOfMemory, match=rf"recorded at {__file__}:\d+"):
            y.sum().item()
        assert small.tolist() == [2, 2, 2]
        with pytest.raises(lt.OutOfMemory):
            y.sum().backward()
    finally:
        lt.memory.set_limit(None)
    y.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.zeros((512, 512)), atol=1e-12)
    assert y[0, 0].item() == 1


@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize(
    ("shape", "f"),
    [
        ((3, 2), lambda a: sum(x.sum() for x in lt.linalg.svd(a))),
        ((2, 3), lambda a: lt.linalg.svd(a)[2].sum()),
        ((3, 2), lambda a: lt.linalg.qr(a, mode="complete")[1].sum()),
    ],
)
def test_a_gradient_that_is_not_determined_is_refused_in_backward(shape: Any, f: Any, read_before: bool) -> None:
    a = lt.tensor(np.random.default_rng(0).standard_normal(shape), requires_grad=True)
    y = f(a)
    if read_before:
        float(y)
    for _ in range(2):
        with pytest.raises(lt.NotSupportedError, match=rf"backward: not supported: the gradient of .*{__file__}"):
            y.backward()
    assert a.grad is None
    (a * 2).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), np.full(shape, 2.0))


@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize(
    ("shape", "whole", "reduced"),
    [
        ((3, 3), lambda a: lt.linalg.svd(a), lambda a: lt.linalg.svd(a, full_matrices=False)),
        ((2, 3), lambda a: lt.linalg.qr(a, mode="complete"), lambda a: lt.linalg.qr(a)),
        ((3, 3), lambda a: lt.linalg.qr(a, mode="complete"), lambda a: lt.linalg.qr(a)),
    ],
)
def test_a_whole_decomposition_that_is_the_reduced_one_has_its_gradient(
    shape: Any, whole: Any, reduced: Any, read_before: bool
) -> None:
    found = []
    for f in (whole, reduced):
        a = lt.tensor(np.random.default_rng(1).standard_normal(shape), requires_grad=True)
        y = sum((x**3).sum() for x in f(a))
        if read_before:
            float(y)
        y.backward()
        found.append(a.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_a_refusal_depends_on_the_shape_each_time() -> None:
    for shape in ((3, 3), (3, 4), (3, 3), (3, 4)):
        a = lt.tensor(np.random.default_rng(1).standard_normal(shape), requires_grad=True)
        u = lt.linalg.svd(a)[0]
        with (
            contextlib.nullcontext()
            if shape == (3, 3)
            else pytest.raises(lt.NotSupportedError, match=r"shape \(3, 4\)")
        ):
            (u**2).sum().backward()


@pytest.mark.parametrize("left", [70, 85, 100])
def test_a_read_near_the_limit_of_recursion_is_a_recursion_error(left: int) -> None:
    frame, depth = sys._getframe(), 0
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        depth += 1

    def nested(n: int, act: Callable[[], Any]) -> Any:
        return act() if n == 0 else nested(n - 1, act)

    with without("tiers"):
        x = lt.arange(7.0)
        for k in range(left % 9):
            x = lt.sort(lt.cumsum(lt.tanh(x * (k + left)))) @ lt.eye(7)
        outcome = []
        for frames in range(8, left, 6):
            try:
                nested(sys.getrecursionlimit() - depth - frames, x.tolist)
            except RecursionError:
                outcome.append(frames)
        assert outcome
        assert len(x.tolist()) == 7 and (lt.ones(2) * 2).tolist() == [2, 2]


def _dropped(name: str) -> weakref.ref[Any]:
    w = lt.tensor(np.ones((32, 32), np.float32), requires_grad=True)
    x = lt.ones((48, 32))
    with lt.memory.budget(30_000) if name == "budget" else contextlib.nullcontext():
        if name == "hook":
            h = lt.tanh(x @ w)
            h.register_hook(lambda g: g * w.sum())
        else:
            h = lt.utils.checkpoint.checkpoint(lambda a: lt.tanh(a @ w), x)
    (h * h).sum().backward()
    return weakref.ref(w)


@pytest.mark.parametrize("name", ["checkpoint", "budget", "hook"])
def test_a_dropped_step_whose_functions_close_over_its_weight_is_not_computed(name: str) -> None:
    lt.sync()
    found = _dropped(name)
    gc.collect()
    found_there = (lt.ones(7) * 3).tolist()
    assert found_there == [3] * 7
    assert "1 value computed" in str(lt.last_sync())
    gc.collect()
    assert found() is None


@pytest.mark.parametrize("name", ["inverse", "budget", "division"])
def test_the_error_of_a_read_keeps_nothing_alive(name: str) -> None:
    division = (lambda: lt.pure_callback(lambda x: 1 // 0, lt.ones(2), lt.arange(2.0))), ZeroDivisionError, ""
    make, error, _ = HELD.get(name, division)

    def reads() -> list[weakref.ref[Any]]:
        beside, held = lt.ones(5) + 1, make()
        for act in (held.tolist, held.tolist, lambda: held + 1):
            with contextlib.suppress(error):
                act()
        return [weakref.ref(beside), weakref.ref(held)]

    gc.collect()
    gc.disable()
    try:
        found = reads()
        lt.sync()
        assert [x() for x in found] == [None, None]
    finally:
        gc.enable()


def test_a_function_of_the_user_s_that_raises_is_in_the_traceback() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("no")

    y = lt.pure_callback(fails, lt.ones(2), lt.arange(2.0))
    for _ in range(2):
        with pytest.raises(ValueError, match="no") as found:
            y.tolist()
        assert "fails" in [entry.name for entry in found.traceback]
