"""PyTorch's methods of tensors that NumPy's arrays have not: each means what it means in PyTorch.

`attach` gives them to Tensor, where hints stand that say how lazyt spells them; `detach` puts the hints back. Methods
that both have and that mean different things (`x.split(2)`) are in `readings.py`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

import lazyt as lt
from lazyt.config import HOST, NVIDIA
from lazyt.errors import ArgumentError, NotSupportedError, ShapeError
from lazyt.functions.reshaping import windows
from lazyt.ir import dtypes
from lazyt.nn import parameter
from lazyt.ops.axes import one_axis
from lazyt.runtime.tensor import Tensor
from lazyt.torch import functions as f, names
from lazyt.torch.keywords import AT_OF, with_names
from lazyt.torch.promotion import PROMOTED, promoting
from lazyt.torch.values import as_value, draws, need_at_least, need_kind, times
from lazyt.tracing import detached, name_hints, strides
from lazyt.tracing.name_hints import ATTRIBUTES
from lazyt.tracing.record import begin
from lazyt.tracing.tracebacks import api_boundary

if TYPE_CHECKING:
    from collections.abc import Callable


class Size(int):
    """The number of elements, as NumPy has it; called, the shape, as PyTorch has it: `x.size()`, `x.size(0)`."""

    shape: tuple[int, ...]

    def __new__(cls, n: int, shape: tuple[int, ...]) -> Self:
        size = super().__new__(cls, n)
        size.shape = shape
        return size

    @api_boundary
    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or the extent of an axis."""
        if dim is None:
            return self.shape
        if not -len(self.shape) <= dim < len(self.shape):
            raise lt.AxisError(f"size: axis {dim} is out of bounds for an array of {len(self.shape)} dimensions")
        return self.shape[dim]

    def __reduce__(self) -> Any:
        return int, (int(self),)


_SIZE, _TO, _DEEP_COPY = vars(Tensor)["size"], vars(Tensor)["to"], vars(Tensor)["__deepcopy__"]


def _size(self: Tensor) -> int:
    n: int = _SIZE.fget(self)
    # NOTE: lazyt's own code gets the number alone, which is what goes into programs.
    ours = str(sys._getframe(1).f_globals.get("__name__")).startswith("lazyt.")
    return n if ours else Size(n, self.shape)


class Backward:
    """What PyTorch's `grad_fn` says: that a tensor has a gradient's history, and what made it."""

    def __init__(self, made: str) -> None:
        self.made = made

    def name(self) -> str:
        """The operation, as PyTorch names its backward."""
        return f"{self.made.rpartition('.')[2].title().replace('_', '')}Backward0"

    def __repr__(self) -> str:
        return f"<{self.name()}>"


def grad_fn(self: Tensor) -> Backward | None:
    """None for a leaf and for what needs no gradient."""
    if not self.requires_grad or self.is_leaf:
        return None
    return Backward("value" if self._slot is None else self._slot.step.op.name)


def _deep_copy(self: Tensor, memo: Any) -> Tensor:
    """As `lazyt.Tensor` does it; the copy of a parameter is one, without its gradient."""
    found: Tensor = _DEEP_COPY(self, memo)
    if parameter.is_made(self):
        parameter.mark(found)
        found.grad = None
    return found


def _of_values(self: Tensor, *values: Any) -> None:
    """`torch.Tensor([1, 2])`: float32 of values; of extents, memory to be written."""
    made: Any = names.find("FloatTensor")(*values)
    made.numpy()  # NOTE: a handle without a value belongs to its trace, which does not know this one
    self._slot = self._storage = self._view = self._meta = None
    self._buffer, self._writes = made._buffer, 0


def to(self: Tensor, *args: Any, memory_format: Any = None, **options: Any) -> Tensor:
    """As `lazyt.Tensor.to`; a layout of memory changes nothing."""
    found: Tensor = _TO(self, *args, **options)
    return found


def _put(x: Any, key: Any, value: Any) -> None:
    x[key] = value


def _written(name: str, g: Callable[..., Any]) -> Callable[..., Any]:
    """The method that writes what `g` computes in place, and returns the tensor.

    DTypeError where the result is of a higher kind than the tensor, as the roots of integers are.
    """

    def method(self: Tensor, *args: Any, **options: Any) -> Tensor:
        found = g(self, *args, **options)
        need_kind(name, found.dtype, self.dtype)
        _put(self, ..., found)
        return self

    method.__doc__ = f"{(g.__doc__ or '').partition('.')[0]}, written in place."
    return method


