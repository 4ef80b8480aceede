"""Text that PyTorch and NumPy read differently: by the file it stands in, with PyTorch's parameters, keys and axes."""

from __future__ import annotations

import copy
import pickle
import types
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn as lazyts_nn


@pytest.fixture(autouse=True)
def _of_torch(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a test runs, this file has `lazyt.torch` among its names."""
    monkeypatch.setitem(globals(), "torch_space", torch)


OF_TORCH = "import lazyt.torch as torch\nfrom lazyt.torch import nn\n"
OF_LAZYT = "import lazyt as lt\nfrom lazyt import nn\n"


def module(beginning: str, text: str) -> Any:
    made = types.ModuleType("program")
    exec(compile(beginning + text, "program.py", "exec"), made.__dict__)
    return made


@pytest.mark.parametrize("first", [OF_TORCH, OF_LAZYT])
def test_files_whose_code_is_equal_have_their_own_readings(first: str) -> None:
    text = "def largest(x): return x.max(1)\ndef spread(x): return x.std(axis=0)\ndef take(x, i): return x[0, :, i]\n"
    made = {beginning: module(beginning, text) for beginning in (first, *{OF_TORCH, OF_LAZYT} - {first})}
    x = lt.asarray([[1.0, 3.0], [2.0, 0.0]])
    for _ in range(2):  # again, as what a file is was found
        for beginning, program in made.items():
            found, spread = program.largest(x), program.spread(x)
            taken = program.take(lt.zeros((2, 5, 6)), lt.asarray([0, 2, 5]))
            if beginning is OF_TORCH:
                assert found.indices.tolist() == [1, 0] and taken.shape == (5, 3)
                np.testing.assert_allclose(spread.tolist(), [0.5**0.5, 4.5**0.5], rtol=1e-6)
            else:
                assert found.tolist() == [3.0, 2.0] and spread.tolist() == [0.5, 1.5] and taken.shape == (3, 5)


def test_a_file_may_import_after_its_functions_were_called() -> None:
    program = module("", "def largest(x): return x.max(1)\n")
    x = lt.asarray([[1.0, 3.0]])
    assert program.largest(x).tolist() == [3.0]
    exec("import lazyt.torch as torch", program.__dict__)
    assert program.largest(x).indices.tolist() == [1]
    del program.torch
    assert program.largest(x).tolist() == [3.0]


def test_an_option_that_only_numpy_has_means_numpys(torch: Any) -> None:
    x = lt.asarray([[1.0, 3.0]])
    assert x.std(axis=1, ddof=0).tolist() == [1.0]


def test_the_place_of_index_arrays_is_the_files_at_each_turn(torch: Any) -> None:
    def taken(x: Any, at: Any) -> Any:
        return x[0, :, at] * 2

    numpys = types.FunctionType(taken.__code__.replace(co_name="numpys"), {"__name__": "other"})
    x, at = lt.asarray(np.arange(24.0).reshape(2, 3, 4)), lt.asarray([3, 1])
    want = np.arange(24.0).reshape(2, 3, 4)[0][:, [3, 1]] * 2
    for _ in range(3):
        np.testing.assert_array_equal(taken(x, at).numpy(), want)
        np.testing.assert_array_equal(numpys(x, at).numpy(), want.T)


def test_writes_and_gradients_at_index_arrays_behind_integers(torch: Any) -> None:
    x = torch.zeros(2, 3, 4)
    x[1, :, torch.tensor([0, 2])] = torch.arange(6.0).view(3, 2)
    assert x[1].tolist() == [[0.0, 0.0, 1.0, 0.0], [2.0, 0.0, 3.0, 0.0], [4.0, 0.0, 5.0, 0.0]]
    x[1, :, torch.tensor([0, 2])] += 1
    assert x.sum().item() == 21.0
    w = torch.ones(2, 3, 4, requires_grad=True)
    (w[0, :, torch.tensor([1, 1])] * torch.arange(6.0).view(3, 2)).sum().backward()
    assert w.grad[0].tolist() == [[0.0, 1.0, 0.0, 0.0], [0.0, 5.0, 0.0, 0.0], [0.0, 9.0, 0.0, 0.0]]


def test_a_tensor_is_a_parameter_only_if_parameter_made_it(torch: Any) -> None:
    nn = torch.nn
    for leaf in (torch.ones(2, requires_grad=True), torch.ones(2).requires_grad_()):
        m = nn.Module()
        m.x = leaf
        assert not isinstance(m.x, nn.Parameter) and not list(m.parameters()) and m.x is leaf
        m.w = nn.Parameter(leaf)
        assert isinstance(m.w, nn.Parameter) and len(list(m.parameters())) == 1
        with pytest.raises(lt.DTypeError, match="cannot assign a tensor that would not be trained as parameter 'w'"):
            m.w = torch.ones(2, requires_grad=True)


def test_what_is_a_parameter_stays_one(torch: Any) -> None:
    nn = torch.nn
    first = nn.Linear(2, 2)
    frozen = nn.Linear(2, 2).requires_grad_(False)
    lazy = nn.LazyLinear(2)
    lazy(torch.ones(1, 2))
    for m in (first, copy.deepcopy(first), pickle.loads(pickle.dumps(first)), frozen, lazy, nn.Linear(2, 2).double()):
        assert isinstance(m.weight, nn.Parameter)
    frozen.weight.requires_grad_(True)
    assert isinstance(frozen.weight, nn.Parameter)
    other = nn.Module()
    other.w, other.v = copy.deepcopy(first.weight), first.bias
    assert len(list(other.parameters())) == 2


def test_lazyts_files_take_each_leaf_for_a_parameter(torch: Any) -> None:
    program = module(
        OF_LAZYT, "m = nn.Module()\nm.x = lt.ones(2).requires_grad_()\nfound = isinstance(m.x, nn.Parameter)"
    )
    assert program.found and len(list(program.m.parameters())) == 1


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Softmin"])
@pytest.mark.parametrize(("ndim", "axis"), [(0, 0), (1, 0), (2, 1), (3, 0), (4, 1)])
def test_the_axis_of_softmax_is_chosen_by_the_number_of_axes(torch: Any, name: str, ndim: int, axis: int) -> None:
    function = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Softmin": "softmin"}[name]
    x = torch.arange(2.0**ndim).reshape((2,) * ndim)
    layer = getattr(torch.nn, name)
    want = layer(axis)(x).numpy()
    for f in (layer(), getattr(torch.nn.functional, function)):
        with pytest.warns(UserWarning, match=f"Implicit dimension choice for {function} has been deprecated"):
            np.testing.assert_array_equal(f(x).numpy(), want)
    assert repr(layer()) == f"{name}(dim=None)" and isinstance(layer(), getattr(lazyts_nn, name))


@pytest.mark.parametrize(
    ("name", "given", "shape"),
    [
        ("Linear", (3, 2), (1, 3)), ("Conv1d", (3, 2, 1), (1, 3, 4)), ("ConvTranspose2d", (3, 2, 1), (1, 3, 2, 2)),
        ("ReLU", (), (3,)), ("GELU", (), (3,)), ("BatchNorm1d", (3,), (2, 3)), ("LayerNorm", (3,), (2, 3)),
        ("MaxPool2d", (2,), (1, 1, 2, 2)), ("AdaptiveAvgPool1d", (1,), (1, 2, 4)), ("ZeroPad2d", (1,), (1, 1, 2, 2)),
        ("Dropout", (), (3,)), ("Flatten", (), (2, 3)), ("PixelShuffle", (2,), (1, 4, 1, 1)), ("Identity", (), (3,)),
        ("LazyLinear", (2,), (1, 3)), ("LazyConv2d", (2, 1), (1, 3, 2, 2)), ("LazyBatchNorm1d", (), (2, 3)),
    ],
)  # fmt: skip
def test_layers_take_their_input_by_name(torch: Any, name: str, given: Any, shape: Any) -> None:
    layer = getattr(torch.nn, name)(*given).eval()
    x = torch.ones(shape)
    np.testing.assert_array_equal(layer(input=x).detach().numpy(), layer(x).detach().numpy())


def test_a_deep_copy_of_a_parameter_has_no_gradient_as_in_pytorch(torch: Any) -> None:
    m, leaf = torch.nn.Linear(2, 2), torch.ones(2, requires_grad=True)
    (m(torch.ones(1, 2)).sum() + leaf.sum()).backward()
    other = copy.deepcopy(m)
    assert other.weight.grad is None and m.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert copy.deepcopy(leaf).grad.tolist() == [1.0, 1.0]
