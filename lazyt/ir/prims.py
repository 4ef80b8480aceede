"""The primitives of the graph IR: one record each; verify.py has the rules that their nodes obey."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyt.ir import dtypes
from lazyt.ir.records import dataclass

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An operation on values of one shape.

    kinds: the operand dtype kinds it is defined for; result: 'same', 'bool', 'real' (of complex), 'complex', 'uint64'.
    """

    name: str
    arity: int
    kinds: str
    result: str = "same"
    costly: bool = False  # worth storing rather than computing twice
    commutes: bool = False
    linear: tuple[int, ...] = ()  # the operands that it is a linear function of, each with the others as they are


def _table(*records: Elementwise) -> dict[str, Elementwise]:
    return {r.name: r for r in records}


def _unary(names: str, kinds: str, **more: object) -> list[Elementwise]:
    return [Elementwise(n, 1, kinds, **more) for n in names.split()]  # type: ignore[arg-type]


def _binary(names: str, kinds: str, **more: object) -> list[Elementwise]:
    return [Elementwise(n, 2, kinds, **more) for n in names.split()]  # type: ignore[arg-type]


# `select` takes (bool, x, x); `complex` takes its two real parts; `random_bits` takes (seed uint64, counter
# uint64, index int64) and gives uint64. All other operands share one dtype.
ELEMENTWISE = _table(
    *_binary("add mul", "biufc", commutes=True, linear=(0, 1)),
    *_binary("sub", "iufc", linear=(0, 1)),
    *_binary("div", "fc", linear=(0,)),
    *_binary("floordiv rem fmod", "iuf"),
    *_binary("pow", "iufc", costly=True),
    *_binary("maximum minimum", "biuf", commutes=True),
    *_binary("atan2 hypot logaddexp", "f", costly=True),
    *_binary("copysign nextafter", "f"),
    *_binary("eq ne", "biufc", result="bool", commutes=True),
    *_binary("lt le gt ge", "biuf", result="bool"),
    *_binary("and or xor", "biu", commutes=True),
    *_binary("shl shr", "iu"),
    *_unary("neg", "iufc", linear=(0,)),
    *_unary("abs", "iufc", result="real"),
    *_unary("sign", "iufc"),
    *_unary("not", "biu"),
    *_unary("floor ceil trunc round", "f"),
    *_unary("sqrt", "fc"),
    *_unary("rsqrt", "f"),
    *_unary(
        "exp expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh", "fc", costly=True
    ),
    *_unary("exp2 erf erfc erfinv lgamma digamma", "f", costly=True),
    *_unary("isnan isinf isfinite", "fc", result="bool"),
    *_unary("signbit", "f", result="bool"),
    *_unary("real imag", "c", result="real", linear=(0,)),
    *_unary("conj", "c", linear=(0,)),
    Elementwise("complex", 2, "f", result="complex", linear=(0, 1)),
    Elementwise("select", 3, "biufc", linear=(1, 2)),
    Elementwise("random_bits", 3, "u", result="uint64", costly=True),
)

SOURCES = frozenset({"input", "scalar", "constant", "extent"})
MOVEMENT = frozenset({"permute", "reshape", "expand", "slice", "pad", "concat", "window"})
REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"})
CONVOLUTIONS = ("convolve", "convolve_filter", "convolve_image")
OTHERS = frozenset(
    {
        *("cast", "iota", "matmul", *CONVOLUTIONS, "gather", "scatter", "position", "update"),
        *("opaque", "item", "stop", "track", "known", "normalized"),
    }
)


def result_dtype(name: str, dtype: np.dtype) -> np.dtype:
    """The dtype that elementwise `name` gives for operands of `dtype` (the last operand's, for `select`)."""
    match ELEMENTWISE[name].result:
        case "bool":
            return dtypes.bool_
        case "real":
            return dtypes.real_of(dtype)
        case "complex":
            return dtypes.complex_of(dtype)
        case "uint64":
            return dtypes.uint64
        case _:
            return dtype
