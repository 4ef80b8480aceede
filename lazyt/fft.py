"""`lazyt.fft`: Fourier transforms; see `lazyt/functions/fft.py`."""

import numpy as _np

from lazyt.functions import fft as _fft
from lazyt.functions.fft import *  # noqa: F403  the same names in another place
from lazyt.functions.protocols.signatures import publish as _publish

__all__ = list(_fft.__all__)

_publish(globals(), __all__, _np.fft)


def __dir__() -> list[str]:
    return sorted(__all__)
