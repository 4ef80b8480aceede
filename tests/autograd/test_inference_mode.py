"""`inference_mode`: PyTorch's rules for what is made in it, wherever the program is synced.

What PyTorch 2.13 does stands row by row; each row is a program as source text.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import lazyt as lt
from tests.support.synced_programs import REGIMES, check, run

# Values of each kind: a leaf, a plain one, and what is made in the mode of both.
MADE = """\
w = lt.tensor([1.0, 2.0, 3.0], requires_grad=True)
b = lt.ones(3) + 0
with lt.inference_mode():
    x = w * 2
    v = b[1:]
    z = x[1:]
    c = lt.ones(3)
"""
SAVED = r"multiply: Inference tensors cannot be saved for backward \(here operand \d\). Please do not use Tensors created in "
WRITTEN = "Inplace update to inference tensor outside InferenceMode is not allowed"
VIEWED = "view was created in inference mode and is being modified inplace in normal mode"


class Keeps(lt.autograd.Function):
    """Saves both of its inputs."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, y = ctx.saved_tensors
        return grad * y, grad * x


# A pattern is what the error says; a dict what holds at the end.
ROWS: dict[str, tuple[str, Any]] = {
    "what is made": (
        "", {"x.is_inference()": True, "v.is_inference()": False, "z.is_inference()": True, "c.is_inference()": True,
             "w.is_inference()": False, "x.requires_grad": False, "x": [2.0, 4.0, 6.0]}),
    "saved": ("y = x * w", SAVED),
    "saved as the other operand": ("y = w * x", SAVED),
    "a view of it saved": ("y = w[1:] * z", SAVED),
    "a view of it that is made outside": ("y = w[1:] * x[1:]", SAVED),
    "saved by a Function": ("y = Keeps.apply(w * 1, x)", "Keeps: Inference tensors cannot be saved for backward"),
    "not saved": ("y = x + w\ny.sum().backward()", {"w.grad": [1.0] * 3, "y.is_inference()": False, "y": [3.0, 6.0, 9.0]}),
    "used without gradients": ("y = x * b", {"y.is_inference()": False, "y": [2.0, 4.0, 6.0]}),
    "what is made of it may be saved": ("y = lt.exp(x * 0) * w\ny.sum().backward()", {"w.grad": [1.0] * 3}),
    "a clone may be saved": ("k = x.clone()\n(k * w).sum().backward()", {"w.grad": [2.0, 4.0, 6.0], "k.is_inference()": False}),
    "a view of a normal tensor may be saved": ("(v * w[1:]).sum().backward()", {"w.grad": [0.0, 1.0, 1.0]}),
    "detached it still is one": ("k = x.detach()", {"k.is_inference()": True}),
    "written": ("x += 1", WRITTEN),
    "a part of it written": ("x[0] = 1.0", WRITTEN),
    "written through a view": ("z += 1", WRITTEN),
    "written through a view that is made outside": ("k = x[:1]\nk += 1", WRITTEN),
    "written under no_grad": ("with lt.no_grad():\n    x += 1", WRITTEN),
    "written under a mask": ("x[x > 1] = 0.0", WRITTEN),
    "written by out=": ("lt.add(b, 1.0, out=x)", WRITTEN),
    "a gradient written into it": ("c *= w", WRITTEN),
    "written in the mode": (
        "with lt.inference_mode():\n    x += 1\n    x[0] = 0.0\n    z *= 2", {"x": [0.0, 10.0, 14.0], "x.is_inference()": True}),
    "a normal tensor written in the mode": (
        "with lt.inference_mode():\n    b += 1\n    v *= 2\n    w += 1",
        {"b": [2.0, 4.0, 4.0], "b.is_inference()": False, "w.is_leaf": True, "w.requires_grad": True, "w": [2.0, 3.0, 4.0]}),
    "what was written in the mode may be saved": (
        "with lt.inference_mode():\n    b += 1\n(b * w).sum().backward()", {"w.grad": [2.0] * 3}),
    "written into a normal tensor": ("b += x\n(b * w).sum().backward()", {"w.grad": [3.0, 5.0, 7.0], "b.is_inference()": False}),
    "a view of a normal tensor written": ("v += 1", {"b": [1.0, 2.0, 2.0]}),
    "a view of what has a graph written": ("m = w * 1\nwith lt.inference_mode():\n    k = m[1:]\nk += 1", VIEWED),
    "a view of a leaf written": ("with lt.inference_mode():\n    k = w[1:]\nk += 1", VIEWED),
    "that under no_grad": (
        "m = w * 1\nwith lt.inference_mode():\n    k = m[1:]\nwith lt.no_grad():\n    k += 1", {"m": [1.0, 3.0, 4.0]}),
    "gradients asked of it": (
        "x.requires_grad_()", "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed"),
    "a parameter of it": ("lt.nn.Parameter(x)", "Setting requires_grad=True on inference tensor outside InferenceMode"),
    "its version": ("x._version", "Inference tensors do not track version counter"),
    "backward of it": ("x.sum().backward()", "element 0 of tensors does not require grad and does not have a grad_fn"),
    "the mode is left inside": (
        "with lt.inference_mode():\n    with lt.inference_mode(False):\n        y = w * 3\n        on = lt.autograd.is_inference_mode_enabled()\n"
        "    off = lt.autograd.is_inference_mode_enabled()\ny.sum().backward()",
        {"w.grad": [3.0] * 3, "y.is_inference()": False, "on": False, "off": True}),
    "in the mode itself": ("with lt.inference_mode():\n    y = (x * w).sum()", {"y": 28.0, "y.is_inference()": True}),
}  # fmt: skip


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", ROWS)
def test_row(name: str, regime: str) -> None:
    source, expected = ROWS[name]
    if isinstance(expected, dict):
        check(run(MADE + source, regime, Keeps=Keeps), expected)
        return
    for _ in range(2):  # what was refused is refused again
        with pytest.raises(lt.AutogradError) as caught:
            run(MADE + source, regime, Keeps=Keeps)
        assert re.search(expected, str(caught.value)), str(caught.value)
        lt.sync()