def _method(g: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args, **options: g(self, *args, **options)


def _new(make: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        found: Tensor = make(
            *size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad
        )  # fmt: skip
        return found

    method.__doc__ = f"{make.__doc__} The dtype and device are this tensor's by default."
    return method


def _cast(dtype: Any) -> Callable[[Tensor], Tensor]:
    return lambda self: self.astype(dtype, copy=False)


def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value in a shape, of this tensor's dtype and device by default."""
    return f.full(size, fill_value, dtype=dtype or self.dtype, device=device or self.device)


def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A copy of data, of this tensor's dtype and device by default."""
    return f.tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def dim(self: Tensor) -> int:
    """The number of axes."""
    return self.ndim


def contiguous(self: Tensor, *, memory_format: Any = None) -> Tensor:
    """The tensor itself, or a copy of a view whose elements do not lie one after another."""
    return self if strides.is_contiguous(self) else self.clone()


def is_contiguous(self: Tensor, *, memory_format: Any = None) -> bool:
    """Whether it is no view, or one whose elements lie one after another."""
    return not self.size or strides.is_contiguous(self)


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in another's dtype."""
    return lt.astype(self, other.dtype, copy=False)


def type(self: Tensor, dtype: Any = None) -> Any:
    """This tensor in a dtype; without one, the name of PyTorch's type, as in 'torch.FloatTensor'."""
    if dtype is not None:
        return self.astype(_TYPES.get(dtype, dtype) if isinstance(dtype, str) else dtype, copy=False)
    return _NAMES.get(self.dtype, f"torch.{self.dtype}")


# The integers that floating dtypes have all of.
_EXACT = {d: 1 << dtypes.of(d).precision for d in dtypes.ALL if dtypes.kind(d) == "f"}
_TYPES: dict[Any, Any] = {f"torch.{name}": dtype for name, dtype in names.TYPES.items()}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor broadcast to another's shape."""
    return f.broadcast_to(self, other.shape)


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in another's shape."""
    return lt.reshape(self, other.shape)


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """A view in another's shape."""
    found: Tensor = self.view(other.shape)
    return found


def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of an axis, as a new last axis."""
    if step < 1:
        raise ShapeError(f"unfold: a step of at least 1 is required, got {step}")
    return windows("unfold", self, one_axis("unfold", dimension, self.ndim), size, step)


def where(self: Tensor, condition: Any, other: Any) -> Tensor:
    """This tensor where the condition is true, the other elsewhere."""
    return lt.where(condition, self, other)


def get_device(self: Tensor) -> int:
    """The device's number; -1 for the CPU."""
    return -1 if self.device.type == HOST else int(self.device.index or 0)


# --- in place


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Write another tensor's elements."""
    _put(self, ..., src)
    return self


def fill_(self: Tensor, value: Any) -> Tensor:
    """Write one value, as the dtype has it."""
    _put(self, ..., as_value("fill_", value, self.dtype))
    return self


def zero_(self: Tensor) -> Tensor:
    """Write zeros."""
    _put(self, ..., 0)
    return self


def masked_fill_(self: Tensor, mask: Any, value: Any) -> Tensor:
    """Write a value where the mask is true."""
    _put(self, ..., f.masked_fill(self, mask, value))
    return self


def index_fill_(self: Tensor, dim: int, index: Any, value: Any) -> Tensor:
    """Write a value in slices of an axis."""
    _put(self, ..., f.index_fill(self, dim, index, value))
    return self


def index_copy_(self: Tensor, dim: int, index: Any, source: Any) -> Tensor:
    """Write slices of an axis."""
    _put(self, ..., f.index_copy(self, dim, index, source))
    return self


def index_add_(self: Tensor, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
    """Add to slices of an axis."""
    _put(self, ..., f.index_add(self, dim, index, source, alpha=alpha))
    return self


def index_put_(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write, or add, at the places of index arrays."""
    _put(self, ..., f.index_put(self, indices, values, accumulate))
    return self


def scatter_(self: Tensor, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None) -> Tensor:
    """Write values at places along an axis; `reduce='add'` adds them."""
    given = src if value is None else value
    if reduce not in (None, "add"):
        raise NotSupportedError(f"scatter_: not supported: reduce={reduce!r}, because there are None and 'add'")
    if not isinstance(given, Tensor):
        number = as_value("scatter_", given, self.dtype)
        given = lt.full(index.shape, number, dtype=self.dtype, device=self.device)
    _put(self, ..., (f.scatter if reduce is None else f.scatter_add)(self, dim, index, given))
    return self


def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Any = None) -> Tensor:
    """Write uniform samples of [a, b)."""
    if a > b:
        raise ArgumentError(f"uniform_: bounds in their order are required, got {a} and {b}")
    kind = draws("uniform_", self)
    _put(self, ..., lt.random.uniform(a, b, self.shape, dtype=kind, generator=generator, device=self.device))
    return self


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Write normal samples."""
    need_at_least("normal_", 0, std=std)
    kind = draws("normal_", self)
    _put(self, ..., lt.random.normal(mean, std, self.shape, dtype=kind, generator=generator, device=self.device))
    return self


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Write 1 with a probability, else 0."""
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli_: a probability in [0, 1] is required, got {p}")
    place = None if isinstance(p, Tensor) else self.device
    chances = lt.broadcast_to(lt.asarray(p, dtype=dtypes.float32, device=place), self.shape)
    _put(self, ..., lt.random.bernoulli(chances, generator=generator))
    return self


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Write exponential samples of a rate; none is 0, as their logarithms are taken."""
    if not lambd > 0:
        raise ArgumentError(f"exponential_: a rate above 0 is required, got {lambd}")
    u = f.rand(*self.shape, dtype=draws("exponential_", self), generator=generator, device=self.device)
    _put(self, ..., -lt.log1p(-lt.maximum(u, float(lt.finfo(u.dtype).eps) / 4)) / lambd)
    return self


def random_(self: Tensor, low: int | None = None, high: int | None = None, *, generator: Any = None) -> Tensor:
    """Write integers of [low, high), of [0, low) where one bound is given, or all that the dtype has exactly."""
    if high is None:
        exact = 1 if self.dtype == dtypes.bool_ else _EXACT.get(self.dtype)
        all_of_them = int(lt.iinfo(self.dtype).max) if exact is None else exact
        low, high = 0, all_of_them if low is None else low
    low = low or 0
    if low >= high:
        raise ArgumentError(f"random_: a lower bound below the upper one is required, got {low} and {high}")
    _put(self, ..., f.randint(low, high, self.shape, generator=generator, device=self.device))
    return self


def add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """self += alpha * other."""
    self += times("add_", alpha, other, self.dtype)
    return self


def sub_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """self -= alpha * other."""
    self -= times("sub_", alpha, other, self.dtype)
    return self


def mul_(self: Tensor, other: Any) -> Tensor:
    """self *= other."""
    self *= other
    return self


def div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """self /= other, rounded by 'floor' or 'trunc' if that is asked for."""
    if rounding_mode is None:
        self /= other
    else:
        _put(self, ..., f.div(self, other, rounding_mode=rounding_mode))
    return self


def get_data(self: Tensor) -> Tensor:
    """The same memory outside of any gradient: what is written there is written here."""
    return self.detach()


def set_data(self: Tensor, value: Tensor) -> None:
    """Take values of the same shape and dtype, outside of any gradient; what shared the memory keeps the old ones.

    Later writes to `value` are not seen. A view, or what was detached, has no memory of its own: NotSupportedError.
    """
    if self._view is not None:
        raise NotSupportedError(
            "data: not supported: other memory for a view or a detached tensor, because all that share it would be "
            "written; write it in place (x[...] = y), or assign to another name"
        )
    if value.shape != self.shape or value.dtype != self.dtype:
        raise ShapeError(
            f"data: {value.dtype} {value.shape} does not fit a tensor of {self.dtype} {self.shape}, which keeps both"
        )
    with lt.no_grad():
        detached.leave(begin(), self)
        _put(self, ..., value)


# Of one tensor and what follows, by the name that `lazyt.torch` or lazyt has.
_PLAIN = (
    f"{name_hints.UNARY} {name_hints.MORE_UNARY} {name_hints.BINARY} {name_hints.MORE_BINARY} add sub subtract mul "
    "multiply div divide true_divide floor_divide remainder bitwise_and bitwise_or bitwise_xor bitwise_left_shift "
    "bitwise_right_shift eq ne not_equal lt less le less_equal gt greater ge greater_equal mm bmm mv addcdiv addcmul "
    "addmm addmv addbmm baddbmm addr index_copy index_fill index_put heaviside isclose xlogy chunk clamp_max "
    "clamp_min det dist equal frac gather ger index_select inverse is_complex is_floating_point is_nonzero kthvalue "
    "lerp logdet logit masked_fill masked_select matrix_power median movedim narrow neg numel norm pinverse qr "
    "quantile nanquantile repeat_interleave scatter select sgn slogdet split_with_sizes swapdims t take_along_dim "
    "tensor_split topk unbind unflatten cholesky multinomial bernoulli dsplit hsplit vsplit sort nonzero"
)
# Those that write in place too.
_WRITTEN = (
    f"{name_hints.UNARY} {name_hints.BINARY} {name_hints.METHODS} floor_divide remainder bitwise_and bitwise_or "
    "bitwise_xor bitwise_left_shift bitwise_right_shift addcdiv addcmul addmm addmv addbmm addr baddbmm clamp "
    "clamp_max clamp_min clip lerp logit neg sub subtract multiply divide true_divide pow cumprod cumsum eq ne lt le "
    "gt ge scatter_add xlogy frac"
)
METHODS: dict[str, Any] = {
    "H": property(f.adjoint, doc="The conjugate of the transpose."),
    "mH": property(f.adjoint, doc="The conjugate of the transpose."),
    "adjoint": f.adjoint,
    "grad_fn": property(grad_fn, doc=grad_fn.__doc__),
    "data": property(get_data, set_data, doc=get_data.__doc__),
    "is_cpu": property(lambda self: self.device.type == HOST, doc="Whether it is on the CPU."),
    "is_cuda": property(lambda self: self.device.type == NVIDIA, doc="Whether it is on a GPU of NVIDIA's."),
    **dict.fromkeys(("is_mps", "is_xpu"), property(lambda self: False, doc="False: lazyt runs on none.")),
    "byte": _cast(dtypes.uint8),
    "char": _cast(dtypes.int8),
    "short": _cast(dtypes.int16),
    "new_empty": _new(f.empty),
    "new_ones": _new(f.ones),
    "new_zeros": _new(f.zeros),
    "element_size": lambda self: self.itemsize,
    "is_same_size": lambda self, other: self.shape == other.shape,
    "nelement": f.numel,
    "ndimension": dim,
    **{
        g.__name__: g
        for g in (
            new_full, new_tensor, dim, contiguous, is_contiguous, type_as, type, expand_as, reshape_as, view_as, unfold,
            where, get_device, copy_, fill_, zero_, masked_fill_, index_fill_, index_copy_, index_add_, index_put_,
            scatter_, uniform_, normal_, bernoulli_, exponential_, random_, add_, sub_, mul_, div_,
        )
    },
}  # fmt: skip


def _complete() -> None:
    for name in {*_PLAIN.split()} - names.NONE:
        METHODS.setdefault(name, _method(names.find(name)))
    for name in _WRITTEN.split():
        own = METHODS.get(name)
        METHODS.setdefault(f"{name}_", _written(f"{name}_", own if callable(own) else names.find(name)))


_hints: dict[str, Any] = {}


def attach() -> None:
    """Give Tensor the methods."""
    if _hints:
        return
    _complete()
    for name in ("size", "to", "__deepcopy__", "__hash__", "__init__"):
        _hints[name] = vars(Tensor)[name]
    for name, method in METHODS.items():
        if name not in ATTRIBUTES and hasattr(Tensor, name):
            continue
        _hints[name] = vars(Tensor).get(name)
        if not isinstance(method, property):
            method.__name__ = name if method.__name__ == "<lambda>" else method.__name__
            method = api_boundary(promoting(method) if name in PROMOTED else method, name)
            method = with_names(method, name) if name in AT_OF else method
        setattr(Tensor, name, method)
    # NOTE: as PyTorch's, a tensor is itself in sets and dictionaries, whatever its values are.
    Tensor.__deepcopy__ = _deep_copy  # type: ignore[method-assign]
    Tensor.to = api_boundary(to)  # type: ignore[method-assign]
    Tensor.__init__ = _of_values  # type: ignore[method-assign]
    Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]
    Tensor.size = property(_size, doc=Size.__doc__)  # type: ignore[assignment, method-assign]


def detach() -> None:
    """Put the hints back."""
    while _hints:
        name, hint = _hints.popitem()
        if hint is None:
            delattr(Tensor, name)
        else:
            setattr(Tensor, name, hint)
