"""Contexts as decorators: of functions, of generator functions, without parentheses."""

from __future__ import annotations

from typing import Any

import pytest

import lazyt as lt
from lazyt.tracing.trace import local

CONTEXTS = {
    "no_grad": lt.no_grad,
    "set_grad_enabled": lambda: lt.autograd.set_grad_enabled(False),
    "inference_mode": lt.autograd.inference_mode,
    "autocast": lambda: lt.autocast("cpu"),
    "no_sync": lt.no_sync,
    "expect": lambda: lt.expect(syncs=0),
    "eager": lt.eager,
    "device": lambda: lt.device("cpu"),
    "detect_anomaly": lt.autograd.detect_anomaly,
    "compress": lt.memory.compress,
    "budget": lambda: lt.memory.budget("1 GiB"),
    "saved_tensors_hooks": lambda: lt.autograd.saved_tensors_hooks(lambda t: t, lambda t: t),
}


def seen() -> Any:
    tr = local.trace
    return tr.mode, tr.eager, len(tr.syncs_forbidden), len(tr.expectations), lt.autograd.is_anomaly_enabled()


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_generator_runs_in_its_context_and_its_caller_does_not(name: str) -> None:
    with CONTEXTS[name]():
        inside = seen()
    outside = seen()

    @CONTEXTS[name]()
    def generator(first: str) -> Any:
        """What it says."""
        got = []
        try:
            got += [seen(), (yield first)]
            try:
                got.append((yield "second"))
            except KeyError:
                got.append(seen())
            yield "third"
            got.append(seen())
            return got
        finally:
            closed.append(seen())

    closed: list[Any] = []
    assert generator.__name__ == "generator" and generator.__doc__ == "What it says."
    turns = generator("first")
    assert seen() == outside and next(turns) == "first" and seen() == outside
    assert turns.send("sent") == "second" and seen() == outside
    assert turns.throw(KeyError("thrown")) == "third" and seen() == outside
    with pytest.raises(StopIteration) as e:
        next(turns)
    assert e.value.value == [inside, "sent", inside, inside] and closed == [inside] and seen() == outside
    left = generator("first")
    next(left)
    left.close()
    assert closed == [inside, inside] and seen() == outside
    failing = generator("first")
    next(failing)
    with pytest.raises(ZeroDivisionError, match="of the caller"):
        failing.throw(ZeroDivisionError("of the caller"))
    assert closed == [inside] * 3 and seen() == outside


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_function_runs_in_its_context(name: str) -> None:
    with CONTEXTS[name]():
        inside = seen()
    outside = seen()
    f = CONTEXTS[name]()(seen)
    assert f() == inside and f() == inside and seen() == outside


@pytest.mark.parametrize(
    ("context", "grad"), [(lt.no_grad, False), (lt.enable_grad, True), (lt.autograd.inference_mode, False)]
)
def test_without_parentheses(context: Any, grad: bool) -> None:
    w = lt.tensor([1.0], requires_grad=True)

    @context
    def f(x: Any, k: int = 2) -> Any:
        return x * k

    @context
    def generator(n: int) -> Any:
        for _ in range(n):
            yield (w * 2).requires_grad

    class Model:
        @context
        def half(self, x: Any) -> Any:
            return x / 2

    with lt.autograd.set_grad_enabled(not grad):
        assert f(w, k=3).requires_grad == grad and f.__name__ == "f"
        assert Model().half(w).requires_grad == grad
        assert [*generator(2)] == [grad, grad]
        assert lt.is_grad_enabled() != grad
    with context() as entered:
        assert isinstance(entered, context) and lt.is_grad_enabled() == grad


def test_generators_take_turns() -> None:
    @lt.no_grad()
    def without() -> Any:
        while True:
            yield lt.is_grad_enabled()

    @lt.enable_grad()
    def with_grad() -> Any:
        while True:
            yield lt.is_grad_enabled()

    both = [*zip(without(), with_grad(), (lt.is_grad_enabled() for _ in range(2)), strict=False)]
    assert both == [(False, True, True)] * 2


@pytest.mark.parametrize("context", [lt.no_grad, lt.enable_grad])
def test_what_is_no_function_is_refused(context: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{context.__name__}: a function is decorated, not 'int'$"):
        context(3)
    with pytest.raises(TypeError, match=rf"^{context.__name__}: a function is decorated, not 'str'$"):
        context()("x")
