"""`lazyt.random`: random numbers; see `lazyt/functions/random.py`."""

from lazyt.functions import random as _random
from lazyt.functions.protocols.signatures import publish as _publish
from lazyt.functions.random import *  # noqa: F403  the same names in another place
from lazyt.tracing.tracebacks import guard_methods as _guard_methods

__all__ = list(_random.__all__)

_publish(globals(), __all__)
_guard_methods(Generator)  # noqa: F405


def __dir__() -> list[str]:
    return sorted(__all__)
