"""`import lazyt.torch as torch` is all that a file of PyTorch's changes; a file without it is as it was."""

from __future__ import annotations

import json
import pickle
import sys
import types
from typing import Any

import numpy as np
import pytest

import lazyt as lt


def run(text: str, imports: str = "import lazyt.torch as torch") -> dict[str, Any]:
    """The names of a file of this text."""
    space: dict[str, Any] = {"__name__": "ported"}
    exec(compile(f"{imports}\n{text}", "ported.py", "exec"), space)
    return space


def test_what_both_have_is_read_as_the_file_is_written():
    text = "x = lt.arange(6.0).reshape(2, 3)\na = x.max(1)\nb = x.split(1)\nc = x.std()\nd = x.repeat(2, 1)"
    as_numpy = run(text, "import lazyt as lt")
    ported = run(text, "import lazyt as lt\nimport lazyt.torch as pytorch")
    assert as_numpy["a"].tolist() == [2, 5] and ported["a"].indices.tolist() == [2, 2]
    assert as_numpy["d"].shape == (2, 6) and ported["d"].shape == (4, 3)
    assert as_numpy["c"].item() == pytest.approx(np.arange(6).std())
    assert ported["c"].item() == pytest.approx(np.arange(6).std(ddof=1))
    inside = run("def f(x):\n    return x.transpose(0, 1)", "from lazyt import torch")
    assert inside["f"](lt.ones((2, 3))).shape == (3, 2)  # by the file that calls, not by that which has the tensor


def test_detached_nothing_is_left(torch: Any):
    x = lt.ones((2, 3))
    torch.detach()
    for name in ("eq", "add_", "masked_fill", "data"):
        with pytest.raises(AttributeError, match="lazyt spells it"):
            getattr(x, name)
    assert type(x.size) is int and not hasattr(x, "new_zeros")
    with pytest.raises(TypeError, match="lazyt spells it axis= for dim="):
        x.sum(dim=1)
    torch.attach()
    torch.attach()
    assert x.eq(x).sum(dim=1).tolist() == [3, 3]


def test_the_size_is_a_number_and_a_call():
    x = lt.ones((2, 3))
    assert x.size == 6 and x.size() == (2, 3) and x.size(-1) == 3 and x.size + 1 == 7
    assert json.dumps(x.size) == "6" and type(pickle.loads(pickle.dumps(x.size))) is int
    assert lt.zeros(x.size).reshape(x.size).shape == (6,)
    with pytest.raises(lt.AxisError, match="size: axis 2 is out of bounds for an array of 2 dimensions"):
        x.size(2)


def test_the_version_is_that_of_the_pytorch_that_is_followed(torch: Any):
    """lazyt's own is small, by which programs would take it for an old PyTorch."""
    release, _, local = torch.__version__.partition("+")
    assert tuple(map(int, release.split("."))) == (2, 13, 0) and local == "lazyt"


def test_integers_may_be_floats(torch: Any):
    x = torch.randint(3, 7, (50,), dtype=torch.float32)
    assert x.dtype == torch.float32 and set(x.tolist()) <= {3.0, 4.0, 5.0, 6.0}
    assert torch.randint_like(torch.zeros(4, dtype=torch.float64), 5).dtype == torch.float64


def test_samples_of_given_probabilities(torch: Any):
    g = torch.Generator().manual_seed(3)
    first = torch.bernoulli(torch.full((50,), 0.5, dtype=torch.float64), generator=g)
    again = torch.full((50,), 0.5, dtype=torch.float64).bernoulli(generator=g.manual_seed(3))
    assert g.initial_seed() == 3 and first.dtype == torch.float64 and first.tolist() == again.tolist()
    assert set(first.tolist()) == {0.0, 1.0}
    assert torch.bernoulli(torch.zeros(2, dtype=torch.int32), p=1.0).tolist() == [1, 1]
    with pytest.raises(lt.ShapeError, match=r"bernoulli: a probability in \[0, 1\] is required, got 2"):
        torch.bernoulli(torch.zeros(2), 2.0)
    assert torch.multinomial(torch.tensor([[0.0, 1.0], [2.0, 0.0]]), 1).tolist() == [[1], [0]]
    for bad in ([0.0, 0.0], [[1.0, 0.0], [0.0, 0.0]], [-1.0, 2.0], [float("nan"), 1.0], [float("inf"), 1.0]):
        drawn = torch.multinomial(torch.tensor(bad), 3, replacement=True)
        with pytest.raises(RuntimeError, match="multinomial: weights are finite, none is below 0, and some"):
            drawn.tolist()


