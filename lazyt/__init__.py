"""lazyt: a NumPy-like tensor library whose operations record, and run when a value is needed.

>>> import lazyt as lt
>>> x = lt.asarray([3.0, 4.0])
>>> y = lt.sqrt((x * x).sum())
>>> y
<lazyt.Tensor shape=() dtype=float32 device=cpu pending: sqrt>
>>> float(y)
5.0

Names and meanings are NumPy's, with the Array API's names beside them; gradients and layers are PyTorch's. `help` of
any name has its page, and docs/reference.md lists all.

Tensors
    asarray, array, tensor, from_numpy, from_dlpack     of numbers, lists, NumPy's and other libraries' arrays
    zeros, ones, full, arange, linspace, eye            made from nothing; zeros_like and its kin, of another's shape
    Tensor                                              the class: shape, dtype, device, numpy(), item(), to(), ...
    float32, int64, bool, bfloat16, ...                 dtypes; isdtype, finfo, result_type, can_cast ask about them
    load, save                                          tensors in .npz and .safetensors files

Operations
    add, multiply, exp, sqrt, maximum, where, clip      element by element; the operators record the same
    sum, mean, max, argmax, var, cumsum, median         over axes; nansum and its kin pass over NaN
    reshape, transpose, concatenate, stack, pad, roll   shapes; x[key] reads a view or a copy, and writes in place
    matmul, einsum, tensordot, outer                    products
    sort, argsort, topk, unique, searchsorted           order and search; isin, union1d and the like treat sets
    relu, softmax, cross_entropy, conv2d, layer_norm    what networks are made of

Gradients and modes
    grad, value_and_grad, vjp, custom_vjp, custom_jvp   of functions; x.requires_grad and x.backward() as in PyTorch
    jvp, linearize, jacfwd, jacrev, hessian, hvp, vmap  forward derivatives, Jacobians; a function for many examples
    no_grad, enable_grad, device                        for a block, or as a decorator
    jit                                                 a function that is called again without its Python
    no_sync, expect, eager                              to find syncs, to assert their number, to run at once

Running
    sync                                                compute what is pending now; reading a value does so by itself
    pending, explain, last_sync                         what is recorded, which kernels would run, what ran and why
    set_num_threads, set_float32_matmul_precision       settings; set_float32_convolution_precision, set_flush_denormal
    spelling                                            calls that PyTorch reads in another way are errors

Modules
    linalg, fft, random                                 as NumPy's
    distributions                                       samples, log-probabilities, divergences
    nn, optim                                           layers, losses, initial values; optimizers and schedules
    memory                                              how much memory tensors take, and may take
    data, multiprocessing                               datasets and DataLoader; tensors shared between processes
    library                                             operations and kernels of one's own
    amp                                                 mixed precision: autocast, GradScaler
    backends                                            kinds of devices; lt.npu is that of a plugin called npu
    debug                                               prints and calls of Python within a recorded program
    testing                                             compare a program with NumPy, in every way that lazyt can run it

Errors are of LazytError, and of the built-in class that fits too: ShapeError is a ValueError, DTypeError a TypeError.
"""

import sys as _sys
import typing as _typing
from importlib import import_module as _import_module
from typing import Any as _Any

import numpy as _np

from lazyt import autograd, on_demand as _on_demand

# `as` exports a name for checkers of types. The families say in their own `__all__` what is public.
from lazyt.autograd.functional import *
from lazyt.backends import plugin_names as _plugin_names, plugins as _plugins
from lazyt.backends.registry import is_kind as _is_kind
from lazyt.config import HOST as _HOST
from lazyt.errors import (
    ArgumentError as ArgumentError,
    AutocastError as AutocastError,
    AutogradError as AutogradError,
    AxisError as AxisError,
    DeviceError as DeviceError,
    DistributionError as DistributionError,
    DTypeError as DTypeError,
    IndexOutOfRange as IndexOutOfRange,
    InvalidKey as InvalidKey,
    InvalidWeights as InvalidWeights,
    KernelError as KernelError,
    LazytError as LazytError,
    LazytWarning as LazytWarning,
    NoResult as NoResult,
    NotOneElement as NotOneElement,
    NotSupportedError as NotSupportedError,
    NoView as NoView,
    OutOfMemory as OutOfMemory,
    ScalarRangeError as ScalarRangeError,
    ShapeError as ShapeError,
    StateError as StateError,
    SyncError as SyncError,
    ThreadError as ThreadError,
    UninitializedModule as UninitializedModule,
    ZeroWeights as ZeroWeights,
)
from lazyt.functions.arithmetic import *
from lazyt.functions.comparison import *
from lazyt.functions.conversion import *
from lazyt.functions.creation import *
from lazyt.functions.data_types import *
from lazyt.functions.elementwise import *
from lazyt.functions.indexing import *
from lazyt.functions.interop import announce as _announce
from lazyt.functions.joining import *
from lazyt.functions.late_names import AUTOGRAD as _AUTOGRAD, LATE as _LATE, NUMPYS as _NUMPYS, PLACES as _PLACES
from lazyt.functions.logic import *
from lazyt.functions.manipulation import *
from lazyt.functions.operators import attach_methods as _attach_methods, attach_operators as _attach_operators
from lazyt.functions.ordering import *
from lazyt.functions.products import *
from lazyt.functions.protocols import signatures as _signatures
from lazyt.functions.protocols.attach import attach_protocols as _attach_protocols
from lazyt.functions.reductions import *
from lazyt.functions.searching import *
from lazyt.functions.select import *
from lazyt.functions.sorting import *
from lazyt.functions.statistics import *
from lazyt.inspect.tensor_repr import attach_looks as _attach_looks
from lazyt.runtime.context import *
from lazyt.runtime.device import Device as Device
from lazyt.runtime.tensor import METADATA as _METADATA, Tensor as Tensor
from lazyt.tracing import tracebacks as _tracebacks
from lazyt.tracing.name_hints import missing as _missing

