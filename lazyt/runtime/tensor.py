"""The tensor that users hold: a handle on a pending or computed value.

`Tensor` has state, metadata, reads and gradients here. functions/ attaches what records operations (indexing, the
operators, the methods) and what other libraries ask for, inspect/ attaches what shows a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazyt.autograd import engine, hooks as gradient_hooks, transfers
from lazyt.backends.registry import is_device_name
from lazyt.errors import AutogradError, DeviceError, DTypeError, NotOneElement, ShapeError
from lazyt.ir import dtypes
from lazyt.ops.definition import OPS, OpDef
from lazyt.runtime import memory, shared_memory
from lazyt.runtime.device import CPU, Device, check_device
from lazyt.runtime.host_views import array_of
from lazyt.runtime.sync import materialise
from lazyt.tracing import inplace, record as recording
from lazyt.tracing.inference import is_inference
from lazyt.tracing.lanes import note_impure
from lazyt.tracing.name_hints import HintingType
from lazyt.tracing.program import Slot
from lazyt.tracing.steps import hooks, tensor_over
from lazyt.tracing.tensor_state import Data, Gradient, Handle, Holder, is_external
from lazyt.tracing.trace import local

_new = object.__new__


class Tensor(Handle, metaclass=HintingType):
    """An n-dimensional array whose operations are recorded and run at a sync point.

    `shape`, `dtype`, `ndim`, `size` and `repr` never compute; `print`, `numpy()`, `item()` and their kin do.

    >>> import lazyt as lt
    >>> x = lt.asarray([1.0, 2.0]) + 1
    >>> x
    <lazyt.Tensor shape=(2,) dtype=float32 device=cpu pending: add>
    >>> print(x)
    [2. 3.]
    """

    __slots__ = ()
    __array_priority__ = 1000

    def __init__(self, *args: Any) -> None:
        raise TypeError("make tensors with lazyt.tensor, lazyt.asarray or lazyt.zeros and its kin")

    def __hash__(self) -> int:
        raise TypeError(
            "unhashable type: 'lazyt.Tensor', because == compares elements and a write in place changes them; use "
            "id(x) to mean this object, or bytes(x.numpy()) to mean its value"
        )

    # Metadata

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, as a tuple of ints; never syncs."""
        slot = self._slot
        if slot is not None:
            return slot.shape
        if self._buffer is not None:
            return self._buffer.shape
        found: tuple[int, ...] = _value(self).shape
        return found

    @property
    def dtype(self) -> np.dtype:
        """The element type, a `numpy.dtype`."""
        slot = self._slot
        found: np.dtype
        if slot is not None:
            found = slot.dtype
        elif self._buffer is not None:
            found = self._buffer.dtype
        else:
            found = _value(self).dtype
        return found

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def device(self) -> Device:
        """Where the value lives, or will."""
        holder: Holder = self._storage if self._storage is not None else self
        return Device(holder._slot.step.device if holder._buffer is None else holder._buffer.device)  # type: ignore[union-attr]

    @property
    def is_pending(self) -> bool:
        """Whether the value is not computed yet."""
        holder: Holder = self._storage if self._storage is not None else self
        return holder._buffer is None

    # Reading: each of these is a sync point

    def numpy(self, *, copy: bool = False) -> np.ndarray[Any, Any]:
        """The value as a NumPy array: read-only and without a copy, or writable with `copy=True`. Syncs if pending.

        What was exported never changes: later in-place writes go to new memory. Raises AutogradError for a tensor
        that requires grad, but under `no_grad`.
        """
        if inplace.requires_grad(self) and recording.is_grad_enabled():
            raise AutogradError(
                "numpy: Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        return self._array("numpy()", copy)

    def _array(self, cause: str, copy: bool = False) -> np.ndarray[Any, Any]:
        a = array_of(self)
        if a is None:
            a = memory.as_array(materialise(self, cause))
        else:
            note_impure("it reads a value")
        return a.copy() if copy else a

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars; syncs if pending."""
        return self._array("tolist()").tolist()

    def _scalar(self, cause: str) -> Any:
        if self.size != 1:
            raise NotOneElement(f"{cause}: only tensors of one element convert to a scalar, not shape {self.shape}")
        return self._element(cause)

    def _element(self, cause: str) -> Any:
        """The one element, as a Python scalar."""
        if self._view is not None:
            return self._array(cause).reshape(()).item()
        return memory.element(materialise(self, cause))

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __bool__(self) -> bool:
        return bool(self._scalar("bool()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __index__(self) -> int:
        if dtypes.kind(self.dtype) not in "iu":
            raise DTypeError(f"index: only integer tensors can be used as an index, not {self.dtype}")
        return int(self._scalar("__index__"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        a = self._array("__array__")
        if dtype is not None and a.dtype != dtype:
            if copy is False:
                raise ValueError("__array__: a change of dtype needs a copy")
            return a.astype(dtype)
        return a.copy() if copy else a

    def __str__(self) -> str:
        return str(self._array("print"))

    def __format__(self, spec: str) -> str:
        if not self.shape:
            return format(self.item(), spec)
        if spec:
            raise TypeError(f"unsupported format string {spec!r} for a tensor of shape {self.shape}, not one number")
        return str(self)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's description of a value that is there and lies in order: AttributeError otherwise, as if absent.

        NOTE: its `data` is a buffer, which keeps the memory alive after a write in place gave the tensor another.
        """
        note_impure("it reads a value")
        a = array_of(self)
        if a is None or dtypes.of(a.dtype).foreign or not a.size or not a.flags.c_contiguous:
            raise AttributeError("__array_interface__: the value is pending, or not plain contiguous memory")
        return {**a.__array_interface__, "data": memoryview(a).cast("B")}  # type: ignore[arg-type]

    def __reduce__(self) -> Any:
        return _unpickle, (self._array("pickle").copy(), inplace.requires_grad(self) and inplace.is_leaf(self))

    def __copy__(self) -> Tensor:
        return self.clone()

    def clone(self) -> Tensor:
        """The same value as a tensor of its own: writes to either are not seen by the other. Gradients pass through."""
        out: Tensor = recording.record(CLONE, (self,))
        return out

    def to(
        self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False
    ) -> Tensor:
        """This value with another dtype or on another device, given by position or by name; self if nothing changes.

        Those of another tensor, if one is given. Another device is a sync, and so is the way back of a gradient;
        `non_blocking` changes nothing. As `torch.Tensor.to`: a leaf's copy is no leaf.

        >>> import lazyt as lt
        >>> lt.ones(2).to(lt.float64).dtype
        dtype('float64')
        """
        flags = [a for a in args if isinstance(a, bool)]  # non_blocking, and copy behind it
        copy = copy or (len(flags) > 1 and flags[1])
        for a in args:
            if isinstance(a, bool):
                continue
            if isinstance(a, Tensor):
                dtype, device = a.dtype, a.device
            elif isinstance(a, str) and not dtypes.is_name(a) and is_device_name(a):
                device = a
            else:
                dtype = a
        want = self.dtype if dtype is None else dtypes.as_dtype(dtype)
        out = self if want == self.dtype else _astype(self, want)
        if device is not None and check_device(device) != self.device:
            return _moved(out, check_device(device))
        return out.clone() if copy and out is self else out

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """This tensor on `device` (Array API); DeviceError for one that is not there."""
        if stream is not None:
            raise DeviceError("to_device: the CPU has no streams")
        return self.to(device=device)

    def cpu(self) -> Tensor:
        """This tensor on the CPU."""
        return self.to(device=CPU)

    def cuda(self, device: int = 0) -> Tensor:
        """This tensor on a GPU; DeviceError where there is none."""
        return self.to(device=f"cuda:{device}")

    def __deepcopy__(self, memo: Any) -> Tensor:
        data = materialise(self, "deepcopy")
        out = tensor_of(memory.from_array(memory.as_array(data)) if is_external(data) else data)
        if inplace.requires_grad(self):
            if not inplace.is_leaf(self):
                raise AutogradError("deepcopy: only leaf tensors support deepcopy; detach() the tensor first")
            out.requires_grad = True
        memo[id(self)] = out
        if inplace.is_leaf(self) and self.grad is not None:
            out.grad = self.grad.__deepcopy__(memo)
        return out

    def share_memory_(self) -> Tensor:
        """Move the value to memory that other processes can map, in place; what this is a view of, too. Syncs.

        Such a tensor, sent by `lazyt.multiprocessing` or inherited by a fork, is the same memory there: a write by one
        process is seen by all, and so it is computed at once (a sync). An operation that is pending reads what the
        memory holds when it is computed. Processes that write the same elements need a lock. As
        `torch.Tensor.share_memory_`. NotSupportedError for a GPU's tensor.

        >>> import lazyt as lt
        >>> x = lt.zeros(2).share_memory_()
        >>> x += 1
        >>> x
        <lazyt.Tensor shape=(2,) dtype=float32 device=cpu [1., 1.]>
        """
        shared_memory.share_memory(self)
        return self

    def is_shared(self) -> bool:
        """Whether `share_memory_` was called of this tensor, or of what it is a view of."""
        return shared_memory.shared_of(self) is not None

    if TYPE_CHECKING:
        # What operators.py generates, for checkers of types.
        _Operator: TypeAlias = Callable[["Tensor", Any], "Tensor"]
        __add__: _Operator
        __radd__: _Operator
        __sub__: _Operator
        __rsub__: _Operator
        __mul__: _Operator
        __rmul__: _Operator
        __truediv__: _Operator
        __rtruediv__: _Operator
        __floordiv__: _Operator
        __rfloordiv__: _Operator
        __mod__: _Operator
        __rmod__: _Operator
        __pow__: _Operator
        __rpow__: _Operator
        __matmul__: _Operator
        __rmatmul__: _Operator
        __and__: _Operator
        __rand__: _Operator
        __or__: _Operator
        __ror__: _Operator
        __xor__: _Operator
        __rxor__: _Operator
        __lshift__: _Operator
        __rlshift__: _Operator
        __rshift__: _Operator
        __rrshift__: _Operator
        __lt__: _Operator
        __le__: _Operator
        __gt__: _Operator
        __ge__: _Operator
        __neg__: Callable[[Tensor], Tensor]
        __pos__: Callable[[Tensor], Tensor]
        __abs__: Callable[[Tensor], Tensor]
        __invert__: Callable[[Tensor], Tensor]
        # Attached by functions/.
        __getitem__: _Operator
        __setitem__: Callable[[Tensor, Any, Any], None]

    # Sequence protocol

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        found = self == value
        return bool(found.any()) if isinstance(found, Tensor) else found

    # Gradients

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow through this value; set it on leaves only."""
        return inplace.requires_grad(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, value: bool = True) -> Tensor:
        """Ask for (or stop) gradients of this leaf; in place.

        A view, such as what `detach()` returns, becomes a leaf with a value of its own: unlike in PyTorch, later writes
        in place to it are not seen by the tensor that it was a view of, nor the other way round.
        """
        if value == inplace.requires_grad(self):
            return self
        if not value and not inplace.is_leaf(self):
            raise AutogradError(
                "requires_grad: you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use x.detach()"
            )
        if value and is_inference(self) and not local.trace.mode.inference:
            raise AutogradError(
                "requires_grad: Setting requires_grad=True on inference tensor outside InferenceMode is not allowed"
            )
        if value and dtypes.kind(self.dtype) not in "fc":
            raise AutogradError(
                "requires_grad: only Tensors of floating point and complex dtype can require gradients, "
                f"not {self.dtype}"
            )
        if self._view is not None:
            engine.own_value(self)
        holder: Holder = self._storage if self._storage is not None else self
        if engine.is_pending(holder):
            (engine.make_leaf if value else engine.freeze)(holder)
        else:
            holder._slot = None
        if self._storage is not None:
            self._storage.invalidate(None)
        if holder._meta is None:
            holder._meta = Gradient(value)
        holder._meta.requires_grad = value
        holder._meta.is_leaf = True
        return self

    def is_inference(self) -> bool:
        """Whether this was made in `inference_mode()`. As `torch.Tensor.is_inference`.

        >>> import lazyt as lt
        >>> lt.ones(2).is_inference()
        False
        """
        return is_inference(self)

    @property
    def _version(self) -> int:
        """How often this was written in place. AutogradError for inference tensors."""
        if is_inference(self):
            raise AutogradError("_version: Inference tensors do not track version counter")
        return (self if self._storage is None else self._storage)._writes

    @property
    def is_leaf(self) -> bool:
        """Whether this is a leaf of the autograd graph."""
        return inplace.is_leaf(self)

    def _gradient(self) -> Gradient | None:
        return self._storage._meta if self._storage is not None and self._view is None else self._meta

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or None; None with a warning for what is no leaf and keeps none."""
        meta = self._gradient()
        found = None if meta is None else meta.grad
        if found is None and (meta is None or not meta.is_leaf) and inplace.requires_grad(self):
            gradient_hooks.warn_of_no_gradient(self)
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        meta = self._gradient()
        if meta is None:
            if value is None:
                return
            raise AutogradError("grad: only a leaf that requires grad has .grad")
        if value is not None and value.shape != self.shape:
            raise ShapeError(f"grad: shape {value.shape} does not match the tensor's {self.shape}")
        meta.grad = value

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Tensor] | None = None,
    ) -> None:
        """Accumulate d(self)/d(leaf) into `.grad` of every leaf reached, or of `inputs`. Records; runs nothing.

        `gradient` (self's shape) is required unless self has one element. Raises AutogradError as PyTorch does: no
        graph, a graph that was freed, a saved value that was overwritten in place.
        """
        engine.backward(self, gradient, retain_graph, create_graph, inputs)

    def detach(self) -> Tensor:
        """The same value outside the autograd graph; shares memory and versions as a view does."""
        out: Tensor = engine.detach(self)
        return out

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> gradient_hooks.HookHandle:
        """Call `hook(gradient)` whenever a gradient of this tensor is recorded; what it returns replaces it.

        `remove()` of the result takes it off. As in PyTorch; it records, like any function of tensors, and also sees
        the gradients of values that were synced or moved to another device since they were made.
        """
        return gradient_hooks.register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> gradient_hooks.HookHandle:
        """Call `hook(self)` each time `.grad` of this leaf has received a gradient. AutogradError for a non-leaf."""
        return gradient_hooks.register_post_accumulate_grad_hook(self, hook)

    def retain_grad(self) -> None:
        """Keep `.grad` of this non-leaf too."""
        gradient_hooks.retain_grad(self)


