"""`lazyt.linalg`: linear algebra; see `lazyt/functions/linalg.py`."""

from lazyt.functions import linalg as _linalg
from lazyt.functions.linalg import *  # noqa: F403  the same names in another place

__all__ = list(_linalg.__all__)


def __dir__() -> list[str]:
    return sorted(__all__)
