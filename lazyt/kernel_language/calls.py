"""Which functions a kernel may call, and what each means: elementwise ones of three modules, casts, folds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.ir import dtypes
from lazyt.kernel_language.arithmetic import names

# lazyt's names of elementwise operations, by their number of arguments.
_UNARY = names(
    "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh cube degrees digamma erf erfc erfinv exp "
    "exp2 expm1 floor imag isfinite isinf isnan lgamma log log10 log1p log2 logical_not logsigmoid negative positive "
    "radians real reciprocal relu rsqrt sigmoid sign signbit silu sin sinh softsign sqrt square tan tanh trunc"
)
_BINARY = names(
    "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal "
    "floor_divide fmax fmin fmod greater greater_equal heaviside hypot less less_equal logaddexp logical_and "
    "logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract"
)
ARITY = {**dict.fromkeys(_UNARY, 1), **dict.fromkeys(_BINARY, 2)}
# What NumPy and math call some of them.
_ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "conjugate": "conj", "fabs": "abs", "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "power": "pow",
    "true_divide": "divide", "mod": "remainder", "deg2rad": "radians", "rad2deg": "degrees",
}  # fmt: skip
FOLDS = ("sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin")
_FOLD_ALIASES = {"amax": "max", "amin": "min"}
# Python's own functions, by what they are here.
_BUILTINS: dict[Any, tuple[str, str]] = {
    abs: ("elementwise", "abs"), pow: ("elementwise", "pow"), sum: ("fold", "sum"), any: ("fold", "any"),
    all: ("fold", "all"), max: ("extreme", "max"), min: ("extreme", "min"), len: ("len", ""), range: ("range", ""),
    int: ("cast", "int"), float: ("cast", "float"), bool: ("cast", "bool"), round: ("whole", "round"),
    math.floor: ("whole", "floor"), math.ceil: ("whole", "ceil"), math.trunc: ("whole", "trunc"),
    math.prod: ("fold", "prod"), lt.where: ("where", ""), np.where: ("where", ""),
}  # fmt: skip


def meaning(f: Any) -> tuple[str, Any] | None:
    """What calling this means in a kernel: a kind, and which of it; None for what a kernel cannot call."""
    try:
        if f in _BUILTINS:
            return _BUILTINS[f]
    except TypeError:
        return None
    if isinstance(f, type) and issubclass(f, np.generic):
        return ("dtype", dtypes.as_dtype(f))
    name = getattr(f, "__name__", "")
    module = str(getattr(f, "__module__", "")).partition(".")[0]
    if module in ("numpy", "lazyt"):
        fold = _FOLD_ALIASES.get(name, name)
        if fold in FOLDS and f in (getattr(np, name, None), getattr(lt, name, None)):
            return ("fold", fold)
    if isinstance(f, np.ufunc) or module in ("math", "lazyt"):
        found = _ALIASES.get(name, name)
        if found in ARITY and (module != "lazyt" or f is getattr(lt, name, None)):
            return ("elementwise", found)
    return None
