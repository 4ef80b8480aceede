"""Contexts and controls of the calling thread: grad mode, syncs that are asked for, refused or counted, eager mode."""

from __future__ import annotations

from collections.abc import Mapping
from sys import _getframe
from typing import TYPE_CHECKING, Any, Self

from lazyt import on_demand
from lazyt.backends.common import precision as precisions
from lazyt.backends.registry import host
from lazyt.errors import SyncError
from lazyt.interrupts import uninterrupted
from lazyt.runtime import sync as syncing
from lazyt.runtime.decorators import Context
from lazyt.runtime.device import Device
from lazyt.runtime.sync_report import SyncReport
from lazyt.tracing.call_site import user_site
from lazyt.tracing.current import restore_device, restore_grad_mode, set_device, set_grad_mode, set_mode
from lazyt.tracing.mode import FIRST
from lazyt.tracing.record import is_grad_enabled
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.trace import Trace, local
from lazyt.tracing.tracebacks import api_boundary, filter_traceback, filters_itself

if TYPE_CHECKING:
    from lazyt.inspect import fallbacks
else:
    fallbacks = on_demand.module("lazyt.inspect.fallbacks")


_new = object.__new__


class no_grad(Context):  # noqa: N801 - a name that other programs rely on
    """Record operations without gradients, in a `with` block or as a decorator, with parentheses or without.

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> with lt.no_grad():
    ...     (w * 2).requires_grad
    False
    """

    def __new__(cls, f: Any = None) -> Self:
        made = _new(cls)
        return made if f is None else made(f)  # a decorator without parentheses

    def __enter__(self) -> Self:
        self._before = set_grad_mode(False)
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        restore_grad_mode(self._before)


class enable_grad(Context):  # noqa: N801
    """Record gradients again inside `no_grad`."""

    def __new__(cls, f: Any = None) -> Self:
        made = _new(cls)
        return made if f is None else made(f)  # a decorator without parentheses

    def __enter__(self) -> Self:
        self._before = set_grad_mode(True)
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        restore_grad_mode(self._before)


class device(Device, Context):  # noqa: N801 - the Array API's word
    """A device by its name, or by kind and number; as a context, where values that are made from nothing are made.

    Those are zeros, ranges, random numbers. It is what `to`, `device=` and `map_location` take, and equals the name.
    Raises DeviceError for a device that is not there. As `torch.device`.

    >>> import lazyt as lt
    >>> with lt.device("cpu"):
    ...     lt.zeros(3).device
    Device('cpu')
    >>> d = lt.device("cpu")
    >>> lt.ones(3).to(d).device == d
    True
    """

    # By level of contexts: the device of the thread before, and what stood here.
    _before: tuple[Any, Any] | None

    @api_boundary
    def __new__(cls, name: Any, index: int | None = None) -> Self:
        made = super().__new__(cls, Device.check(name if index is None else f"{name}:{index}"))
        made._before = None
        return made

    def __enter__(self) -> Self:
        self._before = (set_device(Device(self)), self._before)
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        assert self._before is not None, "entered before"
        restore_device(self._before[0])
        self._before = self._before[1]

    def _again(self) -> Context:
        return type(self)(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),)


def _tensors_of(given: Any) -> list[Handle]:
    """The tensors in lists, tuples and dictionaries, nested in each other, in order."""
    found: list[Handle] = []
    left = [given]
    while left:
        x = left.pop()
        if isinstance(x, Handle):
            found.append(x)
        elif isinstance(x, list | tuple):
            left += x[::-1]
        elif isinstance(x, Mapping):
            left += [*x.values()][::-1]
        else:
            raise TypeError(
                f"sync: tensors are required, or lists, tuples and dictionaries of them, not {type(x).__name__!r}"
            )
    return found


@filters_itself
def sync(*tensors: Any) -> None:
    """Compute everything alive that is pending in this thread, `tensors` among it, in one plan.

    A tensor may stand in lists, tuples and dictionaries, nested in each other: `lt.sync(lt.linalg.eigh(x), state)`.
    TypeError for anything else. As `jax.block_until_ready`.

    Errors that only running can find (an index read from data, no memory) are raised here, naming the line that
    recorded them, and leave everything pending as it was.

    >>> import lazyt as lt
    >>> x = lt.ones(3) + 1
    >>> lt.sync()
    >>> x
    <lazyt.Tensor shape=(3,) dtype=float32 device=cpu [2., 2., 2.]>
    """
    try:
        tr = local.trace
        if not tensors:
            pos = tr.pos
            again = pos.again
            if again and not (tr.syncs_forbidden or tr.busy or tr.mode.inference or tr.effects):
                # Mostly it does what the last one here did, or the last one of these extents.
                if again.ext is not tr.ext:
                    again = pos.again = again.by_extents.get(tr.ext, again)
                here = _getframe(1)
                if again.lasti != here.f_lasti or again.code is not here.f_code:
                    syncing.called_from(again, here)
                if again.run(tr, "sync()", again.site):
                    if tr.expectations:
                        syncing.expected(tr)
                    return
            elif pos.parent is None:
                return
        given = _tensors_of(tensors)
        syncing.sync(tr, "sync()", user_site())
        for t in given:
            syncing.materialise(t, "sync()")
    except Exception as error:
        filter_traceback(error)
        raise