def test_functions_that_take_names_are_pickled_by_theirs(torch: Any):
    from lazyt.torch.nn import functional as F

    for f in (F.relu, F.softmax, torch.nn.init.zeros_, torch.exp, torch.matmul, torch.linalg.inv):
        assert pickle.loads(pickle.dumps(f)) is f
    assert F.relu is torch.nn.functional.relu and F.relu is not lt.nn.functional.relu
    assert F.mse_loss is lt.nn.functional.mse_loss  # which takes PyTorch's names as it is


def test_names_of_buffers_and_parameters(torch: Any):
    m = torch.nn.Module()
    m.register_buffer(name="b", tensor=torch.ones(2), persistent=False)
    m.register_parameter(name="p", param=torch.nn.Parameter(torch.ones(2)))
    assert [*m.state_dict()] == ["p"] and m.b.tolist() == [1, 1]


def test_no_exponential_sample_is_zero(torch: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.functions, "rand", lambda *size, **options: lt.zeros(size))
    assert torch.empty(1).exponential_().tolist() == [2.0**-25]


def test_a_tensor_is_a_key_and_tells_what_made_it(torch: Any):
    layer = torch.nn.Linear(2, 2)
    assert {*layer.parameters()} == {layer.weight, layer.bias} and {layer.weight: 1}[layer.weight] == 1
    y = torch.tanh(layer(torch.ones(1, 2)))
    assert layer.weight.grad_fn is None and torch.ones(1).grad_fn is None
    assert repr(y.grad_fn) == "<TanhBackward0>"
    torch.detach()
    with pytest.raises(TypeError, match="unhashable type"):
        hash(y)
    torch.attach()


def test_a_tensor_is_made_by_its_class(torch: Any):
    assert torch.Tensor([1, 2]).dtype == lt.float32 and torch.Tensor(2, 3).shape == (2, 3)
    x = torch.Tensor(np.ones((2, 2)))
    x[0] += 1
    y = (x * 2).requires_grad_()
    (y * y).sum().backward()
    assert x.tolist() == [[2, 2], [1, 1]] and y.grad.tolist() == [[8, 8], [4, 4]]
    torch.detach()
    with pytest.raises(TypeError, match="make tensors with"):
        lt.Tensor([1])
    torch.attach()


def test_layouts_of_memory_change_nothing(torch: Any):
    x = torch.randn(1, 2, 3, 3).to(memory_format=torch.channels_last)
    model = torch.nn.Conv2d(2, 2, 3).to(memory_format=torch.channels_last)
    assert model(x.contiguous(memory_format=torch.contiguous_format)).is_contiguous()


def test_mixed_precision_as_it_was_called(torch: Any):
    scaler = torch.cuda.amp.GradScaler(enabled=torch.cuda.is_available())
    layer = torch.nn.Linear(2, 1)
    opt = torch.optim.SGD(layer.parameters(), lr=0.1)
    with torch.cuda.amp.autocast(enabled=torch.cuda.is_available()):
        loss = layer(torch.ones(1, 2)).sum()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    assert layer.weight.dtype == lt.float32


def test_data_is_the_parameter_s_memory(torch: Any):
    layer = torch.nn.Linear(3, 2)
    layer.weight.data.normal_(0.0, 0.02)
    layer.bias.data.zero_()
    assert layer.bias.tolist() == [0, 0] and abs(layer.weight).max().item() < 0.2
    layer.weight.data = torch.ones(2, 3)
    assert layer.weight.requires_grad and layer(torch.ones(1, 3)).tolist() == [[3, 3]]
    with pytest.raises(lt.ShapeError, match=r"data: float32 \(3,\) does not fit a tensor of float32 \(2, 3\)"):
        layer.weight.data = torch.ones(3)


@pytest.mark.parametrize("synced", [False, True])
def test_data_that_is_assigned_leaves_what_shared_the_memory(synced: bool, torch: Any):
    """As a moving average of weights is put in place, and taken away again."""
    p = torch.nn.Parameter(torch.arange(3.0))
    old, part, loss = p.data, p.detach()[1:], (p[1:] * 2).sum()
    if synced:
        lt.sync()
    p.data = torch.zeros(3)
    assert p.tolist() == [0, 0, 0] and old.tolist() == [0, 1, 2] and part.tolist() == [1, 2]
    old[1] = 7.0
    assert p.tolist() == [0, 0, 0] and part.tolist() == [7, 2]
    p.data = old
    old[0] = 5.0
    assert p.tolist() == [0, 7, 2]
    loss.backward()
    assert p.grad.tolist() == [0, 2, 2] and p.requires_grad and p.is_leaf
    p.grad.data = torch.ones(3)
    assert p.grad.tolist() == [1, 1, 1]


