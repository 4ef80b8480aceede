"""`lazyt.random`: random numbers; see `lazyt/functions/random.py`."""

from lazyt.functions import random as _random
from lazyt.functions.random import *  # noqa: F403  the same names in another place

__all__ = list(_random.__all__)


def __dir__() -> list[str]:
    return sorted(__all__)
