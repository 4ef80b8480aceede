"""`lazyt.utils`: what stands beside a model. `lazyt.utils.checkpoint` trades time for memory."""

from lazyt.utils import checkpoint as checkpoint

__all__ = ["checkpoint"]


def __dir__() -> list[str]:
    return sorted(__all__)
