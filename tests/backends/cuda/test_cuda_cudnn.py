"""Convolutions by cuDNN: what its front end is asked for, above a fake that computes, and what is done without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cuda import cupy_driver as drivers
from lazyt.backends.cuda.device import device
from lazyt.backends.cuda.flags import switches
from lazyt.backends.cuda.library import cudnn as by_cudnn, cudnn_attention as by_attention
from lazyt.backends.cuda.library.cudnn import NEVER, PRECISE, Geometry
from lazyt.backends.cuda.library.cudnn_attention import Attended
from lazyt.errors import DeviceError
from lazyt.ir.graph import Convolution
from lazyt.nn import functional as F
from tests.support.cuda.fake import FakeDriver
from tests.support.cuda.fake_cudnn import FakeCudnn


@pytest.fixture
def cudnn(gpu: FakeDriver) -> FakeCudnn:
    gpu.front_end = FakeCudnn(gpu)
    return gpu.front_end


@pytest.fixture(autouse=True)
def highest() -> Iterator[None]:
    yield
    lt.set_float32_matmul_precision("highest")


def draw(*shape: int, dtype: Any = "float32", seed: int = 0) -> Any:
    return lt.asarray(np.random.default_rng(seed).normal(size=shape).astype("float32")).astype(dtype)


def trained(x: Any, w: Any, **how: Any) -> list[np.ndarray]:
    """A convolution and both its gradients."""
    x, w = x.detach(), w.detach()
    x.requires_grad = w.requires_grad = True
    y = (F.conv1d if x.ndim == 3 else F.conv2d)(x, w, **how)
    (y * y).sum().backward()
    lt.sync()
    return [t.detach().astype("float32").numpy() for t in (y, x.grad, w.grad)]


def compared(x: Any, w: Any, tolerance: float = 1e-5, **how: Any) -> None:
    for got, want in zip(trained(x.to("cuda:0"), w.to("cuda:0"), **how), trained(x, w, **how), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize(
    ("x", "w", "how"),
    [
        ((2, 3, 9, 8), (4, 3, 3, 2), {}),
        ((2, 3, 9, 8), (4, 3, 3, 2), {"dilation": (1, 2)}),
        ((2, 3, 9, 8), (4, 3, 3, 3), {"padding": 1}),
        ((2, 3, 9, 8), (4, 3, 2, 3), {"padding": "same", "dilation": 2}),
        ((2, 3, 30), (4, 3, 5), {"dilation": 3}),
        ((2, 3, 30), (4, 3, 5), {"padding": 2}),
        ((1, 1, 1, 5), (1, 1, 1, 5), {}),
        ((2, 3, 9, 8), (4, 3, 3, 2), {"stride": 2}),
        ((2, 3, 10, 11), (4, 3, 3, 3), {"stride": (3, 2), "padding": 1}),
        ((2, 3, 10, 11), (4, 3, 2, 3), {"stride": (1, 2), "padding": (1, 2), "dilation": (3, 1)}),
        ((2, 4, 9, 8), (6, 2, 3, 3), {"groups": 2}),
        ((2, 4, 9, 8), (6, 2, 3, 2), {"groups": 2, "padding": "same", "dilation": (1, 3)}),
        ((2, 4, 9, 8), (8, 1, 3, 3), {"groups": 4, "padding": 1, "stride": 2}),
        ((2, 4, 9, 8), (4, 1, 3, 3), {"groups": 4, "padding": 2}),
        ((2, 4, 30), (6, 2, 5), {"groups": 2, "padding": 2, "stride": 3}),
        ((2, 4, 9, 8), (6, 2, 1, 1), {"groups": 2, "stride": (2, 1)}),
    ],
)
def test_forward_and_both_gradients(x: Any, w: Any, how: Any, cudnn: FakeCudnn) -> None:
    compared(draw(*x), draw(*w, seed=1), **how)
    plain = how.get("groups", 1) == 1 and how.get("stride", 1) == 1 and x != w
    # An input's gradient is a convolution with the filters turned around where that is one, of more than one place.
    assert sorted(g.what for g in cudnn.runs) == (["fprop", "fprop", "wgrad"] if plain else ["dgrad", "fprop", "wgrad"])
    assert device("cuda:0").cudnn.fallbacks == 0


def test_what_it_is_asked_for(cudnn: FakeCudnn) -> None:
    x, w = draw(2, 3, 9, 8).to("cuda:0"), draw(4, 3, 3, 2).to("cuda:0")
    y = F.conv2d(x, w, dilation=(1, 2))
    assert "cuDNN convolution" in str(y.explain())
    y.numpy()
    (g,) = cudnn.graphs
    assert (g.first.dim, g.first.stride) == ([2, 3, 9, 8], [216, 72, 8, 1])
    assert (g.second.dim, g.second.stride) == ([4, 3, 3, 2], [18, 6, 2, 1])
    assert (g.result.dim, g.result.stride) == ([2, 4, 7, 6], [168, 42, 6, 1])
    assert (g.dilation, g.stride, g.padding) == ([1, 2], [1, 1], [0, 0])


def test_zeros_around_an_image_are_cudnns(cudnn: FakeCudnn) -> None:
    x, w = draw(2, 4, 9, 8).to("cuda:0"), draw(6, 2, 3, 3).to("cuda:0")
    y = F.conv2d(x, w, stride=(2, 1), padding=(2, 1), groups=2)
    what = y.explain()
    assert "cuDNN convolution in 2 groups" in str(what) and len(what.kernels) == 1
    y.numpy()
    (g,) = cudnn.graphs
    assert (g.first.dim, g.stride, g.padding) == ([2, 4, 9, 8], [2, 1], [2, 1])
    x.requires_grad_()
    (F.conv2d(x, w, stride=2, padding=1, groups=2) ** 2).sum().backward()
    assert x.grad is not None
    assert "cuDNN input gradient in 2 groups" in str(x.grad.explain())
    x.grad.numpy()
    found = {g.what: g for g in cudnn.graphs[1:]}
    assert (found["dgrad"].result.dim, found["dgrad"].padding) == ([2, 4, 9, 8], [1, 1])


def test_other_zeros_at_each_end_come_beforehand(cudnn: FakeCudnn) -> None:
    """Of an even window at 'same' padding: one more behind. Not all that cuDNN has takes that."""
    x, w = draw(2, 3, 9, 8), draw(4, 3, 2, 2, seed=1)
    compared(x, w, padding="same")
    assert all(g.padding == [0, 0] for g in cudnn.runs if g.what == "fprop" and g.first.dim[1] == 3)


def test_one_axis_has_another_of_one(cudnn: FakeCudnn) -> None:
    F.conv1d(draw(2, 3, 30).to("cuda:0"), draw(4, 3, 5).to("cuda:0"), dilation=3).numpy()
    (g,) = cudnn.graphs
    assert (g.first.dim, g.second.dim, g.result.dim) == ([2, 3, 1, 30], [4, 3, 1, 5], [2, 4, 1, 18])
    assert g.dilation == [1, 3]


def test_a_geometry_is_planned_once(cudnn: FakeCudnn) -> None:
    w = draw(4, 3, 3, 3).to("cuda:0")
    for i in range(6):
        x = draw(2, 3, 9 + i % 2, 8, seed=i)
        got = F.conv2d(x.to("cuda:0"), w).cpu().numpy()
        np.testing.assert_allclose(got, F.conv2d(x, w.cpu()).numpy(), rtol=1e-5, atol=1e-5)
    assert (len(cudnn.graphs), len(cudnn.runs), cudnn.handles) == (2, 6, 1)


def test_precision_is_that_of_the_run(cudnn: FakeCudnn) -> None:
    x, w = draw(2, 3, 9, 8).to("cuda:0"), draw(4, 3, 3, 2).to("cuda:0")
    for precision in ("highest", "high", "highest", "medium"):
        lt.set_float32_matmul_precision(precision)
        y = F.conv2d(x, w)
        assert ("cuDNN convolution, tf32" in str(y.explain())) == (precision != "highest")
        y.numpy()
        assert cudnn.runs[-1].deselected == set(NEVER) | (set(PRECISE) if precision == "highest" else set())
    assert len(cudnn.graphs) == 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_exact_in_tf32(dtype: str, cudnn: FakeCudnn) -> None:
    compared(draw(2, 3, 9, 8, dtype=dtype), draw(4, 3, 3, 3, dtype=dtype, seed=1), 1e-2, padding=1)
    assert [g.deselected for g in cudnn.runs] == [set(NEVER)] * 3
    y = F.conv2d(draw(2, 3, 9, 8, dtype=dtype).to("cuda:0"), draw(4, 3, 3, 3).to("cuda:0").astype(dtype))
    assert "the operands were halves" in str(y.explain())


def test_a_float32_among_halves_is_not_exact_in_tf32(cudnn: FakeCudnn) -> None:
    F.conv2d(draw(2, 3, 9, 8, dtype="float16").to("cuda:0"), draw(4, 3, 3, 3).to("cuda:0")).numpy()
    assert cudnn.runs[-1].deselected == {*NEVER, *PRECISE}


@pytest.mark.parametrize("fails", ["refusal", "failure"])
def test_what_it_refuses_is_computed_counted_and_said(fails: str, cudnn: FakeCudnn) -> None:
    setattr(cudnn, fails, "no engine for this")
    x, w = draw(2, 3, 9, 8), draw(4, 3, 3, 2, seed=1)
    compared(x, w, dilation=(1, 2))
    compared(draw(2, 3, 30), draw(4, 3, 5, seed=1), padding=2)
    compared(draw(2, 4, 10, 8), draw(6, 2, 3, 3, seed=1), padding=(2, 1), stride=(3, 2), groups=2)
    assert not cudnn.runs
    assert device("cuda:0").cudnn.fallbacks == 9
    text = str(F.conv2d(x.to("cuda:0"), w.to("cuda:0"), dilation=(1, 2)).explain())
    assert "CuPy product over windows" in text
    assert "cuDNN refused it: no engine for this" in text


def test_a_kernel_after_a_convolution_waits_for_it(cudnn: FakeCudnn) -> None:
    x, w, v = draw(2, 3, 9, 8), draw(4, 3, 3, 3, seed=1), draw(5, 4, 2, 2, seed=2)

    def program(x: Any, w: Any, v: Any) -> Any:
        return F.conv2d(F.relu(F.conv2d(x + 1, w)), v).sum((2, 3))

    for i in range(4):
        got = program(x.to("cuda:0") * i, w.to("cuda:0"), v.to("cuda:0")).cpu().numpy()
        np.testing.assert_allclose(got, program(x * i, w, v).numpy(), rtol=1e-5, atol=1e-4)
    assert len(cudnn.runs) == 8


def test_no_elements(cudnn: FakeCudnn) -> None:
    none = draw(0, 3, 9, 8)
    y, _, by_filter = trained(none.to("cuda:0"), draw(4, 3, 3, 2).to("cuda:0"))
    assert y.shape == (0, 4, 7, 7)
    np.testing.assert_array_equal(by_filter, np.zeros((4, 3, 3, 2), np.float32))
    assert not cudnn.graphs


@pytest.mark.parametrize(
    ("dtype", "how"), [("float64", {}), ("float64", {"stride": 2, "padding": 1}), ("int32", {"groups": 2})]
)
def test_others_are_products_over_windows(dtype: str, how: Any, cudnn: FakeCudnn) -> None:
    x, w = draw(2, 4, 9, 8, dtype=dtype), draw(6, 4 // how.get("groups", 1), 3, 3, dtype=dtype, seed=1)
    y = F.conv2d(x.to("cuda:0"), w.to("cuda:0"), **how)
    assert "a convolution over windows: it is not of float32" in str(y.explain())
    np.testing.assert_allclose(y.cpu().numpy(), F.conv2d(x, w, **how).numpy(), rtol=1e-5, atol=1e-4)
    assert not cudnn.graphs


def test_it_can_be_switched_off(cudnn: FakeCudnn) -> None:
    with mock.patch.dict(switches, {"cudnn": False}):
        y = F.conv2d(draw(2, 3, 9, 8).to("cuda:0"), draw(4, 3, 3, 2).to("cuda:0"))
        assert "a convolution over windows without cuDNN: it is switched off" in str(y.explain())
        compared(draw(2, 3, 9, 8), draw(4, 3, 3, 2))
    assert not cudnn.graphs


def test_without_it(gpu: FakeDriver) -> None:
    y = F.conv2d(draw(2, 3, 9, 8).to("cuda:0"), draw(4, 3, 3, 2).to("cuda:0"))
    assert "a convolution over windows without cuDNN: there is none" in str(y.explain())
    compared(draw(2, 3, 9, 8), draw(4, 3, 3, 2))


def attended(q: Any, k: Any, v: Any, **how: Any) -> list[np.ndarray]:
    """Attention and its three gradients."""
    xs = [x.detach() for x in (q, k, v)]
    for x in xs:
        x.requires_grad = True
    y = F.scaled_dot_product_attention(*xs, **how)
    (y * y).sum().backward()
    lt.sync()
    return [t.detach().astype("float32").numpy() for t in (y, *(x.grad for x in xs))]


QKV = ((2, 3, 20, 16), (2, 3, 30, 16), (2, 3, 30, 8))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"scale": 0.7}])
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_attention_of_halves(dtype: str, how: Any, cut: int, cudnn: FakeCudnn) -> None:
    host = [draw(*shape[cut:], dtype=dtype, seed=i) for i, shape in enumerate(QKV)]
    got = attended(*(x.to("cuda:0") for x in host), **how)
    assert [g.what for g in cudnn.runs] == ["sdpa", "sdpa_backward"]
    assert [g.deselected for g in cudnn.runs] == [set(NEVER)] * 2
    assert [g.scale for g in cudnn.runs] == [how.get("scale", 0.25)] * 2
    assert device("cuda:0").cudnn.fallbacks == 0
    for x, y in zip(got, attended(*host, **how), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-2, atol=2e-2 * np.abs(y).max())


def test_attention_is_read_where_it_lies_and_across_a_sync(cudnn: FakeCudnn) -> None:
    x = draw(2, 20, 3, 4, 8, dtype="float16")

    def program(x: Any) -> list[np.ndarray]:
        x = x.detach()
        x.requires_grad = True
        q, k, v = (lt.permute_dims(x[:, :, i], (0, 2, 1, 3)) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v)
        lt.sync()
        (y * y).sum().backward()
        return [t.detach().astype("float32").numpy() for t in (y, x.grad)]

    for got, want in zip(program(x.to("cuda:0")), program(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2 * np.abs(want).max())
    # The sums of rows are made again for a gradient in a later sync.
    assert [g.what for g in cudnn.runs] == ["sdpa", "sdpa", "sdpa_backward"]
    assert [t.stride for t in cudnn.runs[0].given.values()] == [[20 * 96, 8, 96, 1]] * 3


@pytest.mark.parametrize("fails", ["refusal", "failure"])
@pytest.mark.parametrize(("more", "whose"), [(0, "lazyt's attention kernel,"), (256, "CuPy attention")])
def test_attention_that_it_refuses(more: int, whose: str, fails: str, cudnn: FakeCudnn) -> None:
    """lazyt's kernels compute it, or CuPy where they do not have such rows."""
    setattr(cudnn, fails, "no engine for this")
    host = [draw(*shape[:-1], shape[-1] + more, dtype="bfloat16", seed=i) for i, shape in enumerate(QKV)]
    on_gpu = [x.to("cuda:0") for x in host]
    for x, y in zip(attended(*on_gpu, is_causal=True), attended(*host, is_causal=True), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-2, atol=2e-2 * np.abs(y).max())
    assert not cudnn.runs
    assert device("cuda:0").cudnn.fallbacks == 2
    with lt.no_grad():
        text = str(F.scaled_dot_product_attention(*on_gpu, is_causal=True).explain())
    assert whose in text
    assert "cuDNN refused it: no engine for this" in text


