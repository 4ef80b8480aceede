"""Losses with a last layer: what does not fit is named, and nothing syncs."""

from __future__ import annotations

import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import DTypeError, IndexOutOfRange, ShapeError


def test_a_target_that_is_no_class_fails_at_the_sync() -> None:
    m = nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6])
    with lt.no_sync():
        m(lt.ones((2, 4)), lt.asarray([1, 9]))
    for wrong in (10, -1):
        out = m(lt.ones((2, 4)), lt.asarray([1, wrong]))
        with pytest.raises(IndexOutOfRange, match="index 5 is out of bounds"):
            out.loss.item()


def test_bad_arguments() -> None:
    for cutoffs in ([], [3, 3], [4, 2], [0, 4], [10]):
        with pytest.raises(
            ShapeError, match="AdaptiveLogSoftmaxWithLoss: cutoffs grow and are from 1 to n_classes - 1"
        ):
            nn.AdaptiveLogSoftmaxWithLoss(4, 10, cutoffs)
    with pytest.raises(DTypeError, match=r"AdaptiveLogSoftmaxWithLoss: cutoffs must be an integer, got 2.5"):
        nn.AdaptiveLogSoftmaxWithLoss(4, 10, [2.5])  # type: ignore[list-item]
    m = nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6])
    with pytest.raises(
        ShapeError, match=r"an input \(N, 4\) and targets \(N,\) are required.* got shapes \(2, 4\) and"
    ):
        m(lt.ones((2, 4)), lt.asarray([1]))
    with pytest.raises(ShapeError, match=r"LinearCrossEntropyLoss: a weight of shape \(3,\) is required, got \(2,\)"):
        nn.LinearCrossEntropyLoss(4, 3, weight=[1.0, 2.0])
    with pytest.raises(ShapeError, match=r"LinearCrossEntropyLoss: label_smoothing is in \[0, 1\], got 2"):
        nn.LinearCrossEntropyLoss(4, 3, label_smoothing=2)
    with pytest.raises(ShapeError, match=r"conv_tbc: an input \(time, batch, in\)"):
        nn.functional.conv_tbc(lt.ones((2, 3)), lt.ones((2, 3)), None)


def test_matrix_functions_refuse_what_is_no_matrix() -> None:
    with pytest.raises(ShapeError, match=r"linalg.matrix_exp: square matrices \(..., n, n\) are required, got shape"):
        lt.linalg.matrix_exp(lt.ones((2, 3)))
    with pytest.raises(DTypeError, match=r"linalg.matrix_exp: floating numbers are required, got int64"):
        lt.linalg.matrix_exp(lt.ones((2, 2), dtype="int64"))
    with pytest.raises(ShapeError, match=r"linalg.householder_product: shapes"):
        lt.linalg.householder_product(lt.ones((2, 3)), lt.ones(2))
    assert lt.linalg.matrix_exp(lt.eye(2, dtype="float16")).dtype == lt.float16


def test_orthogonal_refuses_what_it_cannot_keep() -> None:
    wrap = nn.utils.parametrizations.orthogonal
    with pytest.raises(lt.LazytError, match="orthogonal: Linear has no parameter or buffer 'wait'"):
        wrap(nn.Linear(2, 2), "wait")
    with pytest.raises(
        ShapeError, match=r"orthogonal: matrices \(..., m, n\) are required, got 'bias' of shape \(2,\)"
    ):
        wrap(nn.Linear(2, 2), "bias")
    with pytest.raises(lt.LazytError, match="orthogonal_map is one of matrix_exp, cayley, householder, got 'qr'"):
        wrap(nn.Linear(2, 2), orthogonal_map="qr")
    layer = wrap(nn.Linear(2, 2), use_trivialization=False)
    with pytest.raises(lt.NotSupportedError, match="assigning to a weight by matrix_exp with use_trivialization=False"):
        layer.weight = lt.eye(2)
    with pytest.raises(
        DTypeError, match="not supported: householder of complex64, because reflections do not give all"
    ):
        wrap(nn.Linear(2, 2).to("complex64"), orthogonal_map="householder")
