"""`lazyt.autograd`: derivatives under PyTorch's and JAX's names. The engine's modules stand here too.

The public names are those of `lazyt.functions.gradients`, which `lazyt` puts here: what they need is recorded by
functions, which stand on the engine.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyt.functions.gradients import *

__all__: list[str] = []  # filled with the names


def __dir__() -> list[str]:
    return sorted(__all__)
