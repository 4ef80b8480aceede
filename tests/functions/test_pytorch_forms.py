"""Calls as programs of PyTorch's write them: those that mean one thing are taken, others say what to write."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import AxisError, DTypeError, NotSupportedError, ShapeError
from lazyt.utils.data import DataLoader, TensorDataset

F = nn.functional


def test_axes_are_flattened_from_one_to_the_other():
    x = lt.arange(24).reshape(2, 3, 4)
    assert x.flatten(1).tolist() == lt.flatten(x, start_dim=1).tolist() == x.reshape(2, 12).tolist()
    assert x.flatten(0, 1).shape == lt.flatten(x, end_dim=-2).shape == (6, 4)
    assert lt.flatten(lt.tensor(3.0), 0).shape == (1,) and x.flatten().shape == x.flatten("C").shape == (24,)
    y = lt.zeros((2, 3, 4))
    y.flatten(1)[0, 0] = 5  # a view, as PyTorch's; without axes it is NumPy's copy
    y.flatten()[1] = 7
    assert y[0, 0, :2].tolist() == [5, 0]
    with pytest.raises(AxisError, match="flatten: axis 5 is out of bounds for an array of 3 dimensions"):
        x.flatten(5)
    with pytest.raises(ShapeError, match=r"flatten: start_dim 2 comes after end_dim 1 in shape \(2, 3, 4\)"):
        x.flatten(2, 1)
    with pytest.raises(ShapeError, match="flatten: order is one of C, F, A and K, got True"):
        x.flatten(True)


def test_a_device_is_what_tensors_and_modules_are_moved_to():
    device = lt.device("cuda" if lt.cuda.is_available() else "cpu")
    layer = nn.Linear(2, 2, device=device).to(device)
    x = lt.ones(2, device=device).to(device, non_blocking=True)
    assert layer(x).device == device == x.device
    assert device.type == str(device).partition(":")[0]
    cpu = lt.device("cpu")
    assert (str(cpu), cpu.index, cpu) == ("cpu", None, "cpu") and hash(cpu) == hash(lt.ones(1).device)
    assert copy.deepcopy(cpu) == pickle.loads(pickle.dumps(cpu)) == cpu and isinstance(copy.copy(cpu), lt.device)
    assert lt.tensor([1.0], device=cpu).to(device=cpu, dtype=lt.float64).dtype == lt.float64
    with cpu, cpu:
        assert lt.zeros(1).device == cpu
    with pytest.raises(lt.DeviceError, match="'tpu': no such device"):
        lt.device("tpu")
    with pytest.raises(lt.DeviceError):
        lt.device("cpu", 7)


def test_a_tensor_is_moved_to_another_one():
    x = lt.ones(2)
    assert x.to(lt.ones(1, dtype="float64")).dtype == lt.float64
    assert x.to("cpu", lt.float16, True).dtype == lt.float16 and x.to("cpu", True) is x
    assert x.to("cpu", lt.float32, False, True) is not x


def test_classes_are_counted_where_their_number_is_not_given():
    assert F.one_hot(lt.asarray([2, 0])).tolist() == F.one_hot(lt.asarray([2, 0]), num_classes=3).tolist()
    assert F.one_hot(lt.asarray([2, 0]), 5).shape == (2, 5) and F.one_hot(lt.zeros(0, dtype="int64")).shape == (0, 0)


def test_repetitions_one_by_one():
    assert lt.ones((2, 3)).tile(2, 1).shape == lt.ones((2, 3)).tile((2, 1)).shape == (4, 3)


def test_gradients_are_those_of_the_inputs_alone():
    x = lt.tensor([1.0, 2.0], requires_grad=True)
    (g,) = lt.autograd.grad((x * x).sum(), x, None, True, False, True, True)
    assert g.tolist() == [2, 4]
    with pytest.raises(NotSupportedError, match=r"only_inputs=False, because `.grad` is left alone"):
        lt.autograd.grad((x * x).sum(), x, only_inputs=False)


def test_datasets_by_pytorchs_place():
    (batch,) = DataLoader(TensorDataset(lt.arange(3)), batch_size=3)
    assert batch[0].tolist() == [0, 1, 2] and lt.utils.data.DataLoader is DataLoader is lt.data.DataLoader


X = lt.ones((2, 3, 4))
REFUSED = {
    r"^max: axis must be an integer or a tuple of them, got a tensor of shape \(2, 3, 4\) and dtype float32; of two "
    r"arrays, write lt.maximum\(x, y\)$": (DTypeError, lambda: lt.max(X, X)),
    r"^amin: axis must be .*; of two arrays, write lt.minimum\(x, y\)$": (DTypeError, lambda: X.amin(X)),
    r"^argmax: axis must be an integer or a tuple of them, got a tensor of shape \(2, 3, 4\) and dtype float32$": (
        DTypeError, lambda: lt.argmax(X, X),
    ),
    r"^sum: not a dtype: True; keepdims= is given by its name$": (DTypeError, lambda: X.sum(1, True)),
    r"^mean: not a dtype: False; keepdims= is given by its name$": (DTypeError, lambda: lt.mean(X, 1, False)),
    r"^transpose\(\) too many positional arguments: the axes are one argument, and lt.swapaxes\(x, 0, 1\) swaps two$": (
        TypeError, lambda: lt.transpose(X, 0, 1),
    ),
    r"^transpose: 2 axes were given for an array of 3 dimensions; x.swapaxes\(1, 2\) swaps two$": (
        ShapeError, lambda: X.transpose(1, 2),
    ),
    r"^argsort: kind is one of quicksort, heapsort and stable, got True; descending= is given by its name$": (
        ShapeError, lambda: X.argsort(1, True),
    ),
    r"^sort: kind is one of quicksort, heapsort and stable, got 'bubble'$": (
        ShapeError, lambda: lt.sort(X, kind="bubble"),
    ),
    r"unexpected keyword argument 'requires_grad': write zeros\(...\).requires_grad_\(\)$": (
        TypeError, lambda: lt.zeros(2, requires_grad=True),
    ),
    r"unexpected keyword argument 'memory_format': leave it out, as values are always contiguous$": (
        TypeError, lambda: lt.empty_like(X, memory_format=1),
    ),
    r"^lazyt has no 'randn_like': use lt.random.randn\(\*x.shape\) \(PyTorch: torch.randn_like\)$": (
        AttributeError, lambda: lt.randn_like(X),
    ),
    r"^lazyt has no 'LongTensor': use lt.tensor\(x, dtype=lt.int64\)": (AttributeError, lambda: lt.LongTensor([1])),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_means_something_else_says_what_to_write(message):
    error, call = REFUSED[message]
    with pytest.raises(error, match=message):
        call()


def test_an_axis_of_no_dimensions_is_read():
    assert X.sum(lt.asarray(1)).shape == (2, 4) and np.array_equal(lt.max(X, np.array(0)).numpy(), np.ones((3, 4)))


@pytest.mark.parametrize(
    "make",
    [
        lambda **at: lt.random.randn(2, 3, **at), lambda **at: lt.random.rand(2, **at),
        lambda **at: lt.random.random(2, **at), lambda **at: lt.random.standard_normal(2, **at),
        lambda **at: lt.random.normal(0.0, 1.0, (2,), **at), lambda **at: lt.random.uniform(0.0, 1.0, (2,), **at),
        lambda **at: lt.random.integers(0, 5, (2,), **at), lambda **at: lt.random.permutation(3, **at),
        lambda **at: lt.random.bernoulli(0.5, (2,), **at),
    ],
)  # fmt: skip
def test_random_numbers_are_made_on_a_device(make):
    lt.random.seed(4)
    here = make(device=lt.device("cpu"))
    lt.random.seed(4)
    assert here.device == "cpu" and here.tolist() == make().tolist()
    with pytest.raises(lt.DeviceError, match="'tpu': no such device"):
        make(device="tpu")
