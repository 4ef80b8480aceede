"""Operations from outside (`lazyt.library`): kernels, derivatives and rules of one's own.

>>> import lazyt as lt, numpy as np
>>> @lt.library.custom_op("readme::smooth")
... def smooth(x: lt.Tensor, width: int = 3) -> lt.Tensor:
...     return np.convolve(x, np.ones(width, x.dtype) / width, mode="same").astype(x.dtype)
>>> _ = smooth.register_fake(lambda x, width: x)
>>> y = smooth(lt.asarray([3.0, 0.0, 3.0])) * 2
>>> y.is_pending, y.tolist()
(True, [2.0, 4.0, 2.0])
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from lazyt.library.guards import checked
from lazyt.library.native import c_function, cuda_source, kernel_source, llvm_ir
from lazyt.library.operation import OPERATIONS as _OPERATIONS, Fake, Operation, find as _find
from lazyt.library.register import (
    custom_op,
    define,
    elementwise,
    fallback,
    fallback_counts,
    impl,
    register_autocast,
    register_batching,
    register_fake,
    register_jvp,
    register_vjp,
)
from lazyt.library.registration import RegistrationError
from lazyt.library.schema import SchemaError
from lazyt.library.scope import scoped
from lazyt.tracing import tracebacks as _tracebacks

if _TYPE_CHECKING:
    from lazyt.library.checking import OpcheckError, opcheck

__all__ = [
    "Fake",
    "OpcheckError",
    "Operation",
    "RegistrationError",
    "SchemaError",
    "c_function",
    "checked",
    "cuda_source",
    "custom_op",
    "define",
    "elementwise",
    "fallback",
    "fallback_counts",
    "impl",
    "kernel_source",
    "llvm_ir",
    "opcheck",
    "ops",
    "register_autocast",
    "register_batching",
    "register_fake",
    "register_jvp",
    "register_vjp",
    "scoped",
]


class _Namespace:
    """The operations of one namespace."""

    def __init__(self, name: str) -> None:
        self._name = name

    @_tracebacks.api_boundary
    def __getattr__(self, name: str) -> Operation:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return _find(f"{self._name}::{name}")
        except RegistrationError as e:
            raise AttributeError(str(e)) from None

    def __dir__(self) -> list[str]:
        return sorted(name.partition("::")[2] for name in _OPERATIONS if name.startswith(f"{self._name}::"))

    def __repr__(self) -> str:
        return f"lazyt.library.ops.{self._name}: {', '.join(dir(self)) or 'nothing is defined'}"


class _Ops:
    """All operations: `ops.ns.name`. As `torch.ops`."""

    def __getattr__(self, name: str) -> _Namespace:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Namespace(name)

    def __dir__(self) -> list[str]:
        return sorted({name.partition("::")[0] for name in _OPERATIONS})

    def __repr__(self) -> str:
        return f"lazyt.library.ops: {', '.join(dir(self)) or 'nothing is defined'}"


ops: _Any = _Ops()

# NOTE: `lazyt.testing` comes with these.
_ON_DEMAND = ("OpcheckError", "opcheck")
_HERE = [name for name in __all__ if name not in _ON_DEMAND]
_tracebacks.guard_functions(globals(), _HERE)
_tracebacks.guard_classes(globals(), _HERE)


@_tracebacks.api_boundary
def __getattr__(name: str) -> _Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    checking = _import_module("lazyt.library.checking")
    _tracebacks.guard_functions(vars(checking), ["opcheck"])
    globals().update({n: getattr(checking, n) for n in _ON_DEMAND})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