class no_sync(Context):  # noqa: N801
    """Refuse hidden syncs: SyncError at the line that would compute.

    On a GPU also at the end of the block, naming what was recorded in it that has no GPU form: a sync would wait for
    the device there, while the host computes.

    >>> import lazyt as lt
    >>> x = lt.ones(2)
    >>> with lt.no_sync():
    ...     y = x + 1
    """

    def __init__(self) -> None:
        # Of each thread, by its trace, the innermost block of this object: its first step and its line, what was
        # forbidden before and within it, and the next block.
        self._blocks: dict[Trace, Any] = {}

    def __enter__(self) -> Self:
        tr = local.trace
        site, before = user_site(), tr.syncs_forbidden
        within = [*before, site]
        self._blocks[tr] = tr.pos.index + 1, site, before, within, self._blocks.get(tr)
        tr.syncs_forbidden = within
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        # NOTE: no call before the block has ended, where blocks are nested.
        tr = local.trace
        first, site, before, within, self._blocks[tr] = self._blocks[tr]
        if tr.syncs_forbidden is within:
            tr.syncs_forbidden = before
        else:  # blocks overlap: each takes out its own entry
            tr.syncs_forbidden = [x for x in tr.syncs_forbidden if x is not site]
        if self._blocks[tr] is None:
            del self._blocks[tr]
        hosted = fallbacks.recorded_fallbacks(tr, first) if exc[0] is None else ()
        if hosted:
            lines = "".join(f"\n  {line}" for line in hosted)
            raise SyncError(f"no_sync (entered at {site}): a sync would wait for the host to do{lines}")


class expect(Context):  # noqa: N801
    """Assert what happens inside the block: how many syncs, new plans, compiles and kernels. For tests.

    Raises SyncError at the end of the block, naming every sync with its cause, where a count differs.

    >>> import lazyt as lt
    >>> with lt.expect(syncs=1):
    ...     _ = float(lt.ones(()) + 1)
    """

    def __init__(
        self,
        *,
        syncs: int | None = None,
        plans: int | None = None,
        compiles: int | None = None,
        kernels: int | None = None,
    ) -> None:
        self.want = {"syncs": syncs, "plans": plans, "compiles": compiles, "kernels": kernels}

    def _again(self) -> expect:
        return expect(**self.want)

    def note(self, report: SyncReport) -> None:
        """Called at every sync inside the block."""
        self.reports.append(report)

    def __enter__(self) -> Self:
        self.reports: list[SyncReport] = []
        self.site = user_site()
        tr = local.trace
        self._before = tr.expectations
        self._within = tr.expectations = [*self._before, self]
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        tr = local.trace
        if tr.expectations is self._within:
            tr.expectations = self._before
        else:  # blocks overlap, as in `no_sync`
            tr.expectations = [x for x in tr.expectations if x is not self]
        if exc[0] is not None:
            return
        got = {
            "syncs": len(self.reports),
            "plans": sum(r.plans for r in self.reports),
            "compiles": sum(r.compiles for r in self.reports),
            "kernels": sum(r.kernels for r in self.reports),
        }
        wrong = [f"{got[k]} {k}, expected {n}" for k, n in self.want.items() if n is not None and got[k] != n]
        if wrong:
            lines = "".join(f"\n  {r.cause} at {r.site}: {r.plans} plans, {r.compiles} compiles, {r.kernels} kernels"
                            for r in self.reports)  # fmt: skip
            raise SyncError(f"expect (entered at {self.site}): {'; '.join(wrong)}{lines}")


class eager(Context):  # noqa: N801
    """Run each operation as it is recorded, with identical results; for debugging.

    >>> import lazyt as lt
    >>> with lt.eager():
    ...     x = lt.ones(2) + 1
    >>> x
    <lazyt.Tensor shape=(2,) dtype=float32 device=cpu [2., 2.]>
    """

    def __enter__(self) -> Self:
        tr = local.trace
        self._before = tr.eager, tr.watched
        if not tr.eager:
            syncing.sync(tr, "eager", user_site())
        tr.eager = tr.watched = True
        return self

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        tr = local.trace
        tr.eager, tr.watched = self._before


def last_sync() -> SyncReport | None:
    """What this thread's last sync did: cause, user line, plan hit or why not, kernels, times. None before the first.

    >>> import lazyt as lt
    >>> x = float(lt.ones(()) + 1)
    >>> lt.last_sync().cause
    'float()'
    """
    return syncing.last_report()


