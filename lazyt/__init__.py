"""lazyt: a NumPy-like tensor library whose operations record, and run when a value is needed.

>>> import lazyt as lt
>>> x = lt.asarray([3.0, 4.0])
>>> y = lt.sqrt((x * x).sum())
>>> y
<lazyt.Tensor shape=() dtype=float32 device=cpu pending: sqrt>
>>> float(y)
5.0
"""

# The families say in their own `__all__` what is public.
from lazyt import autograd
from lazyt.autograd.functional import *
from lazyt.errors import (
    AutogradError,
    AxisError,
    DeviceError,
    DTypeError,
    IndexOutOfRange,
    LazytError,
    LazytWarning,
    NoResult,
    NotOneElement,
    NotSupportedError,
    OutOfMemory,
    ScalarRangeError,
    ShapeError,
    SyncError,
    ThreadError,
    ZeroWeights,
)
from lazyt.functions.activations import *
from lazyt.functions.arithmetic import *
from lazyt.functions.array_info import *
from lazyt.functions.comparison import *
from lazyt.functions.conversion import *
from lazyt.functions.convolution import *
from lazyt.functions.creation import *
from lazyt.functions.data_types import *
from lazyt.functions.elementwise import *
from lazyt.functions.histograms import *
from lazyt.functions.indexing import *
from lazyt.functions.inspection import *
from lazyt.functions.interop import announce
from lazyt.functions.io import *
from lazyt.functions.joining import *
from lazyt.functions.logic import *
from lazyt.functions.losses import *
from lazyt.functions.manipulation import *
from lazyt.functions.nan_reductions import *
from lazyt.functions.normalization import *
from lazyt.functions.operators import attach_methods, attach_operators
from lazyt.functions.ordering import *
from lazyt.functions.padding import *
from lazyt.functions.polynomials import *
from lazyt.functions.products import *
from lazyt.functions.protocols.attach import attach_protocols
from lazyt.functions.quantiles import *
from lazyt.functions.reductions import *
from lazyt.functions.reshaping import *
from lazyt.functions.searching import *
from lazyt.functions.select import *
from lazyt.functions.sets import *
from lazyt.functions.signals import *
from lazyt.functions.sorting import *
from lazyt.functions.special import *
from lazyt.functions.statistics import *
from lazyt.inspect.explain import explain
from lazyt.inspect.pending import pending
from lazyt.inspect.tensor_repr import attach_looks
from lazyt.runtime import memory
from lazyt.runtime.context import *
from lazyt.runtime.device import Device
from lazyt.runtime.tensor import *

attach_looks()
attach_operators()
attach_methods()
attach_protocols()
announce()
del announce, attach_looks, attach_methods, attach_operators, attach_protocols

from lazyt import debug, fft, linalg, nn, optim, random  # noqa: E402 - they need Tensor's operators
from lazyt.functions.protocols.signatures import install  # noqa: E402 - of the functions that are there now

install(globals(), vars(linalg), vars(fft))
del install