def test_the_same_line_with_normal_and_inference_tensors() -> None:
    """A program that is known with normal tensors is another one with inference tensors, in either order."""
    w = lt.tensor([1.0, 2.0], requires_grad=True)

    def product(x: Any) -> Any:
        return (x * w).sum()

    def normal() -> Any:
        return lt.ones(2) * 3

    inferred = lt.inference_mode()(normal)
    for k in range(6):
        x = normal() if k % 2 else inferred()
        lt.sync()
        assert x.is_inference() == (k % 2 == 0)
        if k % 2:
            assert product(x).item() == 9.0
        else:
            with pytest.raises(lt.AutogradError, match="cannot be saved for backward"):
                product(x)
            lt.sync()


def test_loops_in_the_mode_are_replayed() -> None:
    x, w = lt.ones((4, 4)), lt.ones((4, 4))
    with lt.inference_mode():
        for _ in range(8):
            x = lt.tanh(x @ w)
            lt.sync()
            assert x.is_inference()
        assert lt.last_sync().plan_hit and lt.last_sync().reason == ""
    with pytest.raises(lt.AutogradError, match="Inplace update to inference tensor"):
        x += 1


def test_handles_of_the_mode_serve_no_other_program() -> None:
    """What nobody holds after a sync is the handle of the next trace's step, which is no inference tensor."""
    x = lt.ones(4) * 1
    lt.sync()
    for _ in range(8):
        with lt.inference_mode():
            y = x * 2
            y = lt.tanh(y) + 1
        lt.sync()
        for f in (lt.sin, lt.cos):
            z = f(lt.exp(x)) * 2
            z += 1
            assert not z.is_inference()
            lt.sync()
        assert y.is_inference() and not x.is_inference()


def test_writes_that_come_again_are_refused_where_the_tensor_is_of_the_mode() -> None:
    """The same line writes to a normal tensor, many times, and to an inference tensor."""

    def write(x: Any) -> None:
        for i in range(3):
            x[i] = 2.5
        x += 1

    with lt.inference_mode():
        inferred = lt.zeros(4) * 1
    lt.sync()
    for k in range(8):
        x = lt.zeros(4) * 1
        write(x)
        assert x.tolist() == [3.5, 3.5, 3.5, 1.0]
        with pytest.raises(lt.AutogradError, match="Inplace update to inference tensor"):
            write(inferred)
        with lt.inference_mode():
            y = lt.zeros(4) * 1
            write(y)
        if k % 2:
            lt.sync()
        with pytest.raises(lt.AutogradError, match="Inplace update to inference tensor"):
            write(y)
        assert inferred.tolist() == [0.0] * 4 and y.tolist() == [3.5, 3.5, 3.5, 1.0]


def test_leaves_that_come_again_are_refused_where_they_are_of_the_mode() -> None:
    def gradient(x: Any, w: Any) -> Any:
        return ((x * 1.0) * w).sum()

    with lt.inference_mode():
        made = lt.ones(2) * 2
        made.requires_grad = True
    for _ in range(6):
        w = lt.tensor([1.0, 2.0], requires_grad=True)
        loss = gradient(lt.ones(2), w)
        loss.backward()
        assert w.grad is not None and w.grad.tolist() == [1.0, 1.0]
        assert made.is_inference() and not w.is_inference()
        x = lt.tensor([1.0, 1.0], requires_grad=True)
        with pytest.raises(lt.AutogradError, match="cannot be saved for backward"):
            gradient(x, made)
        lt.sync()
