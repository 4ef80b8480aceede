"""`lt.spelling("torch")`: calls that mean another thing in PyTorch are errors, and nothing else is different."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import LazytWarning, NotSupportedError
from lazyt.functions.spelling import RULES, SpellingError

F = lt.nn.functional
X = lt.arange(8.0).reshape(2, 4)

REFUSED = {
    "Tensor.split": lambda x: x.split(2), "lazyt.split": lambda x: lt.split(x, [1]),
    "Tensor.repeat": lambda x: x.repeat(2, 1),
    "Tensor.max": lambda x: x.max(1), "lazyt.max": lambda x: lt.max(x, 1), "Tensor.min": lambda x: x.min(1),
    "lazyt.min": lambda x: lt.min(x, 1), "Tensor.std": lambda x: x.std(), "lazyt.std": lambda x: lt.std(x, axis=1),
    "Tensor.var": lambda x: x.var(1), "lazyt.var": lambda x: lt.var(x), "Tensor.transpose": lambda x: x.transpose(0, 1),
    "lazyt.sort": lambda x: lt.sort(x), "lazyt.median": lambda x: lt.median(x),
    "lazyt.nanmedian": lambda x: lt.nanmedian(x, 1), "lazyt.equal": lambda x: lt.equal(x, x),
    "Tensor.count_nonzero": lambda x: x.count_nonzero(0, 1), "lazyt.unique": lambda x: lt.unique(x, True),
    "lazyt.tril_indices": lambda x: lt.tril_indices(3, 4), "lazyt.triu_indices": lambda x: lt.triu_indices(3, 4),
    "lazyt.histogram": lambda x: lt.histogram(x), "lazyt.nn.Softmin": lambda x: lt.nn.Softmin()(x),
    "lazyt.nn.functional.one_hot": lambda x: F.one_hot(x.long(), 8),
    "lazyt.nn.functional.softmin": lambda x: F.softmin(x),
    "lazyt.nonzero": lambda x: lt.nonzero(x),
    "lazyt.meshgrid": lambda x: lt.meshgrid(x[0], x[1]),
    "lazyt.nn.Softmax": lambda x: lt.nn.Softmax()(x), "lazyt.nn.LogSoftmax": lambda x: lt.nn.LogSoftmax()(x),
    "lazyt.softmax": lambda x: lt.softmax(x), "lazyt.log_softmax": lambda x: lt.log_softmax(x),
    "lazyt.nn.functional.softmax": lambda x: F.softmax(x),
    "lazyt.nn.functional.log_softmax": lambda x: F.log_softmax(x),
}  # fmt: skip
ALLOWED = [
    lambda x: lt.split(x, indices_or_sections=2), lambda x: lt.tile(x, (2, 1)), lambda x: lt.repeat(x, 2, axis=1),
    lambda x: x.max(axis=1), lambda x: x.max(), lambda x: x.std(ddof=1), lambda x: lt.var(x, correction=1),
    lambda x: x.swapaxes(0, 1), lambda x: x.transpose(), lambda x: lt.sort(x, axis=-1), lambda x: lt.argwhere(x),
    lambda x: lt.median(x, axis=None), lambda x: lt.quantile(x, 0.5, method="lower"),
    lambda x: lt.meshgrid(x[0], x[1], indexing="ij"), lambda x: lt.nn.Softmax(-1)(x), lambda x: F.softmax(x, -1),
    lambda x: lt.nn.Softmax(dim=0)(x), lambda x: lt.array_equal(x, x), lambda x: x.count_nonzero(axis=(0, 1)),
    lambda x: lt.unique(x), lambda x: lt.tril_indices(3), lambda x: lt.tril_indices(3, m=4),
    lambda x: lt.histogram(x, bins=3), lambda x: F.one_hot(x.long(), 8, dtype=lt.int64),
    lambda x: F.layer_norm(x, 4), lambda x: x * 2.5, lambda x: repr(lt.nn.Softmax(0)),
]  # fmt: skip


def test_every_place_has_a_call():
    assert {p for r in RULES for p in r.places} == REFUSED.keys()


@pytest.mark.parametrize("place", REFUSED)
def test_a_call_that_means_something_else_is_refused(place):
    call = REFUSED[place]
    plain = call(X)
    with lt.spelling("torch"), pytest.raises(SpellingError, match=r"here, and .* in PyTorch; write "):
        call(X)
    again = call(X)
    for a, b in zip(
        [again] if isinstance(again, lt.Tensor) else again,
        [plain] if isinstance(plain, lt.Tensor) else plain,
        strict=True,
    ):
        assert a.tolist() == b.tolist()


@pytest.mark.parametrize("call", ALLOWED)
def test_what_can_mean_one_thing_goes_on(call):
    with lt.spelling("torch"):
        call(X)


def test_modes_end_where_they_should():
    assert lt.split(X, 2)[0].shape == (1, 4)
    with lt.spelling("torch"), lt.spelling("numpy"):
        assert X.std().shape == ()
    lt.spelling("torch")
    try:
        with lt.spelling("torch"), pytest.raises(SpellingError):
            X.std()
        with pytest.raises(SpellingError):
            X.std()
    finally:
        lt.spelling("numpy")
    assert X.std().shape == ()
    with pytest.raises(NotSupportedError, match="'keras', because there are 'torch' and 'numpy'"):
        lt.spelling("keras")


def test_a_numpy_scalar_that_widens_is_reported_once_with_its_line():
    x = lt.ones(2)
    with lt.spelling("torch"), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            y = x * np.float64(2)
        x * np.float32(2)
        x.astype(lt.float64) * np.float64(2)
        x * 2.0
    assert y.dtype == lt.float64
    (one,) = found
    assert issubclass(one.category, LazytWarning)
    assert "a NumPy scalar of dtype float64 makes float32 float64 at" in str(
        one.message
    ) and "test_spelling.py:" in str(one.message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: i * 0.5, "multiply of int64 is float64, and of PyTorch's default dtype there"),
        (lambda i: lt.sqrt(i), "sqrt of int64 is float64"),
        (lambda i: i / 2, "divide of int64 is float64"),
        (
            lambda i: lt.nn.Linear(3, 2)(i.double()),
            "linear of float64 and float32 and float32 is float64, and",
        ),
        (lambda i: lt.ones(3) + i, "add of float32 and int64 is float64"),
    ],
)
def test_integers_that_widen_are_reported_once_with_their_line(call, message):
    with lt.spelling("torch"), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            i = lt.arange(3)
            assert call(i).dtype == lt.float64
    (one,) = found
    assert issubclass(one.category, LazytWarning)
    assert message in str(one.message) and "test_spelling.py:" in str(one.message)


def test_what_is_wide_by_its_operands_or_on_demand_is_not_reported():
    with lt.spelling("torch"), warnings.catch_warnings():
        warnings.simplefilter("error")
        i = lt.arange(3)
        i.astype(lt.float64) * 0.5
        lt.sum(i, dtype=lt.float64)
        i.double() + lt.ones(3)
        i.float() * 0.5 + lt.zeros(3, dtype=lt.float64)
        i + 2
        i.to(lt.int16) * lt.ones(3)
