"""What PyTorch's and NumPy's users ask for by names that lazyt has not, and how it is spelled: an error says so.

A name stands in Tensor's class as an object whose lookup fails: `__getattr__`, asked whenever a lookup fails, would
make each lookup that does not slower (83 ns for 10, as CPython then caches no slots).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Never

from lazyt.tracing.tracebacks import api_boundary

_ARITHMETIC = {
    "add": "+", "sub": "-", "subtract": "-", "mul": "*", "multiply": "*", "div": "/", "divide": "/", "true_divide": "/",
    "floor_divide": "//", "remainder": "%", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "bitwise_left_shift": "<<", "bitwise_right_shift": ">>",
}  # fmt: skip
_COMPARISONS = {
    "eq": "==", "ne": "!=", "not_equal": "!=", "lt": "<", "less": "<", "le": "<=", "less_equal": "<=", "gt": ">",
    "greater": ">", "ge": ">=", "greater_equal": ">=",
}  # fmt: skip
_PRODUCTS = {"mm": "@", "bmm": "@", "mv": "@"}

# Methods of PyTorch's that are functions here, of one tensor or of two. It has the first two groups in place too, as
# `name_`, and so it has those methods of both that METHODS lists.
UNARY = (
    "absolute acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_not cosh deg2rad "
    "digamma erfc erfinv exp2 expm1 fix i0 lgamma log10 logical_not nan_to_num negative rad2deg sinc sinh tril triu"
)
BINARY = (
    "arctan2 atan2 copysign float_power fmod gcd heaviside hypot lcm ldexp logical_and logical_or logical_xor nextafter"
)
MORE_UNARY = (
    "angle argwhere corrcoef cov diag diagflat fliplr flipud frexp isneginf isposinf isreal nanmean nanmedian nansum "
    "positive rot90 signbit unique"
)
MORE_BINARY = "allclose bincount cross fmax fmin inner kron logaddexp logaddexp2 outer prelu vdot"
METHODS = (
    "abs ceil cos erf exp floor log log1p log2 reciprocal relu round rsqrt sigmoid sign sin sqrt square tan tanh trunc"
)

_OF_MEMORY = "`x.numpy()`, whose memory has {}"

# A tensor's attributes in PyTorch, or an array's in NumPy -> the like here.
ATTRIBUTES = {
    "base": _OF_MEMORY.format("an owner"),
    "mvlgamma": "`lt.mvlgamma(x, p)`",
    "mvlgamma_": "`x[...] = lt.mvlgamma(x, p)`",
    "polygamma": "`lt.polygamma(n, x)`",
    "polygamma_": "`x[...] = lt.polygamma(n, x)`",
    "byteswap": "`x.numpy().byteswap()`",
    "ctypes": _OF_MEMORY.format("an address"),
    "data_ptr": _OF_MEMORY.format("an address"),
    "flags": _OF_MEMORY.format("flags"),
    "partition": "`lt.partition(x, kth, axis=...)`",
    "put": "`np.put(x, indices, values)`",
    "resize": "`lt.resize(x, shape)`",
    "stride": _OF_MEMORY.format("strides"),
    "strides": _OF_MEMORY.format("strides"),
    "tofile": "`x.numpy().tofile(path)`, or `lt.save({'x': x}, path)`",
    **{name: f"`x {op} y`" for name, op in (_ARITHMETIC | _COMPARISONS | _PRODUCTS).items()},
    **{name + "_": f"`x {op}= y`" for name, op in (_ARITHMETIC | {"pow": "**"}).items()},
    **{name + "_": f"`x[...] = x {op} y`" for name, op in _COMPARISONS.items()},
    **{name + "_": f"`x[...] = x.{name}()`" for name in METHODS.split()},
    **{name + "_": f"`x[...] = lt.{name}(x)`" for name in UNARY.split()},
    **{name + "_": f"`x[...] = lt.{name}(x, y)`" for name in BINARY.split()},
    **{name: f"`lt.{name}(x)`" for name in f"{UNARY} {MORE_UNARY}".split()},
    **{name: f"`lt.{name}(x, y)`" for name in f"{BINARY} {MORE_BINARY}".split()},
    "H": "`x.T.conj()`",
    "addcdiv": "`x + value * y / z`",
    "addcdiv_": "`x += value * y / z`",
    "addcmul": "`x + value * y * z`",
    "addcmul_": "`x += value * y * z`",
    "addmm": "`x + y @ z`",
    "addmv": "`x + y @ z`",
    "addr": "`x + lt.outer(y, z)`",
    "adjoint": "`x.mT.conj()`",
    "baddbmm": "`x + y @ z`",
    "bernoulli": "`lt.random.bernoulli(x)`",
    "byte": "`x.astype(lt.uint8)`",
    "char": "`x.astype(lt.int8)`",
    "cholesky": "`lt.linalg.cholesky(x)`",
    "chunk": "`lt.split(x, n, axis=...)`, for parts that are equal",
    "clamp_": "`x[...] = x.clip(low, high)`",
    "clamp_max": "`x.clip(max=high)`",
    "clamp_max_": "`x[...] = x.clip(max=high)`",
    "clamp_min": "`x.clip(min=low)`",
    "clamp_min_": "`x[...] = x.clip(min=low)`",
    "clip_": "`x[...] = x.clip(low, high)`",
    "contiguous": "nothing, as values are always contiguous, and `x.reshape(shape)` copies a view that is not",
    "copy_": "`x[...] = y`",
    "cumprod_": "`x[...] = x.cumprod(axis)`",
    "cumsum_": "`x[...] = x.cumsum(axis)`",
    "data": "`x.detach()`; to write a parameter, `x[...] = y` under `lt.no_grad()`",
    "det": "`lt.linalg.det(x)`",
    "detach_": "`x = x.detach()`",
    "dim": "`x.ndim`",
    "dist": "`lt.linalg.norm(x - y)`",
    "dsplit": "`lt.dsplit(x, n)`",
    "eig": "`lt.linalg.eig(x)`",
    "element_size": "`x.itemsize`",
    "equal": "`lt.array_equal(x, y)`",
    "expand_as": "`x.broadcast_to(y.shape)`",
    "fill_": "`x[...] = value`",
    "frac": "`x - x.trunc()`",
    "gather": "`x.take_along_axis(index, axis=...)`",
    "ger": "`lt.outer(x, y)`",
    "get_device": "`x.device`",
    "histc": "`lt.histogram(x, bins)`",
    "histogram": "`lt.histogram(x, bins)`",
    "hsplit": "`lt.hsplit(x, n)`",
    "index_add_": "`x[...] = lt.add_at(x, index, values)`",
    "index_copy_": "`x[index] = values`",
    "index_fill_": "`x[index] = value`",
    "index_put_": "`x[index] = values`",
    "index_select": "`x.take(index, axis=...)`",
    "inverse": "`lt.linalg.inv(x)`",
    "is_complex": "`lt.iscomplexobj(x)`",
    "is_contiguous": "nothing, as values are always contiguous, and `x.reshape(shape)` copies a view that is not",
    "is_cpu": "`x.device`",
    "is_cuda": "`x.device`",
    "is_floating_point": "`lt.isdtype(x.dtype, 'real floating')`",
    "is_nonzero": "`bool(x)`",
    "is_same_size": "`x.shape == y.shape`",
    "kthvalue": "`lt.sort(x, axis=-1)[..., k - 1]`",
    "lerp": "`x + weight * (y - x)`",
    "lerp_": "`x += weight * (y - x)`",
    "logdet": "`lt.linalg.slogdet(x)[1]`",
    "logit": "`lt.log(x / (1 - x))`",
    "lstsq": "`lt.linalg.lstsq(x, y)`",
    "mH": "`x.mT.conj()`",
    "masked_fill": "`lt.where(mask, value, x)`",
    "masked_fill_": "`x[mask] = value`",
    "masked_select": "`x[mask]`",
    "matrix_power": "`lt.linalg.matrix_power(x, n)`",
    "median": "`lt.median(x, axis=...)`",
    "movedim": "`x.moveaxis(source, destination)`",
    "msort": "`lt.sort(x, axis=0)`",
    "multinomial": "`lt.multinomial(x, n)`",
    "nanquantile": "`lt.nanquantile(x, q, axis=...)`",
    "narrow": "a slice, `x[:, start:stop]`",
    "ndimension": "`x.ndim`",
    "neg": "`-x`",
    "neg_": "`x *= -1`",
    "negative_": "`x *= -1`",
    "nelement": "`x.size`",
    "new_empty": "`lt.empty(shape, dtype=x.dtype, device=x.device)`",
    "new_full": "`lt.full(shape, value, dtype=x.dtype, device=x.device)`",
    "new_ones": "`lt.ones(shape, dtype=x.dtype, device=x.device)`",
    "new_tensor": "`lt.tensor(values, dtype=x.dtype, device=x.device)`",
    "new_zeros": "`lt.zeros(shape, dtype=x.dtype, device=x.device)`",
    "nonzero": "`lt.argwhere(x)`, or NumPy's `lt.nonzero(x)`",
    "norm": "`lt.linalg.norm(x)`",
    "normal_": "`lt.nn.init.normal_(x)`",
    "numel": "`x.size`",
    "pinverse": "`lt.linalg.pinv(x)`",
    "put_": "`np.put(x, indices, values)`",
    "qr": "`lt.linalg.qr(x)`",
    "quantile": "`lt.quantile(x, q, axis=...)`",
    "repeat_interleave": "`x.repeat(n, axis=...)`",
    "reshape_as": "`x.reshape(y.shape)`",
    "scatter": "`x.put_along_axis(index, values, axis=...)`",
    "scatter_": "`x[...] = x.put_along_axis(index, values, axis=...)`",
    "scatter_add_": "`x[...] = x.scatter_add(index, values, axis=...)`",
    "select": "an index, `x[:, i]`",
    "sgn": "`x.sign()`",
    "short": "`x.astype(lt.int16)`",
    "slogdet": "`lt.linalg.slogdet(x)`",
    "solve": "`lt.linalg.solve(x, y)`",
    "sort": "`lt.sort(x, axis=...)`",
    "split_with_sizes": "`lt.split(x, points, axis=...)`",
    "squeeze_": "`x = x.squeeze(axis)`",
    "svd": "`lt.linalg.svd(x)`",
    "swapdims": "`x.swapaxes(axis, other)`",
    "t": "`x.T`",
    "t_": "`x = x.T`",
    "take_along_dim": "`x.take_along_axis(index, axis=...)`",
    "tensor_split": "`lt.array_split(x, n, axis=...)`",
    "topk": "`lt.topk(x, k)`",
    "transpose_": "`x = x.swapaxes(axis, other)`",
    "type": "`x.astype(dtype)`",
    "type_as": "`x.astype(y.dtype)`",
    "unbind": "`x.unstack(axis=...)`",
    "unflatten": "`x.reshape(shape)`",
    "unfold": "`lt.sliding_window_view(x, size, axis)`, of which every step-th window",
    "uniform_": "`lt.nn.init.uniform_(x)`",
    "unsqueeze_": "`x = x.unsqueeze(axis)`",
    "view_as": "`x.reshape(y.shape)`",
    "vsplit": "`lt.vsplit(x, n)`",
    "where": "`lt.where(condition, x, y)`",
    "zero_": "`x[...] = 0`",
}


def _named(library: str, **names: str) -> dict[str, str]:
    return {name: f"{here} ({library}.{name})" for name, here in names.items()}


# Functions that PyTorch has in `torch` too.
IN_FUNCTIONAL = (
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "bilinear", "celu", "channel_shuffle",
    "cosine_embedding_loss", "cosine_similarity", "ctc_loss", "embedding", "embedding_bag",
    "feature_alpha_dropout", "hardshrink", "hinge_embedding_loss", "margin_ranking_loss", "max_pool3d",
    "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "rrelu",
    "threshold", "triplet_margin_loss",
)  # fmt: skip
# What its constructors are named after, and their dtypes.
TYPES = (
    ("Bool", "bool"), ("Byte", "uint8"), ("Char", "int8"), ("Short", "int16"), ("Int", "int32"),
    ("Long", "int64"), ("Half", "float16"), ("BFloat16", "bfloat16"), ("Float", "float32"),
    ("Double", "float64"),
)  # fmt: skip
# Functions of PyTorch's and JAX's namespaces -> the like here.
FUNCTIONS = {
    **_named(
        "PyTorch: torch",
        Generator="lt.random.Generator", addcdiv="x + value * y / z", addcmul="x + value * y * z",
        addmm="lt.matmul(x, y) + z", addmv="x + y @ z", addr="x + lt.outer(y, z)", adjoint="x.mT.conj()",
        aminmax="`lt.min` and `lt.max`", as_tensor="lt.asarray", baddbmm="x + y @ z",
        bernoulli="lt.random.bernoulli", bmm="lt.matmul", broadcast_tensors="lt.broadcast_arrays",
        bucketize="lt.searchsorted", cat="lt.concatenate", cholesky="lt.linalg.cholesky",
        chunk="`lt.split(x, n)`, for parts that are equal", clamp="lt.clip",
        clamp_max="x.clip(max=high)", clamp_min="x.clip(min=low)", clip_grad_norm_="lt.nn.utils.clip_grad_norm_",
        clone="x.clone()",
        compile="the function as it is: lazyt records and compiles what runs (lt.jit skips its Python too)",
        complex="x + 1j * y", cond="lt.linalg.cond", det="lt.linalg.det", detach="x.detach()",
        diag_embed="x[..., None] * lt.eye(x.shape[-1])", dist="lt.linalg.norm(x - y)", div="lt.divide",
        double="lt.float64",
        dropout="lt.nn.functional.dropout", eq="lt.equal", expand="lt.broadcast_to", float="lt.float32",
        fill="lt.full_like", frac="x - x.trunc()", from_file="lt.asarray(numpy.memmap(path))",
        gather="lt.take_along_axis", scatter="lt.put_along_axis", ge="lt.greater_equal", ger="lt.outer",
        get_default_dtype="`lt.float32`, which is always the default", get_rng_state="lt.random.get_state",
        gt="lt.greater", half="lt.float16", histc="lt.histogram", index_copy="x[index] = values",
        index_fill="x[index] = value", index_put="x[index] = values", index_select="lt.take",
        int="lt.int32", inverse="lt.linalg.inv",
        is_complex="lt.iscomplexobj", is_floating_point="lt.isdtype(x.dtype, 'real floating')",
        is_nonzero="bool(x)", is_same_size="x.shape == y.shape", is_tensor="isinstance(x, lt.Tensor)",
        kthvalue="lt.sort(x, axis=-1)[..., k - 1]", le="lt.less_equal", lerp="x + weight * (y - x)",
        logdet="lt.linalg.slogdet(x)[1]", logit="lt.log(x / (1 - x))", long="lt.int64", lt="lt.less",
        manual_seed="lt.random.seed", matrix_exp="lt.linalg.matrix_exp", matrix_power="lt.linalg.matrix_power",
        masked_fill="lt.where(mask, value, x)", masked_select="x[mask]", mm="lt.matmul", movedim="lt.moveaxis",
        mul="lt.multiply", mv="lt.matmul", narrow="a slice, x[:, start:stop]", ne="lt.not_equal",
        neg="-x", norm="lt.linalg.norm", normal="lt.random.normal", numel="x.size", permute="lt.permute_dims",
        pinverse="lt.linalg.pinv", polar="r * lt.exp(1j * angle)", qr="lt.linalg.qr", rand="lt.random.rand",
        rand_like="lt.random.rand(*x.shape)", randint="lt.random.integers",
        randint_like="lt.random.integers(low, high, x.shape)", randn="lt.random.randn",
        randn_like="lt.random.randn(*x.shape)", randperm="lt.random.permutation", range="lt.arange",
        repeat_interleave="lt.repeat", row_stack="lt.vstack", rsub="y - x", scalar_tensor="lt.tensor",
        scatter_reduce="`lt.scatter_add`, for sums", seed="lt.random.seed",
        set_default_device="`with lt.device(device):`", set_default_dtype="the argument `dtype`, where values are made",
        set_rng_state="lt.random.set_state", sgn="lt.sign", slogdet="lt.linalg.slogdet",
        split_with_sizes="lt.split(x, points)", std_mean="`lt.std` and `lt.mean`",
        sub="lt.subtract", svd="lt.linalg.svd", swapdims="lt.swapaxes", t="x.T", take_along_dim="lt.take_along_axis",
        tensor_split="lt.array_split", trapz="lt.trapezoid", unbind="lt.unstack", unflatten="lt.reshape",
        unsqueeze="lt.expand_dims",
        var_mean="`lt.var` and `lt.mean`", view="lt.reshape",
        view_as_real="lt.stack((lt.real(z), lt.imag(z)), axis=-1)", xlogy="lt.where(x == 0, 0, x * lt.log(y))",
        **{
            name: f"lt.nn.functional.{name}"
            for name in IN_FUNCTIONAL
        },
        **{
            f"{name}Tensor": f"lt.tensor(x, dtype=lt.{dtype})"
            for name, dtype in TYPES
        },
    ),
    **_named(
        "JAX: jax",
        block_until_ready="lt.sync", device_get="x.numpy()", device_put="x.to(device)",
        numpy="lt itself, whose functions are NumPy's",
    ),
}  # fmt: skip


class Elsewhere:
    """An attribute that is not there: looking it up, or setting it, says what to write instead."""

    __slots__ = ("error",)

    def __init__(self, name: str, here: str) -> None:
        self.error = f"'Tensor' object has no attribute {name!r}: lazyt spells it {here}"

    @api_boundary
    def __get__(self, x: Any, owner: Any = None) -> Never:
        raise AttributeError(self.error)

    @api_boundary
    def __set__(self, x: Any, value: Any) -> Never:
        raise AttributeError(self.error)


class HintingType(type):
    """The type of a class with hints: `dir()` of it does not list them."""

    def __dir__(cls) -> list[str]:
        return _without_hints(type.__dir__(cls))


def attach_hints(cls: HintingType) -> None:
    """Have lookups of others' names on instances of `cls` say how they are spelled here."""
    for name, here in ATTRIBUTES.items():
        assert not hasattr(cls, name), f"{name} is there and needs no hint"
        setattr(cls, name, Elsewhere(name, here))
    instances: Any = cls
    instances.__dir__ = lambda self: _without_hints(object.__dir__(self))


def _without_hints(names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in ATTRIBUTES]


def missing(name: str) -> AttributeError:
    """The error of a name that the package does not have."""
    here = FUNCTIONS.get(name)
    if here is None:
        return AttributeError(f"module 'lazyt' has no attribute {name!r}", name=name)
    return AttributeError(f"lazyt has no {name!r}: use {here}", name=name)
