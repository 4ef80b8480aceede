"""What stands behind a tensor: its state, and the values that live outside any trace."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from lazyt.tracing.program import Slot


# In place of a segment: the graph behind a value is another thread's.
ELSEWHERE = object()
# Storages in memory that other processes map too, by id: what is written to them is computed at once, and copied there
# (see runtime/shared_memory.py).
EXTERNAL: dict[int, Any] = {}
# With more aliases than this a storage looks which are gone.
GONE = 4


class Data:
    """A computed value: a C-contiguous array in a backend's buffer. Never written again once it is here."""

    __slots__ = ("__weakref__", "address", "bound_in", "buffer", "device", "dtype", "form", "nbytes", "shape")

    def __init__(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype, form: Any = None) -> None:
        self.buffer = buffer
        self.address: int = buffer.address
        self.device: str = buffer.device
        self.shape = shape
        self.dtype = dtype
        self.nbytes: int = buffer.nbytes
        # What stands for the dtype, the shape and the device, once a trace has bound it; and which did last.
        self.form = form
        self.bound_in = 0


def is_external(data: Data) -> bool:
    """Whether a value lies in memory that other processes write."""
    return any(x.data.buffer is data.buffer for x in list(EXTERNAL.values()))


class Gradient:
    """The autograd identity of a leaf, or where a synced value came from."""

    __slots__ = (
        "__weakref__", "after", "closed", "crossing", "grad", "hooks", "is_leaf", "requires_grad", "retains", "segment",
        "slot", "version",
    )  # fmt: skip

    def __init__(self, requires_grad: bool, is_leaf: bool = True) -> None:
        self.requires_grad = requires_grad
        self.is_leaf = is_leaf
        self.grad: Any = None
        self.hooks: list[Any] = []
        self.after: list[Any] | None = None  # hooks for when `grad` has received one: (reference to the leaf, hook)
        # For a non-leaf that was synced: the trace that made it and its slot there (see autograd/saved_segment.py).
        self.segment: Any = None
        self.slot: Slot | None = None
        # For a view: the version of its storage that it was a view of there.
        self.version = -1
        # For a non-leaf: whether it keeps its gradient.
        self.retains = False
        # For a copy of a value on another device: which one (see autograd/transfers.py).
        self.crossing: Any = None
        # For an identity that a transformation gave a value: whether that is over, so that nobody asks by it any more.
        self.closed = False

    def successor(self) -> Gradient | None:
        """The record of the next value of a tensor that keeps its gradient; None where it keeps none.

        NOTE: this one still says where the graph of the value before goes on.
        """
        if not self.retains:
            return None
        found = Gradient(True, is_leaf=False)
        found.retains, found.grad = True, self.grad
        return found


class Holder:
    """Anything that holds one value: pending (`_slot`), computed (`_buffer`), or both."""

    __slots__ = ("__weakref__", "_buffer", "_inference", "_meta", "_slot", "_writes")

    _slot: Slot | None
    _buffer: Data | None
    _meta: Gradient | None
    _writes: int
    _inference: bool
    # What only handles may have.
    _storage: Storage | None = None
    _view: View | None = None

    if TYPE_CHECKING:  # what Tensor adds

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, data: Data | None = None, meta: Gradient | None = None) -> None:
        self._slot = None
        self._buffer = data
        self._meta = meta
        self._writes = 0

    @property
    def _version(self) -> int:
        """How many writes in place there were: one count for a base, its views and what was detached from it."""
        return self._writes


