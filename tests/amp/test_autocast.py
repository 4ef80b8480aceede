"""Autocast: regions, the lists, gradients, and what a region leaves alone."""

from __future__ import annotations

import json
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import registry
from lazyt.ops import autocast_policies as policies
from lazyt.ops.definition import OPS
from lazyt.tracing.autocast import MARKED, policies as policies_of

F = lt.nn.functional
LISTS = {"cpu": policies.HOSTS, "cuda": policies.GPU}


for _name in lt.__all__:
    getattr(lt, _name)  # what is loaded on first use marks itself then


def _listed() -> list[tuple[str, str, str]]:
    return [(device, policy, name) for device, lists in LISTS.items() for policy in lists for name in lists[policy]]


def test_each_listed_function_is_an_operation_or_a_marked_function_or_is_said_to_be_absent() -> None:
    for device, policy, listed in _listed():
        for name in policies.names_of(listed):
            assert name in OPS or name in MARKED or name in ("reflection_pad", "replication_pad"), (listed, name)
            assert policies_of(device)[name] == policy, (device, listed, name)
    everything = {name for _, _, name in _listed()}
    assert everything >= policies.ABSENT, "absent of no list"
    assert everything >= policies.NAMES.keys(), "named, and of no list"
    assert not [n for n in policies.ABSENT if n in OPS or n in MARKED or hasattr(F, n)], "absent, and there"


def test_each_marked_function_is_listed() -> None:
    named = {n for table in (policies.ON_HOST, policies.ON_GPU) for n in table}
    assert named >= MARKED


@pytest.mark.parametrize("device", LISTS)
def test_the_lists_have_what_pytorch_registers(device: str) -> None:
    # `python -m tools.autocast_dtypes` writes it: with overloads, 127 kernels on the CPU and 119 on CUDA.
    kernels = json.loads((Path(__file__).parents[1] / "golden" / "autocast_kernels.json").read_text())[device]
    listed = [name for names in LISTS[device].values() for name in names]
    assert sorted(listed) == sorted({name.partition(".")[0] for name in kernels})


def test_regions_nest_and_end() -> None:
    x = lt.ones((2, 2))
    with lt.autocast("cpu"):
        assert (x @ x).dtype == lt.bfloat16
        with lt.autocast("cpu", enabled=False):
            assert (x @ x).dtype == lt.float32
            with lt.autocast("cpu", dtype=lt.float16):
                assert (x @ x).dtype == lt.float16
                assert lt.get_autocast_dtype("cpu") == lt.float16
        assert (x @ x).dtype == lt.bfloat16
        assert lt.is_autocast_enabled("cpu")
        assert lt.is_autocast_enabled()
        assert not lt.is_autocast_enabled("cuda")
    assert (x @ x).dtype == lt.float32
    assert not lt.is_autocast_enabled()


def test_a_region_ends_where_an_error_leaves_it() -> None:
    with pytest.raises(lt.ShapeError), lt.autocast("cpu"):
        _ = lt.ones((2, 2)) @ lt.ones((3, 3))
    assert not lt.is_autocast_enabled()


