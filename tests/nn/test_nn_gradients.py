"""Gradients of layers, losses and products against central differences in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.errors import IndexOutOfRange
from lazyt.functions import fft, linalg, sorting
from lazyt.nn import functional as F

RNG = np.random.default_rng(4)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def check(f: Any, *arrays: np.ndarray, h: float = 1e-6) -> None:
    """d(sum(f * weights)) / d(each array): recorded, and by differences."""
    leaves = [lt.tensor(a, requires_grad=True) for a in arrays]
    y = f(*leaves)
    weights = np.cos(np.arange(y.size)).reshape(y.shape)
    (y * lt.asarray(weights)).sum().backward()
    for k, a in enumerate(arrays):
        got = leaves[k].grad.numpy()
        want = np.empty(a.shape)
        for at in np.ndindex(a.shape):
            sums = []
            for step in (h, -h):
                moved = [lt.asarray(b.copy()) for b in arrays]
                b = arrays[k].copy()
                b[at] += step
                moved[k] = lt.asarray(b)
                sums.append(float((f(*moved).numpy() * weights).sum()))
            want[at] = (sums[0] - sums[1]) / (2 * h)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


IMAGE, ROW = draw(2, 4, 4, 3), draw(2, 4, 5)
CLASSES = np.array([1, 0, 2])
CASES: dict[str, tuple[Any, ...]] = {
    **{
        name: (getattr(F, name), draw(2, 3) * 2)
        for name in ("gelu", "silu", "mish", "softplus", "logsigmoid", "elu", "selu", "leaky_relu", "hardswish",
                     "hardtanh", "relu6", "softsign", "hardsigmoid")
    },
    "gelu tanh": (lambda x: F.gelu(x, "tanh"), draw(2, 3)),
    "glu": (F.glu, draw(2, 4)),
    "prelu": (F.prelu, draw(2, 3, 2), draw(3)),
    "linear": (F.linear, draw(3, 4), draw(2, 4), draw(2)),
    "layer_norm": (lambda x, w, c: F.layer_norm(x, (4, 5), w, c), ROW, draw(4, 5), draw(4, 5)),
    "rms_norm": (lambda x, w: F.rms_norm(x, 5, w), ROW, draw(5)),
    "group_norm": (lambda x, w, c: F.group_norm(x, 2, w, c), ROW, draw(4), draw(4)),
    "batch_norm": (lambda x, w, c: F.batch_norm(x, None, None, w, c, training=True), ROW, draw(4), draw(4)),
    "conv1d": (lambda x, w, c: F.conv1d(x, w, c, stride=2, padding=1), ROW, draw(3, 4, 3), draw(3)),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding="same"), IMAGE, draw(2, 4, 3, 2)),
    "conv2d groups": (lambda x, w: F.conv2d(x, w, groups=2, dilation=2, padding=1), IMAGE, draw(4, 2, 2, 2)),
    "conv2d depthwise": (lambda x, w: F.conv2d(x, w, groups=4), IMAGE, draw(4, 1, 2, 2)),
    "conv2d point": (F.conv2d, IMAGE, draw(3, 4, 1, 1)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2, 1, 1), IMAGE),
    "max_pool2d apart": (lambda x: F.max_pool2d(x, 2), IMAGE),
    "max_pool2d large": (lambda x: F.max_pool2d(x, (8, 9), 1), draw(1, 9, 10)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False), IMAGE),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (2, 1)), IMAGE),
    "mse": (F.mse_loss, draw(3), draw(3)),
    "huber": (lambda x, t: F.huber_loss(x, t, delta=0.5), draw(4), draw(4)),
    "smooth l1": (lambda x, t: F.smooth_l1_loss(x, t, beta=0.5), draw(4), draw(4)),
    "bce": (F.binary_cross_entropy, RNG.random(4), RNG.random(4)),
    "bce logits": (F.binary_cross_entropy_with_logits, draw(4), RNG.random(4)),
    "kl": (F.kl_div, draw(4), RNG.random(4) + 0.1),
    "cross_entropy": (lambda x: F.cross_entropy(x, lt.asarray(CLASSES), label_smoothing=0.1), draw(3, 4)),
    "cross_entropy soft": (F.cross_entropy, draw(3, 4), RNG.random((3, 4))),
    "nll": (lambda x: F.nll_loss(x, lt.asarray(CLASSES), reduction="sum"), draw(3, 4)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *(draw(1, 3, 2) for _ in "qkv"),
    ),
    "embedding": (lambda w: F.embedding(lt.asarray([[2, 0], [2, 1]]), w), draw(4, 2)),
    "matmul": (lt.matmul, draw(2, 1, 2, 3), draw(3, 3, 2)),
    "matmul rows": (lt.matmul, draw(2, 2, 3), draw(3, 2)),
    "matvec": (lt.matmul, draw(2, 3), draw(3)),
    "dot": (lt.matmul, draw(3), draw(3)),
    "vecdot": (lambda x, y: lt.vecdot(x, y, axis=0), draw(3, 2), draw(3, 2)),
    "tensordot": (lambda x, y: lt.tensordot(x, y, axes=((0, 2), (1, 0))), draw(2, 3, 2), draw(2, 2)),
    "einsum": (lambda x, y, z: lt.einsum("ij,kjk,ki->i", x, y, z), draw(2, 3), draw(2, 3, 2), draw(2, 2)),
    "kron": (lt.kron, draw(2, 2), draw(1, 3)),
    "cross": (lt.cross, draw(2, 3), draw(3)),
    "trace": (lambda x: lt.trace(x, offset=1), draw(3, 4)),
    "diagonal": (lambda x: lt.diagonal(x, -1, 0, 2), draw(3, 2, 3)),
    "vector_norm": (lambda x: linalg.vector_norm(x, axis=1, ord=3), draw(2, 3)),
    "matrix_norm": (linalg.matrix_norm, draw(2, 3)),
    "nuclear": (lambda x: linalg.matrix_norm(x, ord="nuc"), draw(2, 3)),
    "inv": (linalg.inv, draw(3, 3) + 3 * np.eye(3)),
    "solve": (linalg.solve, draw(3, 3) + 3 * np.eye(3), draw(3)),
    "det": (linalg.det, draw(3, 3)),
    "logdet": (lambda x: linalg.slogdet(x).logabsdet, draw(3, 3)),
    "eigenvalues": (lambda x: linalg.eigvalsh(x + x.mT), draw(3, 3)),
    "power": (lambda x: linalg.matrix_power(x, -3), draw(2, 2) + 3 * np.eye(2)),
    "sort": (sorting.sort, draw(2, 4)),
    "topk": (lambda x: sorting.topk(x, 2).values, draw(2, 4)),
    "fft": (lambda x: fft.irfft(fft.rfft(x, n=6) * 2.0, n=5), draw(2, 4)),
    "fftn": (lambda x: lt.abs(fft.fftn(x, s=(3, 4))), draw(2, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    f, *arrays = CASES[name]
    check(f, *arrays)


def test_kinks_have_pytorchs_derivatives() -> None:
    for f, at, want in (
        (F.leaky_relu, 0.0, 0.01),
        (F.elu, 0.0, 1.0),
        (F.hardtanh, 1.0, 0.0),
        (F.relu6, 6.0, 0.0),
        (F.softplus, 0.0, 0.5),
        (F.softplus, 500.0, 1.0),
        (F.silu, -500.0, 0.0),
        (F.gelu, -40.0, 0.0),
        (linalg.vector_norm, 0.0, 0.0),
    ):
        x = lt.tensor([at], requires_grad=True)
        f(x).sum().backward()
        np.testing.assert_allclose(x.grad.item(), want, rtol=1e-6, err_msg=f.__name__)


def test_probabilities_of_0_and_1_have_finite_gradients() -> None:
    x = lt.tensor([0.0, 1.0], requires_grad=True)
    F.binary_cross_entropy(x, lt.asarray([1.0, 0.0])).backward()
    assert np.isfinite(x.grad.numpy()).all()
    t = lt.tensor([0.0, 0.5], requires_grad=True)
    F.kl_div(lt.zeros(2), t).backward()
    assert np.isfinite(t.grad.numpy()).all()


def test_targets_are_checked_at_the_sync() -> None:
    loss = F.cross_entropy(lt.zeros((2, 3)), lt.asarray([0, 3]))
    with pytest.raises(IndexOutOfRange, match="3"):
        loss.item()


@pytest.mark.parametrize(
    "windows", [(2,), (3, 1, 1), (2, 1), (3, 2), (3, 2, 1), (2, 3), (3, 4, 1), ((8, 9), 1), ((8, 9),)], ids=str
)
def test_a_maximum_gives_its_gradient_to_one_element(windows: tuple[Any, ...]) -> None:
    """To the first of equal ones; of NaNs, each of which is the maximum, to the last. As PyTorch does."""
    x = np.random.default_rng(3).integers(-2, 3, (2, 18, 20)).astype("f4")
    x[0][np.random.default_rng(4).random((18, 20)) < 0.1] = np.nan
    t = lt.tensor(x, requires_grad=True)
    y = F.max_pool2d(t, *windows)
    ct = np.random.default_rng(5).integers(1, 9, y.shape).astype("f4")
    y.backward(lt.asarray(ct))
    (height, width), (stride, pad) = np.broadcast_to(windows[0], 2), (*windows[1:], *(None, 0)[len(windows) - 1 :])
    steps = (height, width) if stride is None else (stride, stride)
    want = np.zeros((2, 18 + 2 * pad, 20 + 2 * pad), "f4")
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    for i, r, c in np.ndindex(*y.shape):
        window = padded[i, r * steps[0] : r * steps[0] + height, c * steps[1] : c * steps[1] + width].ravel()
        nans = np.flatnonzero(np.isnan(window))
        a, b = divmod(int(nans[-1] if len(nans) else window.argmax()), width)
        want[i, r * steps[0] + a, c * steps[1] + b] += ct[i, r, c]
    np.testing.assert_array_equal(t.grad.numpy(), want[:, pad : 18 + pad, pad : 20 + pad])
