"""What PyTorch's and NumPy's users ask for by names that lazyt has not, and how it is spelled: an error says so.

A name stands in Tensor's class as an object whose lookup fails: `__getattr__`, asked whenever a lookup fails, would
make each lookup that does not slower (83 ns for 10, as CPython then caches no slots).
"""

from __future__ import annotations

from typing import Any, Never

from lazyt.tracing.tracebacks import api_boundary

_UPDATES = {"add_": "+=", "sub_": "-=", "mul_": "*=", "div_": "/=", "pow_": "**=", "neg_": "*= -1"}
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mm": "@", "bmm": "@", "mv": "@"}

_OF_MEMORY = "`x.numpy()`, whose memory has {}"

# A tensor's attributes in PyTorch, or an array's in NumPy -> the like here.
ATTRIBUTES = {
    "base": _OF_MEMORY.format("an owner"),
    "byteswap": "`x.numpy().byteswap()`",
    "ctypes": _OF_MEMORY.format("an address"),
    "flags": _OF_MEMORY.format("flags"),
    "partition": "`lt.partition(x, kth, axis=...)`",
    "put": "`np.put(x, indices, values)`",
    "resize": "`lt.resize(x, shape)`",
    "strides": _OF_MEMORY.format("strides"),
    "tofile": "`x.numpy().tofile(path)`, or `lt.save({'x': x}, path)`",
    **{name: f"`x {op}`" if " " in op else f"`x {op} y`" for name, op in _UPDATES.items()},
    **{name: f"`x {op} y`" for name, op in _OPERATORS.items()},
    "chunk": "`lt.array_split(x, n, axis=...)`",
    "clamp_": "`x[...] = x.clip(low, high)`",
    "contiguous": "nothing, as values are always contiguous",
    "copy_": "`x[...] = y`",
    "data": "`x.detach()`; to write a parameter, `x[...] = y` under `lt.no_grad()`",
    "dim": "`x.ndim`",
    "expand_as": "`x.broadcast_to(y.shape)`",
    "fill_": "`x[...] = value`",
    "gather": "`x.take_along_axis(index, axis=...)`",
    "index_add_": "`x[...] = lt.add_at(x, index, values)`",
    "index_select": "`x.take(index, axis=...)`",
    "inverse": "`lt.linalg.inv(x)`",
    "masked_fill": "`lt.where(mask, value, x)`",
    "masked_fill_": "`x[mask] = value`",
    "masked_select": "`x[mask]`",
    "median": "`lt.median(x, axis=...)`",
    "narrow": "a slice, `x[:, start:stop]`",
    "new_zeros": "`lt.zeros(shape, dtype=x.dtype, device=x.device)`",
    "nonzero": "`lt.argwhere(x)`, or NumPy's `lt.nonzero(x)`",
    "norm": "`lt.linalg.norm(x)`",
    "normal_": "`lt.nn.init.normal_(x)`",
    "numel": "`x.size`",
    "reshape_as": "`x.reshape(y.shape)`",
    "scatter_": "`x[...] = x.put_along_axis(index, values, axis=...)`",
    "scatter_add_": "`x[...] = x.scatter_add(index, values, axis=...)`",
    "sort": "`lt.sort(x, axis=...)`",
    "t": "`x.T`",
    "topk": "`lt.topk(x, k)`",
    "tril": "`lt.tril(x)`",
    "triu": "`lt.triu(x)`",
    "type": "`x.astype(dtype)`",
    "unbind": "`x.unstack(axis=...)`",
    "uniform_": "`lt.nn.init.uniform_(x)`",
    "unique": "`lt.unique(x)`",
    "view_as": "`x.reshape(y.shape)`",
    "zero_": "`x[...] = 0`",
}


def _named(library: str, **names: str) -> dict[str, str]:
    return {name: f"{here} ({library}.{name})" for name, here in names.items()}


# Functions of PyTorch's and JAX's namespaces -> the like here.
FUNCTIONS = {
    **_named(
        "PyTorch: torch",
        Generator="lt.random.Generator", addmm="lt.matmul(x, y) + z", as_tensor="lt.asarray", bmm="lt.matmul",
        bucketize="lt.searchsorted", cat="lt.concatenate", chunk="lt.array_split", clamp="lt.clip",
        clip_grad_norm_="lt.nn.utils.clip_grad_norm_", det="lt.linalg.det", div="lt.divide", double="lt.float64",
        dropout="lt.nn.functional.dropout", eq="lt.equal", expand="lt.broadcast_to", float="lt.float32",
        gather="lt.take_along_axis", scatter="lt.put_along_axis", ge="lt.greater_equal", gt="lt.greater",
        half="lt.float16", histc="lt.histogram",
        index_select="lt.take", int="lt.int32", inverse="lt.linalg.inv",
        is_complex="lt.iscomplexobj", is_floating_point="lt.isdtype(x.dtype, 'real floating')",
        is_tensor="isinstance(x, lt.Tensor)", le="lt.less_equal", long="lt.int64", lt="lt.less",
        manual_seed="lt.random.seed",
        masked_fill="lt.where(mask, value, x)", masked_select="x[mask]", mm="lt.matmul", movedim="lt.moveaxis",
        mul="lt.multiply", mv="lt.matmul", narrow="a slice, x[:, start:stop]", ne="lt.not_equal",
        norm="lt.linalg.norm", numel="x.size", permute="lt.permute_dims", rand="lt.random.rand",
        randint="lt.random.integers", randn="lt.random.randn", randperm="lt.random.permutation",
        repeat_interleave="lt.repeat", sgn="lt.sign",
        sub="lt.subtract", swapdims="lt.swapaxes", t="x.T", take_along_dim="lt.take_along_axis", unbind="lt.unstack",
        unsqueeze="lt.expand_dims", view="lt.reshape",
    ),
    **_named(
        "JAX: jax",
        block_until_ready="lt.sync", device_get="x.numpy()", device_put="x.to(device)",
        jit="the function as it is: lazyt records and compiles what runs",
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


def attach_spellings(cls: Any) -> None:
    """Have lookups of others' names on instances of `cls` say how they are spelled here."""
    for name, here in ATTRIBUTES.items():
        assert not hasattr(cls, name), "what is there needs no other spelling"
        setattr(cls, name, Elsewhere(name, here))
    cls.__dir__ = _without_spellings


def _without_spellings(self: Any) -> list[str]:
    return [name for name in object.__dir__(self) if name not in ATTRIBUTES]


def missing(name: str) -> AttributeError:
    """The error of a name that the package does not have."""
    here = FUNCTIONS.get(name)
    if here is None:
        return AttributeError(f"module 'lazyt' has no attribute {name!r}", name=name)
    return AttributeError(f"lazyt has no {name!r}: use {here}", name=name)
