"""`torch.backends`: settings that programs make, and what they ask for. What speeds PyTorch up is taken and read by
nothing, as plans choose by themselves; what would change values is refused.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from lazyt.errors import NotSupportedError
from lazyt.torch import accelerator


class _Settings(ModuleType):
    """Switches of a library that lazyt does not ask: any of `known` may be set and read."""

    def __init__(self, name: str, available: bool, **known: Any) -> None:
        super().__init__(f"lazyt.torch.backends.{name}")
        self.__dict__.update(known, _name=name, _available=available)

    def is_available(self) -> bool:
        """Whether lazyt runs on it."""
        return bool(self.__dict__["_available"])

    is_built = is_available

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__") and (name not in self.__dict__ or name.startswith("_")):
            raise NotSupportedError(
                f"backends.{self.__dict__['_name']}: not supported: {name}, because no plan reads it"
            )
        self.__dict__[name] = value


cudnn = _Settings(
    "cudnn", False, benchmark=False, deterministic=True, enabled=False, allow_tf32=False, benchmark_limit=10
)  # fmt: skip
mps = _Settings("mps", False)


class _Cuda:
    """`torch.backends.cuda`."""

    def __init__(self) -> None:
        self.matmul = _Settings("cuda.matmul", False, allow_tf32=False, allow_fp16_reduced_precision_reduction=False)

    def is_built(self) -> bool:
        """Whether lazyt can run on GPUs of NVIDIA's here."""
        return accelerator.is_available()


cuda = _Cuda()