def test_a_view_takes_no_other_data(torch: Any):
    x = torch.zeros(3)
    for view in (x.detach(), x[:2], torch.nn.Parameter(x).data):
        with pytest.raises(lt.NotSupportedError, match="data: not supported: other memory for a view or a detached"):
            view.data = torch.ones(view.shape)
    assert x.tolist() == [0, 0, 0]


def test_a_moving_average_is_put_in_place_and_taken_away(torch: Any):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shadow = {name: p.data.clone() for name, p in model.named_parameters()}
    for _ in range(4):
        optimizer.zero_grad()
        (model(torch.ones(3, 2)) ** 2).mean().backward()
        optimizer.step()
        for name, p in model.named_parameters():
            shadow[name] = 0.5 * p.data + 0.5 * shadow[name]
        own, backup = model.weight.tolist(), {}
        for name, p in model.named_parameters():
            backup[name], p.data = p.data, shadow[name]
        assert model.weight.tolist() == shadow["weight"].tolist() != own
        for name, p in model.named_parameters():
            p.data = backup[name]
        assert model.weight.tolist() == own


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("kind", ["Parameter", "Buffer"])
def test_a_parameter_is_another_tensor_than_what_it_was_made_of(kind: str, synced: bool, torch: Any):
    x = torch.ones(2) * 2
    if synced:
        lt.sync()
    p = getattr(torch.nn, kind)(x)
    y = torch.tensor([1.0, 1.0], requires_grad=True)
    (p * x * y).sum().backward()
    assert p is not x and not x.requires_grad and x.grad is None and y.grad.tolist() == [4, 4]
    assert kind == "Buffer" or p.grad.tolist() == [2, 2]
    x[0] = 5.0
    x += 1.0
    assert x.tolist() == [6, 3] and p.tolist() == [2, 2]
    with torch.no_grad():
        p += 1.0
    assert x.tolist() == [6, 3] and p.tolist() == [3, 3]


def test_namespaces_are_imported_by_pytorch_s_names():
    space = run(
        "x = F.relu(torch.randn(2, 3))\nlayer = nn.Linear(3, 1)\nopt = optim.SGD(layer.parameters(), lr=0.1)\n"
        "plan = StepLR(opt, 1)\nloader = DataLoader(TensorDataset(x, x), batch_size=2)",
        "import lazyt.torch as torch\nimport lazyt.torch.nn as nn\nimport lazyt.torch.nn.functional as F\n"
        "from lazyt.torch import optim\nfrom lazyt.torch.optim.lr_scheduler import StepLR\n"
        "from lazyt.torch.utils.data import DataLoader, TensorDataset\n"
        "from lazyt.torch.utils.data.sampler import Sampler",
    )
    assert [a.shape for a, _ in space["loader"]] == [(2, 3)]
    assert space["nn"].Linear is lt.nn.Linear and isinstance(space["nn"], types.ModuleType)
    assert space["F"].one_hot(lt.asarray([1, 0]), 2).tolist() == [[0, 1], [1, 0]]
    assert space["F"].one_hot(lt.asarray([1])).dtype == lt.int64
    assert {"cat", "randn", "float", "nn", "Tensor", "no_grad"} <= {*dir(space["torch"])}
    assert "Linear" in dir(space["nn"]) and "lazyt.torch.nn.functional" in sys.modules
    model = run("class Net(nn.Module):\n    def forward(self, x):\n        return x.transpose(0, 1)",
                "import lazyt.torch.nn as nn")  # fmt: skip
    assert model["Net"]()(lt.ones((2, 3))).shape == (3, 2), "a file that imports only a part is PyTorch's too"


