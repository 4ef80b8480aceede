"""What a kind of device adds to tensors: `x.npu()` and `x.is_npu`.

NOTE: a class that looks names up itself would make all attributes slower, so they are there from the moment when the
backend is registered, or its plugin is expected.
"""

from __future__ import annotations

import sys
from typing import Any

from lazyt.ir import dtypes
from lazyt.runtime.tensor import Tensor
from lazyt.tracing import tracebacks

# The names that tensors have already, of plugins that are not loaded yet.
_announced: set[str] = set()


def _mover(kind: str) -> Any:
    def move(self: Tensor, device: int | None = None) -> Tensor:
        return self.to(device=kind if device is None else f"{kind}:{device}")

    move.__name__, move.__qualname__ = kind, f"Tensor.{kind}"
    move.__doc__ = f"This tensor on the current device of {kind!r}, or on the one with this number."
    return tracebacks.api_boundary(move)


def _asker(kind: str) -> Any:
    return property(lambda self: self.device.partition(":")[0] == kind, doc=f"Whether it is on a device of {kind!r}.")


def taken(name: str) -> str:
    """What the name of a backend would hide; '' for nothing."""
    if name in _announced:
        return ""
    found = {
        "the name of a dtype": dtypes.is_name(name),
        f"lazyt.{name}": name in dir(sys.modules["lazyt"]),
        f"Tensor.{name}": hasattr(Tensor, name),
        f"Tensor.is_{name}": hasattr(Tensor, f"is_{name}"),
    }
    return next((what for what, is_taken in found.items() if is_taken), "")


def announce(kind: str) -> None:
    """Tensors get the names of a plugin that is loaded when one of them is called; nothing if these are taken."""
    if kind.isidentifier() and not taken(kind):
        attach(kind)
        _announced.add(kind)


def attach(kind: str) -> None:
    """Tensors get `x.npu()` and `x.is_npu`."""
    setattr(Tensor, kind, _mover(kind))
    setattr(Tensor, f"is_{kind}", _asker(kind))
    _announced.discard(kind)


def detach(kind: str) -> None:
    """Tensors lose these names."""
    delattr(Tensor, kind)
    delattr(Tensor, f"is_{kind}")
