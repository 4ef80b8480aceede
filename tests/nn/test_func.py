"""`lazyt.func`: PyTorch's names for transformations of functions, with its arguments and results."""

from __future__ import annotations

import numpy as np
import pytest

import lazyt as lt
from lazyt import func, nn


def test_results_come_in_pytorchs_order() -> None:
    x = lt.asarray([1.0, 2.0])
    gradient, (value, aux) = func.grad_and_value(lambda v: ((v * v).sum(), "more"), has_aux=True)(x)
    assert (gradient.tolist(), value.item(), aux) == ([2.0, 4.0], 5.0, "more")
    out, pull, aux = func.vjp(lambda a, b: (a * b, "more"), x, x, has_aux=True)
    assert out.tolist() == [1.0, 4.0] and aux == "more"
    assert [g.tolist() for g in pull(lt.ones(2))] == [[1.0, 2.0], [1.0, 2.0]]
    value, tangent = func.jvp(lambda v: v**3, (x,), (lt.ones(2),), strict=True)
    assert tangent.tolist() == [3.0, 12.0]
    assert func.linearize is lt.linearize and func.hessian(lambda v: (v**3).sum())(x).tolist() == [[6, 0], [0, 12]]
    assert func.jacrev(lambda v: v**2)(x).tolist() == func.jacfwd(lambda v: v**2)(x).tolist() == [[2, 0], [0, 4]]


def test_an_ensemble_is_one_call() -> None:
    models = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval() for _ in range(3)]
    parameters, buffers = func.stack_module_state(models)
    assert parameters["0.weight"].shape == (3, 4, 3) and parameters["0.weight"].requires_grad
    assert not buffers["1.running_mean"].requires_grad
    x = lt.asarray(np.arange(6.0).reshape(2, 3), dtype="float32")
    with lt.no_sync():
        found = func.vmap(lambda p, b: func.functional_call(models[0], (p, b), (x,)))(parameters, buffers)
    want = np.stack([m(x).detach().numpy() for m in models])
    np.testing.assert_allclose(found.detach().numpy(), want, rtol=1e-5, atol=1e-6)


def test_a_batch_norm_without_statistics_is_batched() -> None:
    m = func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(3)))
    x = lt.asarray(np.arange(12.0).reshape(2, 2, 3))
    np.testing.assert_allclose(func.vmap(m)(x).detach().numpy(), np.stack([m(v).detach().numpy() for v in x]))


def test_what_is_refused() -> None:
    with pytest.raises(lt.NotSupportedError, match="vmap: not supported: chunk_size=2, because all lanes are one plan"):
        func.vmap(lt.sum, chunk_size=2)
    with pytest.raises(lt.LazytError, match="stack_module_state: at least one model is required"):
        func.stack_module_state([])
    with pytest.raises(lt.LazytError, match=r"one class and one mode .* are required, got \['Linear', 'ReLU'\]"):
        func.stack_module_state([nn.Linear(2, 2), nn.ReLU()])
    with pytest.raises(lt.LazytError, match="stack_module_state: weight is not alike in all models"):
        func.stack_module_state([nn.Linear(2, 2), nn.Linear(3, 2)])
