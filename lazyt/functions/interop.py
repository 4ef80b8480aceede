"""einops learns of lazyt: its frameworks are the subclasses of one class, so lazyt adds one when einops is there.

einops is not imported for it. If it is imported already the class is made at once, else when its module has been run.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lazyt.functions.conversion import asarray
from lazyt.functions.creation import arange
from lazyt.functions.joining import concat, stack, tile
from lazyt.functions.manipulation import expand_dims
from lazyt.functions.products import einsum
from lazyt.ir import dtypes
from lazyt.runtime.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKENDS = "einops._backends"


def einops_backend(module: ModuleType) -> type:
    """lazyt's subclass of einops' backend class: `rearrange`, `reduce`, `repeat`, `einsum` on tensors, deferred."""
    base: Any = module.AbstractBackend

    class LazytBackend(base):  # type: ignore[misc]
        framework_name = "lazyt"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, Tensor)

        def from_numpy(self, x: Any) -> Tensor:
            return asarray(x)

        def to_numpy(self, x: Tensor) -> Any:
            return x.numpy()

        def arange(self, start: int, stop: int) -> Tensor:
            return arange(start, stop)

        def stack_on_zeroth_dimension(self, tensors: Sequence[Tensor]) -> Tensor:
            return stack(tensors)

        def tile(self, x: Tensor, repeats: tuple[int, ...]) -> Tensor:
            return tile(x, repeats)

        def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
            return concat(tensors, axis=axis)

        def is_float_type(self, x: Tensor) -> bool:
            return dtypes.kind(x.dtype) == "f"

        def add_axis(self, x: Tensor, new_position: int) -> Tensor:
            return expand_dims(x, axis=new_position)

        def einsum(self, pattern: str, *x: Tensor) -> Tensor:
            return einsum(pattern, *x)

    return LazytBackend


class _Waiting:
    """A finder that finds nothing itself: lets the module be found as always, and acts after it has run.

    NOTE: no `importlib.abc.MetaPathFinder`, whose module loads twenty others.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != BACKENDS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if hasattr(loader, "__dict__"):
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                remember(module)

            loader.exec_module = exec_module
        return spec


# The classes made: einops finds them as subclasses, which are held weakly.
_made: list[type] = []


def remember(module: ModuleType) -> None:
    """Make lazyt's backend for this einops."""
    if hasattr(module, "AbstractBackend"):
        _made.append(einops_backend(module))


def announce() -> None:
    """Make lazyt known to einops, now or when it is imported."""
    module = sys.modules.get(BACKENDS)
    if module is not None:
        remember(module)
    elif not any(isinstance(f, _Waiting) for f in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())
