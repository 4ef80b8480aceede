"""`opcheck` passes what is right, and finds each fault that it is for; fallbacks are counted and named."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import registry
from tests.support.interpreted_backend import NAME, InterpretedBackend

names = itertools.count()
X = np.array([1.0, 2.0], np.float32)


def square() -> lt.library.Operation:
    op = lt.library.define(f"check::op{next(names)}(Tensor x) -> Tensor")
    op.impl("cpu", np.square)
    op.register_fake(lambda x: x)
    return op


def test_what_is_right_passes():
    op = square()
    op.register_vjp(lambda args, output, ct: 2 * ct * args[0])
    op.register_batching("broadcast_all")
    found = lt.library.opcheck(op, [(lt.tensor(X, requires_grad=True),), ((X,), {})])
    assert found == dict.fromkeys(
        ("shapes", "laziness", "modes", "gradients", "batching", "aliasing", "bounds"), "passed"
    )


def _changing(every: int):
    """A kernel that gives something else after so many calls."""
    calls = itertools.count()
    return lambda x: x + next(calls) // every


@pytest.mark.parametrize(
    ("test", "kernel", "more", "why"),
    [
        ("shapes", lambda x: x[:1], {}, r"shape \(1,\), register_fake says \(2,\)"),
        ("shapes", _changing(1), {}, "called again: result 0 has other values"),
        ("modes", _changing(2), {}, "has other values"),
        ("gradients", np.square, {"vjp": lambda args, output, ct: ct}, "GradcheckError"),
        ("batching", np.cumsum, {"batching": "broadcast_all"}, "vmap|shape"),
        ("aliasing", lambda x: np.add(x, 1, out=x), {}, "read-only"),
        ("bounds", lambda x: x + ctypes.memset(x.ctypes.data, 1, 8) * 0, {}, "wrote 8 bytes of argument 'x'"),
    ],
)
def test_a_fault_is_found(test, kernel, more, why):
    op = lt.library.define(f"check::op{next(names)}(Tensor x) -> Tensor")
    op.impl("cpu", lambda x: np.asarray(kernel(x), x.dtype))
    op.register_fake(lambda x: x)
    if "vjp" in more:
        op.register_vjp(more["vjp"])
    if "batching" in more:
        op.register_batching(more["batching"])
    sample = (lt.tensor(X, requires_grad="vjp" in more),)
    with pytest.raises(lt.library.OpcheckError, match=f"opcheck: {op.name}, {test}, sample 0: (.|\n)*({why})"):
        lt.library.opcheck(op, [sample], tests=[test])
    assert lt.library.opcheck(op.name, [sample], tests=[test], raise_exception=False)[test] != "passed"


def test_a_kernel_that_syncs_is_found():
    op = lt.library.define(f"check::op{next(names)}(Tensor x) -> Tensor")
    op.impl(None, lambda x: lt.asarray((x + 1).numpy()))
    with pytest.raises(lt.library.OpcheckError, match="laziness, sample 0: SyncError"):
        lt.library.opcheck(op, [(X,)], tests=["laziness"])


def test_opcheck_is_told_what_there_is():
    with pytest.raises(TypeError, match="opcheck: an operation or its name is required, got 3"):
        lt.library.opcheck(3, [(X,)])
    with pytest.raises(ValueError, match="no test 'speed'; there are shapes, laziness"):
        lt.library.opcheck(square(), [(X,)], tests=["speed"])
    with pytest.raises(ValueError, match="there are no samples"):
        lt.library.opcheck(square(), [])


@pytest.fixture
def interp():
    registry.register(InterpretedBackend())
    yield NAME
    registry.unregister(NAME)


@pytest.mark.parametrize("whole", [False, True])
def test_a_fallback_is_counted_and_named(interp, whole):
    op = square()
    x = lt.asarray(X).to(interp)
    with pytest.raises(
        lt.NotSupportedError, match=r"on 'interpreted', .*registered: 'cpu' \(at .*fallback\('interpreted'\)"
    ):
        op(x)
    with lt.library.scoped():
        lt.library.fallback(interp, None if whole else op)
        y = op(x) + 1
        assert op.name in str(y.explain())
        assert "no kernel of" in str(y.explain())
        assert y.tolist() == [2.0, 5.0]
        assert lt.library.fallback_counts()[op.name, interp] == 1
    with pytest.raises(lt.NotSupportedError, match="no kernel there"):
        op(x)


def test_a_kernel_of_the_backend_goes_before_a_fallback(interp):
    op = square()
    op.impl(interp, np.negative)
    with lt.library.scoped():
        lt.library.fallback(interp)
        x = lt.asarray(X)
        assert op(x.to(interp)).tolist() == [-1.0, -2.0]
        assert op(x).tolist() == [1.0, 4.0]
    with pytest.raises(lt.library.RegistrationError, match="the CPU falls back to nothing"):
        lt.library.fallback("cpu")
