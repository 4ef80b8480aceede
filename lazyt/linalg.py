"""`lazyt.linalg`: linear algebra; see `lazyt/functions/linalg.py` and `lazyt/functions/matrix_functions.py`."""

import numpy as _np

from lazyt.functions import linalg as _linalg, matrix_functions as _functions
from lazyt.functions.linalg import *  # noqa: F403  the same names in another place
from lazyt.functions.matrix_functions import *  # noqa: F403
from lazyt.functions.protocols.signatures import publish as _publish

__all__ = [*_linalg.__all__, *_functions.__all__]

_publish(globals(), __all__, _np.linalg)


def __dir__() -> list[str]:
    return sorted(__all__)
