"""`Module.to` and its kin: parameters stay the tensors that they are, and all is converted or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.backends import registry
from lazyt.nn.conversion import replace
from tests.support.interpreted_backend import NAME, InterpretedBackend


@pytest.fixture
def other() -> Iterator[str]:
    registry.register(InterpretedBackend())
    yield NAME
    lt.sync()
    registry.unregister(NAME)


def net() -> nn.Module:
    lt.random.seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def trained(m: nn.Module, optimizer: Any, dtype: str, device: str, sync: bool) -> np.ndarray:
    x = lt.asarray(np.arange(8).reshape(4, 2), dtype=dtype, device=device)
    for _ in range(3):
        optimizer.zero_grad()
        m(x).square().sum().backward()
        optimizer.step()
        if sync:
            lt.sync()
    return m[0].weight.detach().numpy()  # type: ignore[index, no-any-return]


@pytest.mark.parametrize("sync", [False, True])
def test_an_optimizer_made_before_trains_what_was_cast(sync: bool) -> None:
    m = net()
    parameters, state = list(m.parameters()), m.state_dict()
    optimizer = lt.optim.Adam(m.parameters(), lr=0.1)
    if sync:
        lt.sync()
    versions = [p._version for p in parameters]
    m.double()
    assert [id(p) for p in m.parameters()] == [id(p) for p in parameters]
    assert [p._version for p in parameters] == versions
    assert all(p.dtype == np.float64 and p.is_leaf and p.requires_grad for p in parameters)
    assert m[1].running_mean.dtype == np.float64 and m[1].num_batches_tracked.dtype == np.int64  # type: ignore[index]
    assert state["0.weight"].dtype == np.float32, "what was detached before stays with the value that was there"
    late = net().double()
    want = trained(late, lt.optim.Adam(late.parameters(), lr=0.1), "float64", "cpu", sync)
    np.testing.assert_array_equal(trained(m, optimizer, "float64", "cpu", sync), want)


@pytest.mark.parametrize("sync", [False, True])
def test_an_optimizer_made_before_trains_what_was_moved(sync: bool, other: str) -> None:
    m = net()
    first = m[0].weight  # type: ignore[index]
    optimizer = lt.optim.SGD(m.parameters(), lr=0.01)
    m.to(other)
    assert first is m[0].weight and first.device == other  # type: ignore[index]
    late = net()
    want = trained(late, lt.optim.SGD(late.parameters(), lr=0.01), "float32", "cpu", sync)
    np.testing.assert_allclose(trained(m, optimizer, "float32", other, sync), want, rtol=1e-5)


@pytest.mark.parametrize("sync", [False, True])
def test_gradients_and_hooks_go_with_the_parameters(sync: bool) -> None:
    layer, seen = nn.Linear(2, 1), []
    layer.weight.register_hook(lambda g: seen.append(g.dtype))
    layer(lt.ones((3, 2))).sum().backward()
    if sync:
        lt.sync()
    gradient = layer.weight.grad
    layer.to(lt.float64)
    assert layer.weight.grad is gradient and gradient.dtype == np.float64
    layer(lt.ones((3, 2), dtype="float64")).sum().backward()
    assert layer.weight.grad is gradient and gradient.tolist() == [[6.0, 6.0]]
    assert [str(d) for d in seen] == ["float32", "float64"]


@pytest.mark.parametrize("sync", [False, True])
def test_a_graph_of_the_value_before_still_ends_at_the_parameter(sync: bool) -> None:
    layer = nn.Linear(2, 1)
    lt.nn.init.constant_(layer.weight, 3.0)
    loss = layer.weight.square().sum()
    if sync:
        lt.sync()
    layer.double()
    (loss + layer.weight.sum()).backward()
    assert layer.weight.grad is not None and layer.weight.grad.tolist() == [[7.0, 7.0]]


def test_what_is_shared_or_frozen_stays_so() -> None:
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[1].weight = m[0].weight
    m[1].bias.requires_grad_(False)
    frozen = m[1].bias
    m.half()
    assert m[1].weight is m[0].weight and m[1].weight.dtype == np.float16
    assert m[1].bias is frozen and not frozen.requires_grad and frozen.dtype == np.float16


def test_all_is_converted_or_nothing() -> None:
    m = net()
    before = [(id(x), x.dtype) for x in m.state_dict(keep_vars=True).values()]

    def fails(x: lt.Tensor) -> lt.Tensor:
        if x is m[2].weight:  # type: ignore[index]
            raise RuntimeError("no memory")
        return x.detach().astype("float64")

    with pytest.raises(RuntimeError, match="no memory"):
        replace(m, fails)
    assert [(id(x), x.dtype) for x in m.state_dict(keep_vars=True).values()] == before


def test_the_same_dtype_changes_nothing() -> None:
    m = net()
    slots = [p._slot for p in m.parameters()]
    m.to("cpu", lt.float32)
    assert [p._slot for p in m.parameters()] == slots


def test_to_empty_moves_no_values(other: str) -> None:
    m = net()
    weight = m[0].weight  # type: ignore[index]
    assert m.to_empty(device=other)[0].weight is weight and weight.device == other  # type: ignore[index]
    with pytest.raises(lt.DeviceError, match="no such device"):
        m.to_empty(device="tpu")


LAYERS: list[tuple[str, tuple[Any, ...]]] = [
    *((name, (2, 3)) for name in ("Linear", "Embedding", "EmbeddingBag", "RNN", "LSTM", "GRU", "RNNCell", "LSTMCell")),
    *((f"{kind}{n}d", (2, 2, 1)) for kind in ("Conv", "ConvTranspose") for n in (1, 2, 3)),
    *((f"{kind}{n}d", (2,)) for kind in ("BatchNorm", "InstanceNorm") for n in (1, 2, 3)),
    ("GRUCell", (2, 3)), ("Bilinear", (2, 3, 2)), ("PReLU", ()), ("LayerNorm", (2,)), ("RMSNorm", (2,)),
    ("GroupNorm", (2, 4)), ("MultiheadAttention", (4, 2, 0.0, True, True)), ("MultiheadAttention", (4, 2)),
    ("TransformerEncoderLayer", (4, 2, 3)), ("TransformerDecoderLayer", (4, 2, 3)), ("Transformer", (4, 2, 1, 1, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), LAYERS, ids=lambda x: x if isinstance(x, str) else "")
def test_layers_are_made_on_a_device_in_a_dtype(name: str, args: tuple[Any, ...], other: str) -> None:
    made = getattr(nn, name)(*args, device=other, dtype=lt.float64)
    for key, x in made.state_dict().items():
        assert (x.device, x.dtype) == (other, np.int64 if "batches" in key else np.float64), key
    assert all(p.requires_grad for p in made.parameters())