def set_num_threads(n: int) -> None:
    """Use n threads for kernels and matrix products (default: the processors this process may use).

    Results do not depend on it.

    >>> import lazyt as lt
    >>> lt.set_num_threads(lt.get_num_threads())
    """
    host().set_num_threads(n)


def get_num_threads() -> int:
    """How many threads kernels use.

    >>> import lazyt as lt
    >>> lt.get_num_threads() >= 1
    True
    """
    return host().get_num_threads()


def set_flush_denormal(mode: bool) -> bool:
    """Take numbers below the smallest normal one as zeros in kernels and products on the CPU; whether it can do so.

    A processor takes up to a hundred times as long for such numbers (below 1.2e-38 in float32), which a state of Adam
    or a running mean that decays ends in. By default they are computed as IEEE 754 says. It holds for the process, for
    all that runs from now on; functions of NumPy's that lazyt calls (`linalg`, `fft`) compute as before. False, and
    nothing is changed, on processors without such a mode. As `torch.set_flush_denormal`.

    >>> import lazyt as lt
    >>> if lt.set_flush_denormal(True):
    ...     (lt.asarray(1e-40) * 1.0).item()
    0.0
    >>> _ = lt.set_flush_denormal(False)
    """
    able = host().set_flush_denormal(bool(mode))
    precisions.set_flushes(able and bool(mode))
    return able


def set_float32_matmul_precision(precision: str) -> None:
    """How exactly float32 matrices are multiplied: 'highest' (as float32, the default), 'high' or 'medium'.

    With 'medium' a CPU that has AMX rounds operands to bfloat16 (7 bits of mantissa) and adds in float32, forward and
    backward, where that is faster: in products of 16 rows and 32 terms or more, but not with a vector. It holds for
    what is recorded from now on, by this thread and those that start later. With 'high' or 'medium' a GPU rounds them
    to tf32 (10 bits) in products that run from now on. ValueError for another word. As
    `torch.set_float32_matmul_precision`.

    >>> import lazyt as lt
    >>> lt.set_float32_matmul_precision("highest")
    """
    if precision not in precisions.PRECISIONS:
        words = ", ".join(map(repr, precisions.PRECISIONS))
        raise ValueError(f"set_float32_matmul_precision: {precision!r} is none of {words}")
    precisions.set_precision(precision)
    _round("products", precision == "medium")


def get_float32_matmul_precision() -> str:
    """How exactly float32 matrices are multiplied. As `torch.get_float32_matmul_precision`.

    >>> import lazyt as lt
    >>> lt.get_float32_matmul_precision()
    'highest'
    """
    return precisions.precision()


def set_float32_convolution_precision(precision: str) -> None:
    """How exactly float32 convolutions are computed: 'highest' (each window a sum, the default), 'high' or 'medium'.

    With 'high' a window of 3 x 3 and stride 1 may go by Winograd's algorithm, F(4 x 4, 3 x 3): a quarter of the
    multiply-adds, forward and backward, and about five times the rounding errors, so other bits. With 'medium' a CPU
    that has AMX may also round images and filters to bfloat16 (7 bits of mantissa), and add in float32. Each is used on
    the CPU where it is faster, for what is recorded from now on ('medium': by this thread and those that start later);
    derivatives are computed as their convolution. ValueError for another word.

    >>> import lazyt as lt
    >>> lt.set_float32_convolution_precision("highest")
    """
    if precision not in precisions.CONVOLUTIONS:
        words = ", ".join(map(repr, precisions.CONVOLUTIONS))
        raise ValueError(f"set_float32_convolution_precision: {precision!r} is none of {words}")
    precisions.set_convolutions(precision)
    _round("convolutions", precision == "medium")


def _round(what: str, allowed: bool) -> None:
    """Allow to round the operands of products or of convolutions, or do not: here, and in threads that start later."""

    def changed(rounded: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({*rounded, what} if allowed else {*rounded} - {what}))

    FIRST[0] = FIRST[0].near["rounded", changed(FIRST[0].rounded)]
    set_mode("rounded", changed(local.trace.mode.rounded))


def get_float32_convolution_precision() -> str:
    """How exactly float32 convolutions are computed: see `set_float32_convolution_precision`.

    >>> import lazyt as lt
    >>> lt.get_float32_convolution_precision()
    'highest'
    """
    return precisions.convolutions()


__all__ = [
    "device", "eager", "enable_grad", "expect", "get_float32_convolution_precision", "get_float32_matmul_precision",
    "get_num_threads", "is_grad_enabled", "last_sync", "no_grad", "no_sync", "set_float32_convolution_precision",
    "set_float32_matmul_precision", "set_flush_denormal", "set_num_threads", "sync",
]  # fmt: skip