def test_attention_says_whose_it_is(cudnn: FakeCudnn) -> None:
    q = draw(2, 2, 9, 8).to("cuda:0")
    assert "lazyt's attention kernel," in str(F.scaled_dot_product_attention(q, q, q).explain())
    h = q.astype("float16")
    assert "cuDNN attention" in str(F.scaled_dot_product_attention(h, h, h).explain())
    mask = lt.asarray(np.ones((9, 9), bool)).to("cuda:0")
    assert "lazyt's attention kernel," in str(F.scaled_dot_product_attention(h, h, h, mask).explain())
    with mock.patch.dict(switches, {"cudnn": False}):
        assert "lazyt's attention kernel," in str(F.scaled_dot_product_attention(h * 2, h, h).explain())


def test_attention_without_elements(cudnn: FakeCudnn) -> None:
    none = draw(0, 3, 20, 16, dtype="float16").to("cuda:0")
    assert [x.shape for x in attended(none, none, none)] == [(0, 3, 20, 16)] * 4
    assert not cudnn.graphs


def test_a_front_end_that_cannot_be_loaded_is_one_error() -> None:
    """Where the front end is missing, and where CuPy finds no cuBLAS (the extra `nvrtc`); CuPy need not be there."""
    driver = object.__new__(drivers.CupyDriver)
    cublas = mock.Mock()
    driver.cuda = mock.Mock(device=mock.Mock(get_cublas_handle=cublas))
    refused = pytest.raises(DeviceError, match=r"cuDNN cannot be loaded .*lazyt\[cudnn\]")
    with mock.patch.dict("sys.modules", {"cudnn": None}), refused:
        driver.cudnn()
    cublas.side_effect = AttributeError("module 'cupy.cuda' has no attribute 'cublas'")
    with mock.patch.dict("sys.modules", {"cudnn": mock.Mock()}), refused:
        driver.cudnn()