_attach_looks()
_attach_operators()
_attach_methods()
_attach_protocols()
_announce()

if _typing.TYPE_CHECKING:
    from lazyt import (
        amp,
        data,
        debug,
        distributions,
        fft,
        func,
        library,
        linalg,
        memory,
        multiprocessing,
        nn,
        optim,
        random,
        testing,
        utils,
    )
    from lazyt.autograd.custom_rules import *
    from lazyt.functions.activations import *
    from lazyt.functions.adaptive_pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
    from lazyt.functions.array_info import *
    from lazyt.functions.convolution import *
    from lazyt.functions.derivatives import *
    from lazyt.functions.distances import cdist as cdist
    from lazyt.functions.gradients.host_calls import *
    from lazyt.functions.gradients.modes import *
    from lazyt.functions.histograms import *
    from lazyt.functions.inspection import *
    from lazyt.functions.io import *
    from lazyt.functions.losses import *
    from lazyt.functions.nan_reductions import *
    from lazyt.functions.normalization import *
    from lazyt.functions.padding import *
    from lazyt.functions.polynomials import *
    from lazyt.functions.pooling import (
        avg_pool1d as avg_pool1d,
        avg_pool2d as avg_pool2d,
        max_pool1d as max_pool1d,
        max_pool2d as max_pool2d,
    )
    from lazyt.functions.quantiles import *
    from lazyt.functions.reshaping import *
    from lazyt.functions.sampling import *
    from lazyt.functions.sets import *
    from lazyt.functions.signals import *
    from lazyt.functions.special import *
    from lazyt.functions.spelling import *
    from lazyt.functions.vectorize import *
    from lazyt.inspect.explain import explain as explain
    from lazyt.inspect.pending import pending as pending

if _typing.TYPE_CHECKING:
    from lazyt.amp import (
        autocast as autocast,
        get_autocast_dtype as get_autocast_dtype,
        is_autocast_enabled as is_autocast_enabled,
    )

# What not every program needs; each makes its own functions boundaries.
_ON_DEMAND = ("amp", "data", "distributions", "func", "library", "multiprocessing", "nn", "optim", "testing", "utils")
_OF_AMP = ("autocast", "get_autocast_dtype", "is_autocast_enabled")
_MODULES = frozenset(("autograd", "debug", "fft", "linalg", "memory", "random"))
__all__ = sorted({
    *_MODULES,
    *(_n for _n in _PLACES if not _n.startswith("_")),
    *(_n for _n, _o in globals().items() if not _n.startswith("_") and type(_o) is not type(_tracebacks)),
})  # fmt: skip

# Functions with NumPy's signatures besides their own.
_families = (
    "arithmetic", "select", "comparison", "creation", "data_types", "elementwise", "indexing", "joining", "products",
    "logic", "manipulation", "ordering", "reductions", "searching", "sorting", "statistics",
)  # fmt: skip
_own = {
    _n: _f
    for _m in (_sys.modules[f"lazyt.functions.{_f}"] for _f in _families)
    for _n in _m.__all__
    if callable(_f := getattr(_m, _n))
}
_signatures.give_signatures(globals(), _own, _np)
_signatures.give_methods_signatures(globals(), _own)

# Errors end at the user's line.
_tracebacks.guard_functions(globals(), [_n for _n in __all__ if _n in globals()], _signatures.boundary_of)
_tracebacks.guard_methods(Tensor, _METADATA, _signatures.boundary_of)
_tracebacks.guard_methods(Device)


autograd.__all__ = _AUTOGRAD.split()


@_tracebacks.api_boundary
def _of_autograd(name: str) -> _Any:
    """What `lazyt.autograd` offers is loaded at its first use, and stands there then."""
    if name not in autograd.__all__:
        raise AttributeError(f"module 'lazyt.autograd' has no attribute {name!r}")
    module = _on_demand.load("lazyt.functions.gradients")
    space = {"__name__": "lazyt.autograd", **{n: getattr(module, n) for n in autograd.__all__}}
    _signatures.publish(space, autograd.__all__)
    for n in autograd.__all__:
        vars(autograd).setdefault(n, space[n])
    return vars(autograd)[name]


vars(autograd)["__getattr__"] = _of_autograd


@_tracebacks.api_boundary
def __getattr__(name: str) -> _Any:
    if name in _PLACES:
        return _load(name)
    if name in _ON_DEMAND or name in _MODULES:
        return _import_module(f"lazyt.{name}")
    if name == "__version__":
        return globals().setdefault(name, _on_demand.load("importlib.metadata").version("lazyt"))
    if name in _OF_AMP:
        return globals().setdefault(name, getattr(_on_demand.load("lazyt.amp"), name))
    if not name.startswith("_") and _is_kind(name) and name != _HOST:
        return _on_demand.load("lazyt.device_modules").module_of(name)
    raise _missing(name)


def _load(name: str) -> _Any:
    """A public name that is loaded on demand, with all of its module: what another thread put is kept."""
    place = _PLACES[name]
    module = _on_demand.load(place)
    names = _LATE[place].split()
    space = {"__name__": "lazyt", **{n: getattr(module, n) for n in names}}
    _signatures.publish(space, names, _np if place in _NUMPYS else None)
    for n in names:
        globals().setdefault(n, space[n])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*__all__, *_OF_AMP, *_ON_DEMAND})


# Tensors do not look names up, so what a plugin adds to them is there from the beginning.
if _plugins.is_automatic():
    for _kind in _plugin_names.expected():
        _import_module("lazyt.runtime.device_names").announce(_kind)
