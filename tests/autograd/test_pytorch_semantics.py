"""PyTorch's rules of autograd, row by row: outcome and message, wherever the program is synced.

The rows on writes in place are in test_inplace_legality.py; here are the others of that table, and the messages in
full. What lazyt spells or decides otherwise stands in docs/tutorials/pytorch-users.md.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import lazyt as lt
from tests.support.synced_programs import REGIMES, check, run

W = "w = lt.tensor([1.0, 2.0, 3.0], requires_grad=True)\n"
M = "m = lt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)\n"


class Square(lt.autograd.Function):
    """Saves its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return 2 * grad * ctx.saved_tensors[0]


class Row(lt.autograd.Function):
    """Returns a view of its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x[0]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return lt.stack([grad, grad * 0])


NAMES = {"Square": Square, "Row": Row, "autograd": lt.autograd}

# A pattern is what the error says; a dict what holds at the end.
ROWS: dict[str, tuple[str, Any]] = {
    # 7.1 The version counter
    "fill in place, and nn.init": (
        "a = lt.ones(3) + 0\na[...] = 0.0\na[...] = lt.ones(3)\nlt.nn.init.zeros_(a)", {"a._version": 3}),
    "out= writes": ("a = lt.ones(3) + 0\nlt.add(a, 1.0, out=a)\nnp.add(a, 1.0, out=a)", {"a._version": 2, "a": [3.0] * 3}),
    "a clone has its own count": ("a = lt.ones(3) + 0\nb = a.clone()\na += 1", {"a._version": 1, "b._version": 0}),
    # 7.2 Saved tensors
    "the output of exp": (
        W + "y = w.exp()\ny += 1\ny.sum().backward()",
        r"modified by an inplace operation: float32 \[3\], which is the output of exp \(recorded at .*\), was written "),
    "the input of a Function": (
        W + "a = w * 1\ny = Square.apply(a)\na += 1\ny.sum().backward()",
        r"modified by an inplace operation: float32 \[3\], which is saved tensor 0 of Square, is at version 1; expected "
        "version 0 instead"),
    "relu in place": (W + "a = w * 1\na[...] = lt.relu(a)\na.sum().backward()", {"w.grad": [1.0] * 3}),
    "relu in place over the output of exp": (
        W + "a = w.exp()\na[...] = lt.relu(a)\na.sum().backward()", "modified by an inplace operation"),
    "a pack hook switches the check off": (
        W + "a = w * 1\nwith autograd.saved_tensors_hooks(lambda t: t + 0, lambda t: t):\n    y = Square.apply(a)\n"
        "a += 1\ny.sum().backward()", {"w.grad": [2.0, 4.0, 6.0]}),
    "a pack hook that writes": (
        W + "with autograd.saved_tensors_hooks(lambda t: t.__iadd__(1), lambda t: t):\n    Square.apply(w * 1)",
        "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be "
        "modified by in-place operations as this can lead to unexpected side-effects"),
    "backward twice": (
        W + "y = (w * w).sum()\ny.backward()\ny.backward()",
        r"Trying to backward through the graph a second time \(or directly access saved tensors after they have already "
        r"been freed\). Saved intermediate values of the graph .* are freed when you call .backward\(\). Specify "
        "retain_graph=True if you need to backward through the graph a second time"),
    "backward of a Function twice": (
        W + "y = Square.apply(w * 1).sum()\ny.backward()\ny.backward()",
        r"Trying to backward through the graph a second time \(or directly access saved tensors after they have already "
        "been freed"),
    # 7.3 What may be written
    "a view from within a Function": (
        M + "a = m * 1\nv = Row.apply(a)\nv += 1",
        "Output 0 of Row is a view and is being modified inplace. This view was created inside a custom Function .or "
        "because an input was returned as-is. and the autograd logic to handle view.inplace would override the custom "
        "backward"),
    "a copy of that": (M + "a = m * 1\nv = Row.apply(a).clone()\nv += 1\nv.sum().backward()", {"m.grad": [[1.0] * 2, [0.0] * 2]}),
    "that under no_grad": (M + "a = m * 1\nv = Row.apply(a)\nwith lt.no_grad():\n    v += 1", {"v": [2.0, 3.0]}),
    "the stricter rule comes first": (
        M + "with lt.no_grad():\n    v = m[0]\nv += 1",
        "a view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case "
        "is ambiguous and error-prone, it is forbidden"),
    # 7.5 Neighbours
    "an input that was not used": (
        W + "autograd.grad((w * 2).sum(), lt.ones(3).requires_grad_())",
        r"The differentiated Tensor at index 0 appears to not have been used in the graph. Set allow_unused=True if this "
        "is the desired behavior"),
    "the gradient of a non-leaf is read": (
        W + "a = w * 2\na.sum().backward()\na.grad", "The .grad attribute of a Tensor that is not a leaf Tensor is being"),
    "the gradient of a non-leaf that keeps it": (
        W + "a = w * 2\na.retain_grad()\nbefore = a.grad\na.sum().backward()", {"before": None, "a.grad": [1.0] * 3}),
    "a NaN under anomaly detection": (
        "x = lt.tensor([0.0], requires_grad=True)\n"
        "with autograd.detect_anomaly():\n    (lt.sqrt(x) * 0).sum().backward()",
        "Function 'sqrtBackward' returned nan values in its 0th output"),
    "a hook replaces the gradient": (
        W + "a = w * 2\nhook = a.register_hook(lambda g: g * 5)\nb = a * 3\nb.sum().backward()", {"w.grad": [30.0] * 3}),
    "hooks of one value run in order": (
        W + "a = w * 2\nh1 = a.register_hook(lambda g: g + 1)\nh2 = a.register_hook(lambda g: g * 10)\na.sum().backward()",
        {"w.grad": [40.0] * 3}),
    "a hook of a leaf sees each backward": (
        W + "seen = []\nhook = w.register_hook(lambda g: seen.append(g.tolist()))\n(w * 2).sum().backward()\n(w * 3).sum().backward()",
        {"seen": [[2.0] * 3, [3.0] * 3], "w.grad": [5.0] * 3}),
    "a hook on what needs no gradient": (
        "a = lt.ones(3)\na.register_hook(print)", "cannot register a hook on a tensor that doesn't require gradient"),
    "derivatives of derivatives": (
        W + "(g,) = autograd.grad((w ** 3).sum(), w, create_graph=True)\n(g * g).sum().backward()", {"w.grad": [36.0, 288.0, 972.0]}),
    "the same .grad is kept": (
        W + "(w * 2).sum().backward()\nfirst = w.grad\n(w * 3).sum().backward()", {"w.grad is first": True, "first": [5.0] * 3}),
    "out= where gradients flow is a write": (
        W + "a = lt.zeros(3) + 0\nlt.multiply(w, 2.0, out=a)\na.sum().backward()", {"w.grad": [2.0] * 3}),
}  # fmt: skip


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", ROWS)
def test_row(name: str, regime: str) -> None:
    source, expected = ROWS[name]
    if isinstance(expected, dict):
        check(run(source, regime, **NAMES), expected)
        return
    with pytest.raises((lt.AutogradError, lt.LazytWarning)) as caught:
        run(source, regime, **NAMES)
    assert re.search(expected, str(caught.value)), str(caught.value)
    lt.sync()


@pytest.mark.parametrize("synced", [False, True])
def test_a_gradient_can_be_differentiated_by_a_leaf_that_is_pending(synced):
    w = (lt.ones(3) * 2).requires_grad_()
    if synced:
        lt.sync()
    (g,) = lt.autograd.grad((w**3).sum(), [w], create_graph=True)
    assert g.requires_grad
    g.sum().backward()
    assert w.grad.tolist() == [12.0] * 3


def test_a_gradient_that_a_transform_asks_for_is_nobody_elses():
    w = lt.ones(3) * 2
    assert not lt.grad(lambda w: (w**3).sum())(w).requires_grad
    w.requires_grad_()
    assert lt.grad(lambda v: (w * v**3).sum())(lt.ones(3)).requires_grad