def _value(h: Tensor) -> Any:
    """The slot or data of a handle whose own caches are empty: a view after a write or a sync, or a base."""
    st = h._storage
    assert st is not None
    return h._view or st._slot or st._buffer  # NOTE: no call: another thread writes it before or after


def _make(slot: Slot) -> Tensor:
    h = _new(Tensor)
    h._slot = slot
    h._buffer = h._storage = h._view = h._meta = None
    h._writes = 0
    return h


def tensor_of(data: Data) -> Tensor:
    """A tensor over a computed value."""
    out: Tensor = tensor_over(data)
    return out


def _moved(x: Tensor, device: Device) -> Tensor:
    """A copy of `x` on another device; syncs if it is pending."""
    differentiable = inplace.requires_grad(x) and recording.is_grad_enabled()
    if differentiable and x._storage is not None:
        x = x.clone()  # what is viewed, or a view, is no value of its own
    out = tensor_of(memory.from_array(memory.as_array(materialise(x, f".to({str(device)!r})")), device))
    if differentiable:
        transfers.copied(out, x, lambda ct, home=x.device: _moved(ct, home))  # type: ignore[misc]
    return out


def _astype(x: Tensor, dtype: np.dtype) -> Tensor:
    out: Tensor = recording.record(OPS["astype"], (x,), (dtype,))
    return out


CLONE = OpDef("clone", lambda b, x: x)


def _unpickle(a: np.ndarray[Any, Any], requires_grad: bool) -> Tensor:
    out = tensor_of(memory.from_array(a, recording.current_device()))
    return out.requires_grad_() if requires_grad else out


hooks.use(Tensor)
hooks.tensor_of_slot, hooks.over_data = _make, tensor_of


# Properties that raise nothing, and are read often.
METADATA = frozenset((
    "device", "dtype", "grad", "is_leaf", "is_pending", "itemsize", "nbytes", "ndim", "requires_grad", "shape", "size",
))  # fmt: skip