def test_a_region_asks_for_its_own_kind_of_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for GPUs took longer than to record a layer."""
    asked: list[object] = []
    found = registry.device_of

    def device_of(name: object) -> str:
        asked.append(name)
        return found(name)

    monkeypatch.setattr(registry, "device_of", device_of)
    with lt.autocast("cpu"):
        pass
    assert asked == ["cpu"]


def test_a_region_is_a_decorator_too() -> None:
    @lt.amp.autocast("cpu")
    def product(x: lt.Tensor, depth: int = 1) -> lt.Tensor:
        return product(x, depth - 1) if depth else x @ x

    assert product(lt.ones((2, 2))).dtype == lt.bfloat16
    assert not lt.is_autocast_enabled()


def test_a_region_is_of_the_thread_that_enters_it() -> None:
    found = []
    with lt.autocast("cpu"):
        t = threading.Thread(target=lambda: found.append((lt.ones((2, 2)) @ lt.ones((2, 2))).dtype))
        t.start()
        t.join()
    assert found == [lt.float32]


def test_the_same_line_in_and_out_of_a_region() -> None:
    # Recorded twice each, so that what is predicted is taken.
    x = lt.ones((2, 2))
    found = []
    for inside in (True, False, True, False, True):
        with lt.autocast("cpu", enabled=inside):
            y = x @ x
        found.append(str(y.dtype))
        y.numpy()
    assert found == ["bfloat16", "float32"] * 2 + ["bfloat16"]


def test_repeated_programs_are_planned_once() -> None:
    w = lt.tensor(np.eye(3, dtype=np.float32), requires_grad=True)

    def step() -> np.ndarray:
        with lt.autocast("cpu"):
            loss = F.mse_loss(F.relu(lt.ones((2, 3)) @ w) @ w, lt.zeros((2, 3)))
        w.grad = None
        loss.backward()
        return w.grad.numpy()

    expected = step()
    for _ in range(3):
        step()
    with lt.expect(plans=0, compiles=0):
        np.testing.assert_array_equal(step(), expected)


def test_values_are_those_of_casts_written_by_hand() -> None:
    rng = np.random.default_rng(0)
    x, w = (
        lt.asarray(rng.normal(size=(3, 4)).astype(np.float32)),
        lt.asarray(rng.normal(size=(2, 4)).astype(np.float32)),
    )
    b = lt.asarray(rng.normal(size=2).astype(np.float32))
    with lt.autocast("cpu"):
        y = F.linear(x, w, b)
    by_hand = F.linear(*(v.astype(lt.bfloat16) for v in (x, w, b)))
    np.testing.assert_array_equal(y.astype("float32").numpy(), by_hand.astype("float32").numpy())


@pytest.mark.parametrize("inside", [False, True])
def test_gradients_have_the_dtype_of_parameters(inside: bool) -> None:
    model = lt.nn.Sequential(lt.nn.Conv2d(1, 2, 3), lt.nn.Sigmoid(), lt.nn.Flatten(), lt.nn.Linear(8, 3))
    with lt.autocast("cpu"):
        y = model(lt.ones((2, 1, 4, 4)))
        loss = F.cross_entropy(y, lt.zeros(2, dtype="int64"))
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    assert (y.dtype, loss.dtype) == (lt.bfloat16, lt.float32)
    assert {p.grad.dtype for p in model.parameters()} == {lt.float32}
    assert all(float(abs(p.grad).sum()) > 0 for p in model.parameters())


def test_gradients_behind_a_sync_are_those_without() -> None:
    def gradient(sync: bool) -> np.ndarray:
        w = lt.tensor(np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3), requires_grad=True)
        with lt.autocast("cpu"):
            loss = (F.gelu(lt.ones((2, 3)) @ w) @ w).sum()
            if sync:
                lt.sync()
        loss.backward()
        return w.grad.numpy()

    np.testing.assert_allclose(gradient(True), gradient(False), rtol=1e-2)


def test_a_weight_that_is_written_in_a_region_is_cast_again() -> None:
    # PyTorch's cache of casts is stale here, and gives 2.
    w, x = lt.nn.Parameter(lt.ones((1, 1))), lt.ones((1, 2)).T
    with lt.autocast("cpu"):
        first = F.linear(x, w).sum()
        with lt.no_grad():
            w *= 10
        second = F.linear(x, w).sum()
    assert (float(first), float(second)) == (2.0, 20.0)


def test_a_weight_that_is_read_twice_is_cast_once() -> None:
    w = lt.nn.Parameter(lt.ones((64, 64)))
    x = lt.ones((48, 64), dtype=lt.bfloat16)
    lt.sync()
    with lt.autocast("cpu"):
        y = lt.exp(x @ w) @ w
    # The backward needs the cast; the products read the weight as it lies, or the same cast.
    assert str(lt.explain(y)).count("] astype:") == 1
    assert y.dtype == lt.bfloat16


def test_a_region_in_eager_mode_gives_the_same() -> None:
    def program() -> np.ndarray:
        w = lt.tensor(np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3), requires_grad=True)
        with lt.autocast("cpu"):
            loss = F.mse_loss(F.relu(w @ w) @ w, lt.cdist(w, w))
        loss.backward()
        return w.grad.numpy()

    with lt.eager():
        expected = program()
    np.testing.assert_array_equal(program(), expected)


def test_what_autocast_leaves_alone() -> None:
    x = lt.ones((2, 2))
    wide, whole = lt.ones((2, 2), dtype="float64"), lt.ones((2, 2), dtype="int64")
    with lt.autocast("cpu"):
        assert (wide @ wide).dtype == lt.float64
        assert (whole @ whole).dtype == lt.int64
        assert lt.sum(x.astype(lt.bfloat16), dtype=lt.float32).dtype == lt.float32
        # doubles beside an eligible operand stay, and promote
        assert (x @ wide).dtype == lt.float64


def test_in_place_operations_and_those_with_out_are_not_cast() -> None:
    exact = 1 + 2.0**-12  # 1 in bfloat16
    identity = lt.eye(2)
    for inplace in (True, False, True, False):  # the same operands at the same place of a program
        x = lt.full((2, 2), exact)
        lt.sync()
        with lt.autocast("cpu"):
            if inplace:
                x @= identity
                y = x
            else:
                y = x @ identity
        assert (float(y[0, 0]), str(y.dtype)) == ((exact, "float32") if inplace else (1.0, "bfloat16"))
    x = lt.full((2, 2), exact)
    with lt.autocast("cpu"):
        out, given = lt.zeros((2, 2)), lt.zeros(())
        lt.matmul(x, identity, out=out)
        lt.trace(x.astype("float32"), out=given)
        plain = lt.matmul(x, identity, dtype="float32")
    assert (float(out[0, 0]), float(given), float(plain[0, 0])) == (exact, 2 * exact, exact)


def test_arrays_of_numpy_are_cast_as_tensors_are() -> None:
    with lt.autocast("cpu"):
        assert (lt.ones((2, 2)) @ np.ones((2, 2), np.float32)).dtype == lt.bfloat16


def test_promotion_of_concatenated_arrays() -> None:
    a, b = lt.ones(2), lt.ones(2, dtype=lt.bfloat16)
    with lt.autocast("cpu"):
        assert lt.concatenate([a, b]).dtype == lt.float32
        assert lt.stack([b, b]).dtype == lt.bfloat16


def test_checkpoint_records_its_function_again_in_its_region() -> None:
    from lazyt.utils.checkpoint import checkpoint

    w = lt.tensor(np.full((4, 4), 1 / 3, np.float32), requires_grad=True)
    found = []

    def f(x: lt.Tensor) -> lt.Tensor:
        found.append(lt.is_autocast_enabled("cpu"))
        return (x @ w).astype("float32") * 3

    with lt.autocast("cpu"):
        loss = checkpoint(f, lt.tensor(np.ones((2, 4), np.float32), requires_grad=True)).sum()
    loss.backward()
    assert found == [True, True]
    assert w.grad.dtype == lt.float32


def test_vmap_in_a_region() -> None:
    with lt.autocast("cpu"):
        y = lt.vmap(lambda x: x @ lt.ones((3, 2)))(lt.ones((4, 3)))
    assert (y.dtype, y.shape) == (lt.bfloat16, (4, 2))


def test_custom_functions_run_backward_in_the_region_of_their_forward() -> None:
    regions = []

    class Product(lt.autograd.Function):
        @staticmethod
        @lt.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @lt.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            regions.append(lt.is_autocast_enabled("cpu"))
            x, w = ctx.saved_tensors
            return g @ w.T, x.T @ g

    w = lt.tensor(np.ones((2, 2), np.float32), requires_grad=True)
    with lt.autocast("cpu"):
        y = Product.apply(lt.ones((2, 2)), w)
    y.sum().backward()
    assert regions == [True]
    assert not lt.is_autocast_enabled()


def test_bad_arguments() -> None:
    with pytest.raises(TypeError, match="autocast: device_type is a text, such as 'cpu', got 3"):
        lt.autocast(3)  # type: ignore[arg-type]
    with pytest.raises(lt.AutocastError, match="autocast: device_type is 'cpu' or 'cuda', got 'tpu'"):
        lt.autocast("tpu")
    with pytest.warns(UserWarning, match="In CPU autocast, but the target dtype is not supported. Disabling autocast"):
        disabled = lt.autocast("cpu", dtype=lt.float32)
    with disabled:
        assert not lt.is_autocast_enabled("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lt.autocast("cpu", dtype=lt.float32, enabled=False)
