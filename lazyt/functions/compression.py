"""`lazyt.memory.compress`: what a backward reads is kept in few bits."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from lazyt.backends.registry import backends
from lazyt.errors import NotSupportedError, SettingError
from lazyt.functions.arguments import tensor
from lazyt.functions.random import Generator, default_generator, get_state, set_state
from lazyt.functions.sensitivity import Sensitivity
from lazyt.interrupts import uninterrupted
from lazyt.ir import dtypes
from lazyt.ir.bit_allocation import allocate
from lazyt.ir.compression import BITS, PARTS_OF_A_BIT, Compression
from lazyt.ir.passes.offload import LEAST
from lazyt.ir.symbolic import hint, product
from lazyt.ops.compression import DRAW, MIXED_DRAW
from lazyt.runtime.context import sync
from lazyt.runtime.decorators import Context
from lazyt.runtime.device import Device
from lazyt.runtime.memory_budget import Budget
from lazyt.runtime.memory_policy import OFFLOAD, Policy, Saved
from lazyt.runtime.plan import Plan
from lazyt.tracing.current import restore_device, restore_mode, set_device, set_mode
from lazyt.tracing.record import current_device, record
from lazyt.tracing.trace import Step, Trace, local

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyt.ir.graph import Shape
    from lazyt.runtime.sync_report import SyncReport
    from lazyt.runtime.tensor import Tensor

__all__ = ["compress"]

# Of bits: an array is kept as it is.
FULL = 64
# level -> bits of an element, bits of what normalizations save; None: nothing is compressed.
MIXED = "L3"
# Levels that move arrays to the host's memory: those of L3, and what is not compressed.
MIXED_MOVED, SWAP = "L4", "swap"
LEVELS: dict[str, tuple[int, int] | None] = {"L0": None, "L1": (4, FULL), "L2": (4, 4)}
REFUSED = {
    "L3.1": "it is L3 with settings of cuDNN and of PyTorch's allocator, which lazyt has not",
    "L5": "it is L4 with an allocator that closes gaps, and lazyt's plans leave none; L4 has the same bits",
}
# Arrays that `compress.adapt` can tell apart, and the largest sensitivity.
MOST, CAP = 1024, 1e10
# Samples of a data set: each has a number for each array.
MOST_SAMPLES = 1 << 28
# Mixed into the seed of the thread's generator: the numbers of `lazyt.random` are not drawn twice.
_SALT = 0x5851F42D4C957F2D


class _Stream(threading.local):
    """How many blocks this thread has entered since its generator was made."""

    source: Generator | None = None
    counter = 0


_stream = _Stream()


def _next() -> tuple[int, int]:
    """The seed and the counter of a block; `lazyt.random.seed` begins again."""
    source = default_generator()
    if _stream.source is not source:
        _stream.source, _stream.counter = source, 0
    _stream.counter += 1
    return source.seed ^ _SALT, _stream.counter


class _Block(NamedTuple):
    """A block that was entered: the mode around it, its trace, where it began there, and the samples it was given."""

    outer: _Block | None  # of the same object and thread
    before: Any
    trace: int = 0
    start: Step | None = None
    samples: np.ndarray | None = None


class compress(Context):  # noqa: N801 - a context, as `lazyt.no_grad`
    """What is recorded in this block is kept for a backward in few bits, as a `with` block or a decorator.

    As ActNN (Chen et al., 2021), for any program: results are exact, and gradients are unbiased estimates. Arrays of
    real numbers that the backward multiplies cotangents with have `bits` bits (1, 2, 4 or 8; 2 by default) a value,
    and 32 more for each 256 values: they are rounded at random between a minimum and a maximum. Masks (ReLU, dropout)
    have one bit, the places of a max pooling four: these are exact. Inputs and parameters, arrays under 1 KiB and
    other integers stay as they are. What is recorded outside of the block, a loss say, is exact.

    level: "L0" compresses nothing, "L1" gives 4 bits to all but what normalizations save, "L2" 4 bits to all; `bits`
    are then in place of the 4. "L3" gives each sample (along the first axis) and each array bits of its own, 1 to 8,
    `bits` on average, which may be a fraction there: by the range of its values and by how large its gradients were in
    earlier steps, which the object remembers. So it is made once, before the loop, and serves one program of one
    thread; `samples` says which samples a batch has. Bits are values: others are no other plan. "L4" has the same bits
    as "L3", and packed arrays of at least 64 KiB lie in the host's pinned memory between the passes; "swap" compresses
    nothing, and moves arrays of at least 64 KiB as they are, as a policy of `budget` that says "offload". Both are for
    a GPU; where a sync falls between the passes, what it stores stays there.

    The random numbers follow `lazyt.random.seed`, and are not those of `lazyt.random`. device: where the arrays are,
    for level "L3" and `adapt`; that of `lazyt.device(...)` by default. Arrays on another device have equal bits.

    Raises ValueError for other bits or levels, NotSupportedError for ActNN's levels "L3.1" and "L5", and for "L4" and
    "swap" on a device whose memory is the host's.

    >>> import lazyt as lt
    >>> x, w = lt.ones((64, 64)), lt.ones((64, 64)).requires_grad_()
    >>> with lt.memory.compress(bits=2):
    ...     y = lt.nn.functional.relu(x @ w)
    >>> y.sum().backward()
    >>> float(w.grad[0, 0])
    64.0
    """

    def __init__(self, bits: float | None = None, level: str | None = None, *, device: Any = None) -> None:
        if isinstance(level, str) and level in REFUSED:
            raise NotSupportedError(f"not supported: compress(level={level!r}), because {REFUSED[level]}")
        known = (*LEVELS, MIXED, MIXED_MOVED, SWAP)
        if level is not None and (not isinstance(level, str) or level not in known):
            raise ValueError(f"compress: the levels are {', '.join(known)}, got {level!r}")
        self._bits, self._level = bits, level
        self._device = current_device() if device is None else Device.check(device)
        if level in (MIXED_MOVED, SWAP) and not backends[self._device].capabilities(self._device).offload:
            also = "; L3 has the same bits" if level == MIXED_MOVED else ""
            raise NotSupportedError(
                f"not supported: compress(level={level!r}) on {str(self._device)!r}, because arrays there do not move "
                f"to the host's memory{also}"
            )
        self._blocks: dict[Trace, _Block] = {}  # of each thread, by its trace, the innermost one
        self._probe: tuple[int, int, Tensor] | None = None
        self._samples: np.ndarray | None = None
        self._sensitivity: Sensitivity | None = None
        if level in (MIXED, MIXED_MOVED):
            self._mix(2 if bits is None else bits)
            return
        if level == SWAP:
            if bits is not None:
                raise ValueError(f"compress: level={level!r} keeps arrays as they are, got bits={bits!r}")
            self._settings = None
            return
        if bits is not None and (type(bits) is not int or bits not in BITS):
            raise ValueError(f"compress: bits are one of {', '.join(map(str, BITS))}, got {bits!r}")
        each = (2, 2) if level is None else LEVELS[level]
        if each is not None and bits is not None:
            each = bits, each[1] if each[1] == FULL else bits
        self._settings = None if each is None else Compression(*each)

    def __enter__(self) -> Self:
        tr = local.trace
        outer = self._blocks.get(tr)
        if self._level == SWAP:
            self._blocks[tr] = _Block(outer, set_mode("memory", _swapping(tr.mode.memory)))
            return self
        settings, probe, samples = self._settings, self._probe, self._samples
        if settings is not None and probe is not None:
            settings = replace(settings, table=(), probes=True)
        if settings is not None and samples is not None:
            settings = replace(settings, by_sample=True)
        before = set_mode("compress", settings)
        if settings is not None:
            try:
                self._draw(samples)
            except BaseException:
                restore_mode("compress", before)
                raise
        self._blocks[tr] = _Block(outer, before, tr.number, tr.pos, samples)
        self._samples = None
        return self

    def _draw(self, samples: np.ndarray | None) -> None:
        """What is recorded from here on is rounded by numbers of its own."""
        if self._sensitivity is None:
            record(DRAW, _next() if self._probe is None else self._probe)
            return
        told, averages = self._sensitivity.told(samples)
        _, report = record(MIXED_DRAW, (*_next(), self._placed(told)), ints=averages)
        self._sensitivity.wait(report, samples)

    @uninterrupted
    def __exit__(self, *exc: object) -> None:
        # NOTE: no call before the mode is restored.
        tr = local.trace
        block = self._blocks[tr]
        restore_mode("memory" if self._level == SWAP else "compress", block.before)
        if block.outer is None:
            del self._blocks[tr]
        else:
            self._blocks[tr] = block.outer
        if exc[0] is not None or self._settings is None:
            return
        if tr.number != block.trace:
            # A sync came between: what the block has recorded since then draws from here.
            self._draw(block.samples)
        elif block.samples is not None:
            _check_samples(len(block.samples), tr.pos, block.start)

    def _again(self) -> Context:
        made = type(self)(self._bits, self._level, device=self._device)
        made._settings, made._sensitivity, made._samples = self._settings, self._sensitivity, self._samples
        return made

    def _placed(self, x: np.ndarray) -> Tensor:
        """x where the arrays are."""
        before = set_device(self._device)
        try:
            return tensor(x)
        finally:
            restore_device(before)

    def _mix(self, average: float) -> None:
        if type(average) not in (int, float) or not 1 <= average <= 8:
            raise ValueError(f"compress: at level {self._level!r} bits are an average from 1 to 8, got {average!r}")
        fixed = max(b for b in BITS if b <= average)
        parts = int(average * PARTS_OF_A_BIT)
        self._settings = Compression(fixed, fixed, mixed=parts, moves=self._level == MIXED_MOVED)
        self._sensitivity = Sensitivity(parts / PARTS_OF_A_BIT)

    def samples(self, indices: Any) -> Self:
        """Say which samples of a data set the next block has: their bits follow their own gradients. At level "L3".

        indices: whole numbers from 0 on, of the samples in their order along the first axis: what a `DataLoader` yields
        beside each batch by `with_indices=True`. Returns the object itself, for `with`. Raises ValueError at another
        level and for other indices, and at the end of the block where no array of it has so many rows.

        >>> import lazyt as lt
        >>> compression = lt.memory.compress(bits=2, level="L3")
        >>> x, w = lt.ones((4, 256)), lt.ones((256, 256)).requires_grad_()
        >>> with compression.samples([7, 0, 3, 5]):
        ...     y = lt.tanh(x @ w)
        """
        if self._sensitivity is None:
            raise ValueError(f"compress: samples have bits of their own at level {MIXED!r}, this has {self._level!r}")
        found = np.asarray(indices)
        if found.ndim != 1 or dtypes.host_kind(found.dtype) not in "iu" or not found.size or found.min() < 0:
            raise ValueError(f"compress: indices of samples are whole numbers from 0 on, got {indices!r}")
        if found.max() >= MOST_SAMPLES:
            raise ValueError(
                f"compress: indices of samples are rows of a table, below {MOST_SAMPLES}, got {found.max()}"
            )
        self._samples = found.astype(np.int64)
        return self

    def adapt(self, gradients: Callable[[], Sequence[Tensor]], average: float | None = None) -> list[int]:
        """Give each array of a program the bits that its gradients need, `average` for an element; as GACT.

        `gradients` computes gradients, with this object's block around the forward pass, and returns them. It is
        called three times for each array that is rounded, and once more: with the array at one bit, twice with
        different random numbers, and at eight. How much these gradients differ says how sensitive they are to it; bits
        are 1, 2, 4 or 8, and the average is `bits` by default. All else draws the same random numbers in each call,
        dropout too. Each call is synced, and what it writes (running statistics) is written each time.

        Returns the bits of the arrays, in the order of the program, which has them from the next block on; that is
        another plan. A program with another number of arrays has `bits` for all. Raises ValueError where nothing is
        compressed, or for an average below 1.
        """
        settings = self._settings
        if settings is None:
            raise ValueError(f"compress: level={self._level!r} has nothing to adapt")
        if self._sensitivity is not None:
            raise ValueError(f"compress: level={self._level!r} adapts its bits by itself")
        average = settings.bits if average is None else average
        if average < 1:
            raise ValueError(f"compress: an average of at least 1 bit is required, got {average!r}")
        state, own = get_state(), _next()
        found: list[Any] = []

        def differentiated(change: Mapping[tuple[int, int], float]) -> list[Any]:
            tops = np.zeros((2, MOST), np.float32)
            tops[0] = 2.0**settings.bits - 1
            for where, value in change.items():
                tops[where] = value
            self._probe = (*own, self._placed(tops))
            set_state(state)
            tr, rounded = local.trace, _Rounded()
            before, tr.expectations = tr.expectations, [*tr.expectations, rounded]
            try:
                out = [*gradients()]
                sync(*out)
            finally:
                self._probe = None
                tr.expectations = before
            found[:] = [rounded.shapes]
            return [np.asarray(x.numpy(), np.float64) for x in out]

        differentiated({})
        shapes = found[0] if found else ()
        if not shapes:
            raise ValueError("compress: no array is rounded in what `gradients` computes within this block")
        if len(shapes) > MOST:
            raise NotSupportedError(
                f"not supported: compress.adapt of {len(shapes)} arrays, because {MOST} are the most"
            )
        sensitivity = []
        for i in range(len(shapes)):
            first, second, fine = (
                differentiated(change) for change in ({(0, i): 1}, {(0, i): 1, (1, i): 1}, {(0, i): 255})
            )
            sensitivity.append(min(max(_apart(first, second), 2 * _apart(first, fine), 2 * _apart(second, fine)), CAP))
        sizes = [hint(product(s)) for s in shapes]
        bits = allocate(sensitivity, average * sum(sizes), sizes, BITS)
        self._settings = replace(settings, table=tuple(bits))
        return bits


def _check_samples(given: int, last: Step, first: Step | None) -> None:
    """ValueError where something was recorded in a block, and nothing of so many samples."""
    found: dict[int, None] = {}
    s: Step | None = last
    while s is not None and s is not first:
        for slot in s.slots:
            if len(slot.shape) > 1:
                if slot.shape[0] == given:
                    return
                found[slot.shape[0]] = None
        s = s.parent
    if found:
        rows = ", ".join(map(str, sorted(found)))
        raise ValueError(
            f"compress: samples were given {given} indices, and no array of the block has {given} rows (they have "
            f"{rows}); there is one for each sample along the first axis"
        )


def _swapping(around: Budget | None) -> Budget:
    """A budget whose policy moves all that is large; the bytes of the one around it."""
    if around is not None and around.policy is not None:
        raise SettingError(f"compress: level={SWAP!r} is a policy of memory.budget, and there is one already")
    return Budget(None if around is None else around.nbytes, _SWAP)


def _offload(value: Saved) -> str | None:
    return OFFLOAD if value.nbytes >= LEAST else None


_SWAP = Policy(_offload)


class _Rounded:
    """The shapes of the arrays that a program rounds, whichever of its syncs does."""

    def __init__(self) -> None:
        self.shapes: Sequence[Shape] = ()

    def note(self, report: SyncReport) -> None:
        """A sync was done."""
        if isinstance(report.plan, Plan):
            self.shapes = max(self.shapes, report.plan.graph.rounded, key=len)


def _apart(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    """The squared distance of gradients."""
    return float(sum(((x - y) ** 2).sum() for x, y in zip(xs, ys, strict=True)))
