"""`lazyt.debug`: prints and calls of Python within a recorded program; see `lazyt/functions/debugging.py`."""

from lazyt.functions import debugging as _debugging
from lazyt.functions.debugging import *  # noqa: F403  the same names in another place
from lazyt.functions.protocols.signatures import publish as _publish

__all__ = list(_debugging.__all__)

_publish(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
