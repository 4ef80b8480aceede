"""Errors say the name that the user wrote: `transpose: ...`, though the operation recorded is `permute_dims`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lazyt.errors import DTypeError, LazytError

_JOINED = dict.fromkeys(("append", "block", "column_stack", "concatenate", "dstack", "hstack", "vstack"), ("concat",))
# NumPy's names of the inverse functions, and the Array API's: each may record the other.
_INVERSE = {f"arc{f}": f"a{f}" for f in ("cos", "cosh", "sin", "sinh", "tan", "tan2", "tanh")}

# A public function or method -> the names that messages of what it records begin with.
ALIASES: dict[str, tuple[str, ...]] = {
    **_JOINED,
    **{a: (b,) for a, b in _INVERSE.items()},
    **{b: (a,) for a, b in _INVERSE.items()},
    "abs": ("absolute",),
    "absolute": ("abs",),
    "allclose": ("isclose",),
    "amax": ("max",),
    "amin": ("min",),
    "around": ("round",),
    "array": ("asarray",),
    "average": ("mean",),
    "bitwise_invert": ("invert",),
    "bitwise_left_shift": ("left_shift",),
    "bitwise_not": ("bitwise_invert", "invert"),
    "bitwise_right_shift": ("right_shift",),
    "broadcast_arrays": ("broadcast_shapes",),
    "clamp": ("clip",),
    "compress": ("take",),
    "conj": ("conjugate",),
    "conjugate": ("conj",),
    "corrcoef": ("concat", "cov"),
    "cov": ("concat",),
    "cumprod": ("cumulative_prod",),
    "cumsum": ("cumulative_sum",),
    "deg2rad": ("radians",),
    "diag": ("diagonal",),
    "diagflat": ("diag",),
    "digitize": ("searchsorted",),
    "divide": ("true_divide",),
    "divmod": ("floor_divide",),
    "dsplit": ("split",),
    "expand": ("broadcast_to",),
    "extract": ("take",),
    "fft2": ("fftn",),
    "fix": ("trunc",),
    "fliplr": ("flip",),
    "flipud": ("flip",),
    "float_power": ("pow",),
    "full_like": ("full",),
    "hsplit": ("split",),
    "identity": ("eye",),
    "ifft2": ("ifftn",),
    "invert": ("bitwise_invert",),
    "irfft2": ("irfftn",),
    "isneginf": ("signbit",),
    "isposinf": ("signbit",),
    "kl_div": ("kl_div_log",),
    "left_shift": ("bitwise_left_shift",),
    "lexsort": ("argsort",),
    "matvec": ("matmul",),
    "mod": ("remainder",),
    "multi_dot": ("matmul",),
    "norm": ("matrix_norm", "vector_norm"),
    "permute": ("permute_dims",),
    "pow": ("power",),
    "power": ("pow",),
    "rad2deg": ("degrees",),
    "rand": ("random",),
    "randn": ("standard_normal",),
    "remainder": ("mod",),
    "requires_grad_": ("requires_grad",),
    "rfft2": ("rfftn",),
    "right_shift": ("bitwise_right_shift",),
    "sort_complex": ("sort",),
    "tensor": ("asarray",),
    "tobytes": ("numpy",),
    "transpose": ("permute_dims",),
    "true_divide": ("divide",),
    "unsqueeze": ("expand_dims",),
    "vdot": ("vecdot",),
    "vecmat": ("matmul",),
    "view": ("reshape",),
    "vsplit": ("split",),
}
# Those whose third argument is a dtype, where PyTorch's is `keepdim`.
REDUCED = ("mean", "nanmean", "nansum", "prod", "std", "sum", "var")
# Functions whose first argument is a shape: the second is no extent.
SHAPED = ("empty", "ones", "zeros")

# Arguments by PyTorch's name -> by NumPy's.
KEYWORDS = {"dim": "axis", "dims": "axis", "keepdim": "keepdims", "dim0": "axis1", "dim1": "axis2"}
# What has several axes, or two, under other names here.
_SEVERAL = {"dim": "axes", "dims": "axes"}
_TWO = {"dim1": "axis1", "dim2": "axis2"}
_TRANSFORMS = (
    "fft2", "fftn", "fftshift", "ifft2", "ifftn", "ifftshift", "irfft2", "irfftn", "rfft2", "rfftn",
)  # fmt: skip
_OF_FUNCTIONS = dict.fromkeys((*_TRANSFORMS, "rot90", "tensordot"), _SEVERAL) | {"diagonal": _TWO, "trace": _TWO}
# Arguments of PyTorch's that nothing here has -> what to write.
_ELSEWHERE = {
    "requires_grad": "write {name}(...).requires_grad_()",
    "device": "write {name}(...).to(device), or call it in `with lt.device(device):`",
    "layout": "leave it out, as values are always contiguous",
    "memory_format": "leave it out, as values are always contiguous",
    "pin_memory": "leave it out; DataLoader(pin_memory=True) pins batches",
}

_NAMED = re.compile(r"(?:numpy\.)?((?:\w+\.)?)(\w+)(?=: )")
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'$")
_NO_DTYPE = re.compile(r"not a dtype: (\d+)$")


def say_as_written(error: BaseException, name: str) -> None:
    """Put the name of the public function that was called into the message of an error that it raises on purpose."""
    if not isinstance(error, LazytError) or not error.args or not isinstance(error.args[0], str):
        return
    text = error.args[0]
    m = _NAMED.match(text)
    if m is not None and m[2] in ALIASES.get(name, ()):
        error.args = (f"{m[1]}{name}{text[m.end() :]}", *error.args[1:])
    elif text.startswith("axis must be"):
        two = {"max": "maximum", "amax": "maximum", "min": "minimum", "amin": "minimum"}.get(name)
        error.args = (f"{name}: {text}{f'; of two arrays, write lt.{two}(x, y)' if two else ''}", *error.args[1:])
    elif name in REDUCED and text in ("not a dtype: True", "not a dtype: False"):
        error.args = (f"{name}: {text}; keepdims= is given by its name", *error.args[1:])
    elif name in SHAPED and isinstance(error, DTypeError) and (m := _NO_DTYPE.match(text)) is not None:
        error.args = (f"{name}: {text}; the shape is one argument, as in {name}((2, 3))", *error.args[1:])


def keyword_error(error: TypeError, name: str, keywords: Iterable[str]) -> TypeError | None:
    """What to raise for a call of `name` with these keywords that failed: how they are spelled here, if that is it."""
    text = str(error).removeprefix(f"{name}() ")
    if name in SHAPED and "positional argument" in text and "the shape is" not in text:
        return TypeError(f"{name}() {text}: the shape is one argument, as in {name}((2, 3))")
    if name == "transpose" and text.endswith("too many positional arguments"):
        return TypeError(f"transpose() {text}: the axes are one argument, and lt.swapaxes(x, 0, 1) swaps two")
    if (m := _UNEXPECTED.search(text)) is not None and m[1] in _ELSEWHERE and m[1] in keywords:
        return TypeError(f"{name}() {text}: {_ELSEWHERE[m[1]].format(name=name)}")
    spelled = KEYWORDS | _OF_FUNCTIONS.get(name, {})
    meant = [f"{spelled[k]}= for {k}=" for k in keywords if k in spelled]
    if not meant or "argument" not in str(error) or "lazyt spells" in str(error):
        return None
    return TypeError(f"{name}() {text}: lazyt spells it {', '.join(meant)}")
