"""Where `lazyt.torch` finds a name: among its own functions, under another name of lazyt's, or under the same one."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

import lazyt as lt
from lazyt.errors import NotSupportedError
from lazyt.ir import dtypes
from lazyt.torch import functions
from lazyt.torch.keywords import of_module, with_numpy_names
from lazyt.torch.promotion import PROMOTED, promoting
from lazyt.tracing import name_hints
from lazyt.tracing.name_hints import FUNCTIONS, IN_FUNCTIONAL

if TYPE_CHECKING:
    from collections.abc import Callable

# PyTorch's name -> lazyt's, of the same arguments and results but for `dim`.
SAME = {
    "eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal", "lt": "less", "le": "less_equal",
    "mul": "multiply", "sgn": "sign", "ger": "outer", "inverse": "linalg.inv", "det": "linalg.det",
    "slogdet": "linalg.slogdet", "pinverse": "linalg.pinv",
    "matrix_power": "linalg.matrix_power", "matrix_exp": "linalg.matrix_exp", "trapz": "trapezoid",
    "row_stack": "vstack", "dropout": "nn.functional.dropout",
    "get_rng_state": "random.get_state", "set_rng_state": "random.set_state", "Generator": "random.Generator",
    "scalar_tensor": "tensor", "dtype": "float32.__class__", "vmap": "func.vmap",
    **{name: f"nn.functional.{name}" for name in IN_FUNCTIONAL},
    "adaptive_max_pool1d": "nn.functional.adaptive_max_pool1d_with_indices",
}  # fmt: skip
DTYPES = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "long": dtypes.int64,
    "int": dtypes.int32, "short": dtypes.int16, "uint8": dtypes.uint8, "cfloat": dtypes.complex64,
    "cdouble": dtypes.complex128,
}  # fmt: skip
# PyTorch's constructors of a dtype.
TYPES = {f"{name}Tensor": dtypes.as_dtype(dtype) for name, dtype in name_hints.TYPES}
# Layouts of memory, which change nothing: values are always contiguous.
FORMATS = frozenset(("channels_last", "channels_last_3d", "contiguous_format", "preserve_format", "strided"))
# Names that are NumPy's alone, or mean something else here and have no function of PyTorch's meaning.
NONE = frozenset(("array", "histogram", "nanmedian", "ndim", "shape", "size"))


@functools.cache
def own(name: str) -> Any:
    """A function of PyTorch's meaning, or None."""
    found = vars(functions).get(name)
    if found is None or name not in functions.__all__:
        return None
    return with_numpy_names(promoting(found) if name in PROMOTED else found)


def every() -> set[str]:
    """All names that `find` knows."""
    return {*functions.__all__, *DTYPES, *TYPES, *SAME, "Size", *FORMATS, *lt.__all__} - NONE


def find(name: str) -> Any:
    """What `torch.name` is here; AttributeError, with what to write, where there is nothing."""
    if (found := own(name)) is not None:
        return found
    if name in DTYPES:
        return DTYPES[name]
    if name in TYPES:
        return _constructor(name)
    if name == "Size":
        return tuple
    if name in FORMATS:
        return name
    if name in NONE:
        raise AttributeError(f"module 'lazyt.torch' has no attribute {name!r}", name=name)
    path = SAME.get(name, name)
    here: Any = lt
    for part in path.split("."):
        if here is lt and part in ("nn", "linalg", "random"):
            here = importlib.import_module(f"lazyt.{part}")
        elif not hasattr(here, part):
            hint = FUNCTIONS.get(name)
            text = f": write {hint}" if hint is not None else ""
            raise AttributeError(f"module 'lazyt.torch' has no attribute {name!r}{text}", name=name)
        else:
            here = getattr(here, part)
    found = of_module(here, name, "lazyt.torch")
    return promoting(found) if name in PROMOTED else found


def _constructor(name: str) -> Callable[..., Any]:
    dtype = TYPES[name]

    def make(*data: Any) -> Any:
        if len(data) == 1 and not isinstance(data[0], int):
            return lt.tensor(data[0], dtype=dtype)
        if data and all(isinstance(n, int) for n in data):
            return lt.empty(data, dtype=dtype)
        raise NotSupportedError(f"{name}: not supported: {data!r}, because values, or extents, are required")

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Values as {dtype}; of extents, memory to be written."
    return make
