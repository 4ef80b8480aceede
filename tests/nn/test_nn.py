"""Modules: the tree, its state and its hooks; layers against what they are made of."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import LazytError, ShapeError
from lazyt.nn import functional as F

RNG = np.random.default_rng(0)


def tensor(*shape: int) -> Any:
    return lt.asarray(RNG.standard_normal(shape).astype("f4"))


def values(x: Any) -> np.ndarray:
    return np.asarray(x.detach().numpy())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        self.scale = nn.Parameter([2.0])
        self.register_buffer("shift", lt.zeros(2))
        self.register_buffer("scratch", lt.zeros(1), persistent=False)
        self.note = "plain"

    def forward(self, x: Any) -> Any:
        return self.body(x) * self.scale + self.shift


def test_the_tree_is_walked_in_order() -> None:
    net = Net()
    names = ["scale", "body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"]
    assert [n for n, _ in net.named_parameters()] == names
    assert [n for n, _ in net.named_buffers()] == ["shift", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "body", "body.0", "body.1", "body.2"]
    assert list(net.state_dict()) == ["scale", "shift", *names[1:]]
    assert all(p.requires_grad and p.is_leaf for p in net.parameters())
    assert net.get_parameter("body.0.weight") is net.body[0].weight
    assert net.get_submodule("body.2") is net.body[2]
    with pytest.raises(AttributeError, match="no submodule 'nothing'"):
        net.get_submodule("nothing")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        net.nothing  # noqa: B018
    assert "(body): Sequential(" in repr(net) and "(0): Linear(in_features=3" in repr(net)


def test_shared_parameters_occur_once_and_are_saved_twice() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 1
    assert list(net.state_dict()) == ["0.weight", "1.weight"]
    net.double()
    assert net[0].weight is net[1].weight and net[0].weight.dtype == np.float64


def test_assigning_changes_the_kind_of_an_attribute() -> None:
    m = nn.Module()
    m.x = nn.Parameter([1.0])
    m.x = None
    assert list(m.parameters()) == [] and m.x is None
    m.x = nn.ReLU()
    assert [n for n, _ in m.named_children()] == ["x"] and "x" not in m._parameters
    m.y = lt.ones(2)  # a plain tensor is no parameter
    assert list(m.parameters()) == [] and m.y.shape == (2,)
    del m.x
    assert not hasattr(m, "x")
    with pytest.raises(LazytError, match="a name without dots"):
        m.register_buffer("a.b", None)
    with pytest.raises(LazytError, match="'forward' is there already"):
        m.register_parameter("forward", nn.Parameter([1.0]))

    m.w = nn.Parameter([1.0])
    with pytest.raises(LazytError, match="Module: cannot assign 'float' as parameter 'w'"):
        m.w = 0.5

    class Early(nn.Module):
        def __init__(self) -> None:
            self.w = nn.Parameter([1.0])

    with pytest.raises(LazytError, match=r"call super\(\).__init__\(\) before"):
        Early()


def test_state_is_copied_in_place() -> None:
    one, two = Net(), Net()
    x = tensor(5, 3)
    weight = two.body[0].weight
    keys = two.load_state_dict(one.state_dict())
    assert keys == ([], []) and two.body[0].weight is weight
    np.testing.assert_array_equal(values(one(x)), values(two(x)))
    state = dict(one.state_dict())
    state["more"] = state.pop("scale")
    with pytest.raises(
        ShapeError, match=r'Missing key\(s\) in state_dict: "scale"; Unexpected key\(s\) in state_dict: "more"$'
    ):
        two.load_state_dict(state)
    assert two.load_state_dict(state, strict=False) == (["scale"], ["more"])
    with pytest.raises(ShapeError, match=r"size mismatch for shift: .* \(3,\) .* is \(2,\)"):
        two.load_state_dict({**one.state_dict(), "shift": np.zeros(3)})


def test_state_shows_later_changes() -> None:
    m = nn.Linear(1, 1, bias=False)
    state = m.state_dict()
    nn.init.constant_(m.weight, 3.0)
    assert state["weight"].tolist() == [[3.0]] and not state["weight"].requires_grad


def test_hooks_see_and_replace() -> None:
    m = nn.ReLU()
    before = m.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    after = m.register_forward_hook(lambda module, args, out: out * 10)
    assert m(lt.asarray([-2.0, 1.0])).tolist() == [0.0, 20.0]
    before.remove()
    after.remove()
    assert m(lt.asarray([-2.0, 1.0])).tolist() == [0.0, 1.0]


def test_modes_and_apply() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
    assert net.training and not net.eval()[1][0].training and net.train()[1][0].training
    seen: list[str] = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Dropout", "Dropout", "Sequential", "Sequential"]
    linear = nn.Linear(2, 2).requires_grad_(False)
    assert not linear.weight.requires_grad and len(list(linear.parameters())) == 2


def test_casts() -> None:
    net = nn.BatchNorm1d(3).to("float64")
    assert net.weight.dtype == net.running_mean.dtype == np.float64
    assert net.num_batches_tracked.dtype == np.int64 and net.weight.requires_grad and net.weight.is_leaf
    assert net.half().weight.dtype == np.float16
    with pytest.raises(TypeError, match="to: a floating dtype is required"):
        net.to("int32")


def test_containers() -> None:
    layers = nn.ModuleList([nn.ReLU()]).append(nn.Tanh()).extend([nn.GELU()])
    assert len(layers) == 3 and isinstance(layers[-1], nn.GELU) and len(layers[:2]) == 2
    layers.insert(0, nn.SiLU())
    del layers[1]
    assert [type(m).__name__ for m in layers] == ["SiLU", "Tanh", "GELU"]
    with pytest.raises(IndexError, match="index 3 is out of range for 3 modules"):
        layers[3]
    table = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(1, 1)})
    assert list(table) == ["a", "b"] and "a" in table and len(list(table.parameters())) == 2
    named = nn.Sequential({"first": nn.Linear(2, 2), "last": nn.ReLU()})
    assert [n for n, _ in named.named_children()] == ["first", "last"]
    assert len(nn.ParameterList([nn.Parameter([1.0]), nn.Parameter([2.0])])) == 2


def test_gradients_reach_the_parameters() -> None:
    lt.random.seed(0)  # whatever ran before: some initial values are learned nothing from at this rate
    net, rng = Net(), np.random.default_rng(0)
    x, y = lt.asarray(rng.standard_normal((8, 3)).astype("f4")), lt.asarray(rng.integers(0, 2, 8))
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in net.parameters())
    optimizer = lt.optim.SGD(net.parameters(), lr=0.1)
    first = loss.item()
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    assert loss.item() < first
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_gradient_of_cross_entropy() -> None:
    x = lt.tensor(RNG.standard_normal((4, 5)).astype("f4"), requires_grad=True)
    y = np.array([1, 0, -100, 4])
    F.cross_entropy(x, lt.asarray(y)).backward()
    v = values(x).astype("f8")
    p = np.exp(v) / np.exp(v).sum(1, keepdims=True)
    want = (p - np.eye(5)[np.maximum(y, 0)]) * (y >= 0)[:, None] / 3
    np.testing.assert_allclose(values(x.grad), want, atol=1e-6)


def test_convolution_and_pooling_have_gradients() -> None:
    lt.random.seed(0)  # the difference must not cross a kink of relu or pooling, as 4 % of all would
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 1)
    )
    x = lt.tensor(np.random.default_rng(0).standard_normal((2, 1, 4, 4)).astype("f4"), requires_grad=True)
    net(x).sum().backward()
    weight = net[0].weight
    h = 1e-2
    d = np.zeros(weight.shape, "f4")
    d[1, 0, 2, 1] = h
    start = values(weight).copy()
    sums = []
    for step in (d, -d):
        nn.init.zeros_(weight)
        weight.detach()[...] = lt.asarray(start + step)
        sums.append(net(x).sum().item())
    np.testing.assert_allclose(weight.grad[1, 0, 2, 1].item(), (sums[0] - sums[1]) / (2 * h), rtol=0.05, atol=2e-3)


def test_batch_norm_keeps_statistics() -> None:
    x = RNG.standard_normal((6, 3)).astype("f4")
    m = nn.BatchNorm1d(3)
    m(lt.asarray(x))
    m(lt.asarray(x + 1))
    mean, var = np.zeros(3), np.ones(3)
    for v in (x, x + 1):
        mean, var = 0.9 * mean + 0.1 * v.mean(0), 0.9 * var + 0.1 * v.var(0, ddof=1)
    np.testing.assert_allclose(values(m.running_mean), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values(m.running_var), var, rtol=1e-5)
    assert m.num_batches_tracked.item() == 2 and not m.running_mean.requires_grad
    m.eval()
    want = (x - mean) / np.sqrt(var + 1e-5)
    np.testing.assert_allclose(values(m(lt.asarray(x))), want, rtol=1e-4, atol=1e-5)
    average = nn.BatchNorm1d(3, momentum=None)
    average(lt.asarray(x))
    average(lt.asarray(x + 1))
    np.testing.assert_allclose(values(average.running_mean), x.mean(0) + 0.5, rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match="BatchNorm1d: an input of"):
        m(lt.zeros((2, 2, 2, 2)))


def test_dropout_follows_the_mode() -> None:
    m = nn.Dropout(0.5)
    x = lt.ones(1000)
    assert 300 < int((m(x) == 0).sum()) < 700
    m.eval()
    assert m(x) is x


def attention_by_hand(m: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, hidden: Any = None) -> Any:
    e, h = m.embed_dim, m.num_heads
    w, c = values(m.in_proj_weight), values(m.in_proj_bias)
    parts = [x @ w[i * e : (i + 1) * e].T + c[i * e : (i + 1) * e] for i, x in enumerate((q, k, v))]
    heads = [p.reshape(*p.shape[:2], h, e // h).transpose(0, 2, 1, 3) for p in parts]
    s = heads[0] @ heads[1].transpose(0, 1, 3, 2) / np.sqrt(e // h)
    if hidden is not None:
        s = np.where(hidden, -np.inf, s)
    a = np.exp(s - s.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    y = (a @ heads[2]).transpose(0, 2, 1, 3).reshape(q.shape)
    return y @ values(m.out_proj.weight).T + values(m.out_proj.bias), a.mean(1)


def test_multi_head_attention() -> None:
    m = nn.MultiheadAttention(8, 2, batch_first=True)
    x, z = (RNG.standard_normal((2, n, 8)).astype("f4") for n in (5, 6))
    want, weights = attention_by_hand(m, x, x, x)
    t = lt.asarray(x)
    got, a = m(t, t, t)
    np.testing.assert_allclose(values(got), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values(a), weights, rtol=1e-4, atol=1e-5)
    got, none = m(t, t, t, need_weights=False)
    assert none is None
    np.testing.assert_allclose(values(got), want, rtol=1e-4, atol=1e-5)
    want, _ = attention_by_hand(m, x, z, z)
    np.testing.assert_allclose(values(m(t, lt.asarray(z), lt.asarray(z))[0]), want, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_multi_head_attention_masks() -> None:
    m = nn.MultiheadAttention(8, 2, batch_first=True)
    x = RNG.standard_normal((2, 5, 8)).astype("f4")
    t = lt.asarray(x)
    later = ~np.tri(5, dtype=bool)
    padding = np.arange(5) >= np.array([[4], [5]])
    for masks, hidden in (
        ({"attn_mask": lt.asarray(later)}, later),
        ({"is_causal": True}, later),
        ({"key_padding_mask": lt.asarray(padding)}, padding[:, None, None]),
        ({"key_padding_mask": lt.asarray(padding), "is_causal": True}, padding[:, None, None] | later),
        ({"attn_mask": lt.asarray(np.where(later, -np.inf, 0).astype("f4"))}, later),
        ({"attn_mask": lt.asarray(np.stack([later] * 4)), "key_padding_mask": lt.asarray(padding)},
         padding[:, None, None] | later),
    ):  # fmt: skip
        want, _ = attention_by_hand(m, x, x, x, hidden)
        for need in (True, False):
            np.testing.assert_allclose(values(m(t, t, t, need_weights=need, **masks)[0]), want, rtol=1e-4, atol=1e-5)


def test_multi_head_attention_shapes() -> None:
    m = nn.MultiheadAttention(8, 2)
    y, a = m(tensor(5, 2, 8), tensor(6, 2, 8), tensor(6, 2, 8))
    assert y.shape == (5, 2, 8) and a.shape == (2, 5, 6)
    y, a = m(tensor(5, 8), tensor(6, 8), tensor(6, 8), average_attn_weights=False)
    assert y.shape == (5, 8) and a.shape == (2, 5, 6)
    other = nn.MultiheadAttention(8, 2, kdim=3, vdim=4, bias=False, batch_first=True)
    assert other(tensor(2, 5, 8), tensor(2, 6, 3), tensor(2, 6, 4))[0].shape == (2, 5, 8)
    with pytest.raises(ShapeError, match="3 heads do not divide 8 features"):
        nn.MultiheadAttention(8, 3)


def test_layers_call_their_functions() -> None:
    x = tensor(2, 4, 6)
    pairs = [
        (nn.LayerNorm(6), F.layer_norm(x, 6)),
        (nn.RMSNorm((4, 6), eps=1e-6), F.rms_norm(x, (4, 6), eps=1e-6)),
        (nn.GroupNorm(2, 4), F.group_norm(x, 2)),
        (nn.MaxPool1d(2), F.max_pool1d(x, 2)),
        (nn.AvgPool1d(3, 1), F.avg_pool1d(x, 3, 1)),
        (nn.GELU("tanh"), F.gelu(x, "tanh")),
        (nn.ELU(0.5), F.elu(x, 0.5)),
        (nn.Softmax(1), F.softmax(x, axis=1)),
        (nn.LogSoftmax(), F.log_softmax(x, axis=-1)),
        (nn.GLU(), F.glu(x)),
        (nn.PReLU(), F.leaky_relu(x, 0.25)),
        (nn.Hardtanh(-0.5, 0.5), F.hardtanh(x, -0.5, 0.5)),
        (nn.Softplus(2.0), F.softplus(x, 2.0)),
        (nn.LeakyReLU(0.3), F.leaky_relu(x, 0.3)),
        (nn.SiLU(), F.silu(x)),
        (nn.Identity(), x),
        (nn.Unflatten(2, (2, 3)), x.reshape((2, 4, 2, 3))),
    ]
    for module, want in pairs:
        np.testing.assert_allclose(values(module(x)), values(want), rtol=1e-6, atol=1e-7, err_msg=repr(module))
    image = tensor(2, 3, 4, 4)
    assert nn.AdaptiveAvgPool2d(1)(image).shape == (2, 3, 1, 1)
    assert nn.AvgPool2d(2)(image).shape == nn.MaxPool2d(2)(image).shape == (2, 3, 2, 2)
    assert nn.Conv1d(4, 6, 3, groups=2, padding="same")(x).shape == (2, 6, 6)
    with pytest.raises(ShapeError, match="groups do not divide"):
        nn.Conv2d(3, 4, 3, groups=2)


def test_losses_call_their_functions() -> None:
    x, t = tensor(4, 3), tensor(4, 3)
    p, c = F.sigmoid(t), lt.asarray([0, 2, 1, 1])
    w = lt.asarray([1.0, 2.0, 3.0])
    pairs = [
        (nn.MSELoss(), t, F.mse_loss(x, t)),
        (nn.L1Loss(reduction="sum"), t, F.l1_loss(x, t, reduction="sum")),
        (nn.SmoothL1Loss(beta=0.5), t, F.smooth_l1_loss(x, t, beta=0.5)),
        (nn.HuberLoss(delta=2.0), t, F.huber_loss(x, t, delta=2.0)),
        (nn.BCEWithLogitsLoss(pos_weight=w), p, F.binary_cross_entropy_with_logits(x, p, pos_weight=w)),
        (nn.KLDivLoss(reduction="batchmean"), p, F.kl_div(x, p, reduction="batchmean")),
        (nn.NLLLoss(w), c, F.nll_loss(x, c, w)),
        (nn.CrossEntropyLoss(label_smoothing=0.1), c, F.cross_entropy(x, c, label_smoothing=0.1)),
    ]
    for module, target, want in pairs:
        assert module(x, target).item() == want.item()
    assert nn.BCELoss()(p, p).item() == F.binary_cross_entropy(p, p).item()
    assert list(nn.NLLLoss(w).state_dict()) == ["weight"]


def test_initial_values_of_complex_parameters() -> None:
    """As in PyTorch: both parts within the bound of uniform numbers, the variance of normal ones divided in two."""
    layer = nn.Linear(200, 100, dtype=lt.complex64)
    assert layer.weight.dtype == lt.complex64
    w, bound = layer.weight.detach().numpy(), 200**-0.5
    for part in (w.real, w.imag):
        assert 0.99 * bound < np.abs(part).max() <= bound
    w = nn.init.normal_(layer.weight, 2.0, 3.0).detach().numpy()
    np.testing.assert_allclose([w.real.mean(), w.imag.mean()], [2.0, 0.0], atol=0.1)
    np.testing.assert_allclose([w.real.std(), w.imag.std()], 3 * 0.5**0.5, rtol=0.03)
    assert abs(np.corrcoef(w.real.ravel(), w.imag.ravel())[0, 1]) < 0.03


def test_initial_values() -> None:
    w = nn.Parameter(lt.empty((64, 32)))
    bounds = {"kaiming_uniform_": (6 / 32) ** 0.5, "xavier_uniform_": (6 / 96) ** 0.5}
    for name, bound in bounds.items():
        assert getattr(nn.init, name)(w) is w
        a = values(w)
        assert np.abs(a).max() <= bound and np.abs(a).max() > 0.95 * bound
    for name, std in {"kaiming_normal_": (2 / 32) ** 0.5, "xavier_normal_": (2 / 96) ** 0.5}.items():
        getattr(nn.init, name)(w)
        assert abs(values(w).std() / std - 1) < 0.1
    a = values(nn.init.trunc_normal_(w, 1.0, 2.0, 0.0, 1.5))
    assert a.min() >= 0 and a.max() <= 1.5
    a = values(nn.init.orthogonal_(w))
    np.testing.assert_allclose(a.T @ a, np.eye(32), atol=1e-5)
    assert nn.init.eye_(nn.Parameter(lt.empty((2, 2)))).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert w.requires_grad and w.is_leaf
    with pytest.raises(ShapeError, match="at least 2 dimensions are required for fan"):
        nn.init.xavier_uniform_(nn.Parameter(lt.empty(3)))
    table = nn.Embedding(5, 3, padding_idx=-1)
    assert values(table.weight)[4].tolist() == [0.0, 0.0, 0.0] and values(table.weight)[:4].all()
    table(lt.asarray([4, 1])).sum().backward()
    np.testing.assert_array_equal(values(table.weight.grad)[:, 0], [0, 1, 0, 0, 0])


def test_a_module_can_be_copied() -> None:
    net = Net()
    twin = copy.deepcopy(net)
    x = tensor(2, 3)
    np.testing.assert_array_equal(values(net(x)), values(twin(x)))
    nn.init.zeros_(twin.scale)
    assert net.scale.item() == 2.0 and twin.scale.requires_grad


def test_a_parameter_is_not_replaced_by_what_is_not_trained():
    m = nn.Linear(2, 3)
    w = m.weight
    for value in (lt.ones((3, 2)), w * 2, w.detach()):
        with pytest.raises(
            TypeError, match="Linear: cannot assign a tensor that would not be trained as parameter 'we"
        ):
            m.weight = value
    assert m.weight is w and len([*m.parameters()]) == 2
    m.weight = nn.Parameter(lt.ones((3, 2)))
    m.weight.requires_grad_(False)
    m.weight = m.weight  # frozen, and the same
    m.bias = None
    assert [n for n, _ in m.named_parameters()] == ["weight"]
    m.register_parameter("weight", lt.zeros((3, 2)))
    assert m.weight.tolist() == [[0.0, 0.0]] * 3