class Storage(Holder):
    """The value that a base and its views share; comes into being with the first view."""

    __slots__ = ("aliases", "shared")

    def __init__(self) -> None:
        super().__init__()
        self.shared = 0  # so many writes more are computed soon, because threads have taken turns (see inplace.py)
        self.aliases: list[weakref.ref[Handle]] = []

    def alive(self) -> list[tuple[weakref.ref[Handle], Handle]]:
        """The aliases that there are, with the references to them."""
        found = [(r, r()) for r in self.aliases]
        # NOTE: a view that gradients were asked for has its value to itself from then on (engine.own_value).
        return [(r, h) for r, h in found if h is not None and h._storage is self]

    def invalidate(self, keep: Handle | None) -> None:
        """After a write: every alias but `keep` must derive its value anew."""
        alive, aliases = [], self.aliases
        # NOTE: also those that another thread adds meanwhile: what it views may have been seen before the write.
        for r in aliases:
            h = r()
            # NOTE: a view that gradients were asked for has its value to itself from then on (engine.own_value).
            if h is not None and h._storage is self:
                alive.append(r)
                if h is not keep:
                    h._slot = None
        n = len(aliases)  # NOTE: nothing comes between this and the end of the loop
        fewer = len(alive) < n
        # NOTE: another thread may have added one meanwhile, or have done this. No call from here on.
        if self.aliases is not aliases:
            self.invalidate(keep)
        elif fewer:
            self.aliases = alive + aliases[n:]

    def prune(self) -> None:
        """Forget aliases that are gone."""
        aliases = self.aliases
        n = len(aliases)
        alive = [r for r in aliases[:n] if (h := r()) is not None and h._storage is self]
        if self.aliases is aliases:  # as above
            self.aliases = alive + aliases[n:]

    def let_go(self) -> None:
        """After a sync: `invalidate(None)`, but that a few aliases that are gone stay listed."""
        aliases, gone = self.aliases, False
        for r in aliases:
            h = r()
            if h is not None and h._storage is self:
                h._slot = None
            else:
                gone = True
        if gone and len(aliases) > GONE:
            self.invalidate(None)


class View:
    """How a handle is seen in its storage: one recorded view operation after another."""

    __slots__ = (
        "dtype", "inference", "ints", "key", "made_under_grad", "moves", "offsets", "op", "parent", "shape", "statics",
        "writable",
    )  # fmt: skip

    def __init__(
        self, parent: View | None, op: Any, statics: Any, ints: Any, offsets: Any, grad: bool, like: Slot
    ) -> None:  # fmt: skip
        self.parent = parent
        self.op = op
        self.statics = statics
        self.ints = ints
        self.offsets = offsets
        self.shape = like.shape
        self.dtype = like.dtype
        self.key: Any = None  # the key that `x[key]` made it with last
        self.moves: Any = None  # how NumPy sees it, once it was asked (see host_views.py)
        # As all views that led here: what is viewed under no_grad stays outside the graph.
        self.made_under_grad: bool = grad
        self.inference: bool = like.step.mode.inference
        self.writable: bool = op.write is not None
        if parent is not None:
            self.made_under_grad = grad and parent.made_under_grad
            self.inference = self.inference or parent.inference
            self.writable = self.writable and parent.writable


class Inference:
    """Which holders are known to hold inference tensors (see inference.py)."""

    # Whether this process has ever been in that mode: until then nothing is looked up.
    used = False

    @staticmethod
    def known(h: Holder) -> bool:
        """NOTE: the attribute is there only where it is true, so a new handle costs nothing more."""
        return Inference.used and hasattr(h, "_inference")

    @staticmethod
    def mark(h: Holder) -> None:
        """It is one from now on."""
        h._inference = True


class Handle(Holder):
    """The state of a Tensor. With a storage, `_slot` is only a cache of the view's value in this trace."""

    __slots__ = ("_storage", "_view")

    _storage: Storage | None
    _view: View | None

    @property
    def _version(self) -> int:
        return self._writes if self._storage is None else self._storage._writes


def detachment(h: Handle) -> View | None:
    """The last `detach` among the views that h is seen through."""
    view = h._view
    while view is not None and view.op.differentiable:
        view = view.parent
    return view


def is_detached(h: Handle) -> bool:
    """Whether h is a view through `detach`: what is done to it is outside the autograd graph."""
    return detachment(h) is not None