def test_questions_of_devices_and_settings(torch: Any):
    kind = torch.accelerator.current_accelerator()
    assert (kind is not None) == torch.accelerator.is_available()
    assert torch.accelerator.device_count() >= torch.accelerator.is_available()
    torch.accelerator.synchronize()
    torch.backends.cudnn.benchmark = True
    assert torch.backends.cudnn.benchmark and not torch.backends.mps.is_available()
    torch.backends.cudnn.benchmark = False
    with pytest.raises(lt.NotSupportedError, match=r"backends\.cudnn: not supported: speed, because no plan reads it"):
        torch.backends.cudnn.speed = True
    assert run("import lazyt.torch.backends.cudnn as cudnn")["cudnn"] is torch.backends.cudnn
    with pytest.raises(lt.NotSupportedError, match="DataParallel: not supported: a model on several devices"):
        run("import lazyt.torch.nn.parallel as parallel\nparallel.DataParallel(None)")
    torch.set_default_dtype(torch.float32)
    with pytest.raises(lt.NotSupportedError, match="set_default_dtype: not supported: float64"):
        torch.set_default_dtype(torch.float64)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("torch.ones(4).split([1, 2])", r"split: the sizes \[1, 2\] are 3 together, and axis 0 has 4"),
        ("torch.linalg.matrix_norm(torch.ones(2, 2), dim=0)", "matrix_norm: two axes are required, got dim=0"),
        ("torch.linalg.solve(torch.ones(2, 2), torch.ones(2), left=False)", "solve: with left=False matrices are req"),
        ("torch.linalg.vector_norm(torch.ones(2), dim=1)", "vector_norm: axis 1 is out of bounds"),
        ("torch.fft.fft(torch.ones(2), dim=1)", "fft: axis 1 is out of bounds"),
        ("torch.cross(torch.ones(2), torch.ones(2))", r"cross: an axis of 3 elements is required, got shape \(2,\)"),
        ("torch.trace(torch.ones(2))", "trace: 2 dimensions are required, got 1"),
        ("torch.tensor(3.0).sum(1)", "sum: axis 1 is out of bounds"),
        ("torch.ones(4).squeeze(1)", "squeeze: axis 1 is out of bounds for an array of 1 dimensions"),
        ("torch.ones(4).narrow(1, 0, 1)", "narrow: axis 1 is out of bounds for an array of 1 dimensions"),
        ("torch.ones(4).chunk(0)", "chunk: at least one part is required, got 0"),
        ("torch.ones(4).narrow(0, 2, 3)", "narrow: 3 elements from 2 on are not within axis 0 of 4"),
        ("torch.ones(4).kthvalue(5)", "kthvalue: k is between 1 and 4, got 5"),
        ("torch.ones(2, 2).mm(torch.ones(2))", "mm: 2 and 2 dimensions are required, got 2 and 1"),
        ("torch.ones(2, 2, 2).t()", "t: at most 2 dimensions are allowed, got 3"),
        ("torch.ones(6).unflatten(0, (4, -1))", r"unflatten: axis 0 of 6 elements has not the sizes \(4, -1\)"),
        ("torch.randint(3)", r"randint: a size is required, as in randint\(10, \(3,\)\)"),
        ("torch.div(torch.ones(2), 2, rounding_mode='up')", "div: rounding_mode is None, 'floor' or 'trunc', got 'up'"),
        ("torch.nanmedian(torch.ones(2))", "module 'lazyt.torch' has no attribute 'nanmedian'"),
        ("torch.ones(2).scatter(0, torch.tensor([0]))", "scatter: either src or value is required"),
        ("torch.exp(inputs=torch.ones(2))", r"exp\(\)"),
        ("torch.matmul(torch.ones(2), torch.ones(2), other=torch.ones(2))", "unexpected keyword argument 'other'"),
        ("torch.svd(torch.ones(2, 2))", "module 'lazyt.torch' has no attribute 'svd': write lt.linalg.svd"),
    ],
)
def test_errors_end_at_the_line(call: str, message: str):
    with pytest.raises((lt.LazytError, AttributeError, TypeError), match=message) as caught:
        run(call)
    assert str(caught.traceback[-1].path) == "ported.py"


PROGRAM = """
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.fc1 = torch.nn.Linear(4 * 4 * 4, 16)
        self.fc2 = torch.nn.Linear(16, 3)
    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        x = x.view(x.size(0), -1)
        x = torch.relu(self.fc1(x))
        return torch.nn.functional.log_softmax(self.fc2(x), dim=1)
net = Net()
with torch.no_grad():
    for p in net.parameters():
        p.copy_(torch.linspace(-0.3, 0.3, p.numel()).view_as(p))
opt = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
data = torch.sin(torch.arange(8 * 64.0)).view(8, 1, 8, 8)
target = torch.arange(8) % 3
losses = []
for step in range(12):
    opt.zero_grad()
    out = net(data)
    loss = torch.nn.functional.nll_loss(out, target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    losses.append(loss.item())
pred = out.argmax(dim=1, keepdim=True)
right = pred.eq(target.view_as(pred)).sum().item()
best, where = out.max(1)
"""
# What PyTorch 2.13 gives for the program above.
LOSSES = (
    5.285665, 1.885336, 1.179516, 1.088959, 1.086929, 1.108334, 1.106807, 1.117878, 1.084865, 1.084986, 1.08575,
    1.086273,
)  # fmt: skip


def test_a_model_trains_as_in_pytorch():
    space = run(PROGRAM)
    np.testing.assert_allclose(space["losses"], LOSSES, rtol=2e-4)
    assert space["where"].tolist() == space["pred"].squeeze(1).tolist()


def test_newaxis_is_none(torch: Any):
    assert torch.newaxis is None and torch.ones(2)[torch.newaxis].shape == (1, 2)