# An H100, as cuDNN writes one down.
H100 = {
    "deviceVer": 900, "driverVer": 12090, "cudaRuntimeVer": 12090, "maxGridSize": [2147483647, 65535, 65535],
    "maxThreadsPerBlock": 1024,
    "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": 132, "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000, "l2CacheSize": 52428800, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
    "pciDeviceId": 0, "maxCtasPerSM": 32, "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1,
    "totalGlobalMem": 80 << 30, "cudaDeviceId": 0, "deviceName": "NVIDIA H100 80GB HBM3",
}  # fmt: skip


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize(
    ("image", "filters", "dilations", "strides", "padding"),
    [
        ((2, 3, 9, 8), (4, 3, 3, 2), (1, 2), (1, 1), (0, 0)),
        ((32, 64, 58, 58), (128, 64, 3, 3), (1, 1), (1, 1), (0, 0)),
        ((8, 16, 1, 100), (32, 16, 1, 5), (1, 3), (1, 1), (0, 2)),
        ((32, 3, 224, 224), (64, 3, 7, 7), (1, 1), (2, 2), (3, 3)),
        ((32, 64, 56, 56), (128, 32, 3, 3), (1, 1), (2, 2), (1, 1)),
        ((8, 32, 14, 14), (32, 1, 3, 3), (1, 1), (1, 1), (1, 1)),
        ((2, 4, 9, 8), (6, 2, 3, 2), (2, 1), (3, 2), (2, 1)),
    ],
)
def test_cudnn_itself_has_plans(
    image: Any, filters: Any, dilations: Any, strides: Any, padding: Any, tf32: bool
) -> None:
    """No GPU is needed: cuDNN plans for one that is described to it."""
    module = pytest.importorskip("cudnn", exc_type=(ImportError, OSError))
    try:
        described = module.create_device_properties(json.dumps(H100))
    except (AttributeError, RuntimeError) as error:
        pytest.skip(f"no cuDNN that plans without a device: {error}")
    attrs = Convolution(filters[2:], dilations, strides, image[1] // filters[1], padding)
    places = (image[0], filters[0], *attrs.counts(image[2:]))
    for op in ("convolve", "convolve_filter", "convolve_image"):
        geometry = Geometry(op, image, filters, places, dilations, strides, padding, tf32)
        # What the device would be asked for.
        graph, *_ = by_cudnn.described(module, geometry, device_property=described, sm_version=90, sm_count=132)
        by_cudnn.planned(module, graph, tf32)
        assert graph.get_workspace_size() >= 0


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_cudnn_itself_has_plans_of_attention(half: str, causal: bool) -> None:
    """Forward and gradient, of arrays that lie as a projection gives them."""
    module = pytest.importorskip("cudnn", exc_type=(ImportError, OSError))
    try:
        described = module.create_device_properties(json.dumps(H100))
    except (AttributeError, RuntimeError) as error:
        pytest.skip(f"no cuDNN that plans without a device: {error}")
    shape, row = (8, 12, 1024, 64), (8, 12, 1024, 1)
    lies = shape, (1024 * 3 * 768, 64, 3 * 768, 1)
    dense, lone = ((x, tuple(by_cudnn.dense(x))) for x in (shape, row))
    forward = Attended(False, half, (lies, lies, lies, dense, lone), causal, 0.125)
    back = Attended(True, half, (lies, lies, lies, dense, dense, lone, dense, dense, dense), causal, 0.125)
    for attention in (forward, back):
        try:
            graph, *_ = by_attention.described(
                module, attention, device_property=described, sm_version=90, sm_count=132
            )
        except RuntimeError as error:
            # Up to 1.14 at least the front end asks for a device here, whatever is described to it.
            if "cuda_get_device" in f"{error}":
                pytest.skip(f"{error}")
            raise
        by_cudnn.planned(module, graph, attention.tf32)
        assert graph.get_workspace_size() >= 0
