"""`lazyt.fft`: Fourier transforms; see `lazyt/functions/fft.py`."""

from lazyt.functions import fft as _fft
from lazyt.functions.fft import *  # noqa: F403  the same names in another place

__all__ = list(_fft.__all__)


def __dir__() -> list[str]:
    return sorted(__all__)
