"""Modes of running a program: sync points, fusion, known or new plans, device, number of threads.

A mode runs in a trace of its own, whose trie is discarded at every sync: each step keeps the line that recorded it, no
plan or prediction from outside is used or left behind, and the executed program can be inspected afterwards.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import lazyt as lt
from lazyt.backends.registry import available, host
from lazyt.config import HOST, cpu as switches, general
from lazyt.ir import graph as g
from lazyt.runtime import chain, division, first_run, memory, plan, plan_cache, sync as syncing
from lazyt.runtime.device import Device
from lazyt.testing.closeness import Work, work_of
from lazyt.tracing.call_site import user_site
from lazyt.tracing.current import restore_device, set_device
from lazyt.tracing.lower import lower
from lazyt.tracing.program import Slot
from lazyt.tracing.tensor_state import Data
from lazyt.tracing.trace import Ext, Step, Trace, local

NEVER, ALWAYS, RANDOM = "never", "always", "random"
# How much work is divided among threads, and which results may take the memory of inputs.
_SIZES = host().work_sizes
# Where programs are divided, if they are at all: the sizes of `lazyt/runtime/division.py`.
_DIVIDED = {
    (division, "MIN_WEIGHT"): 64, (division, "MIN_TRAINING_WEIGHT"): 64, (division, "PART_WEIGHT"): 8,
    (division, "MIN_OPENED_WEIGHT"): 48, (division, "MIN_OPENED_ITERATIONS"): 3, (division, "OPENED_PART_WEIGHT"): 24,
}  # fmt: skip
# Plans of one operation that were bound while work was divided finely: nobody else should run by them.
_fine_kinds: dict[Any, Any] = {}
# Those of a mode in which all is interpreted that may be.
_kinds_by_numpy: dict[Any, Any] = {}


@dataclass(frozen=True)
class Mode:
    """One way to run a program."""

    name: str
    sync: str = NEVER  # never (but for what the program itself reads), always (after each operation), random
    seed: int = 0  # of the random places
    places: frozenset[int] | None = None  # sync after these operations, counted from 1, instead
    fuse: bool = True
    tiers: bool = False
    threads: int | None = None
    repeat: int = 1  # run it so often, the last time counts: from the second time on its plans are known
    device: str = HOST
    off: tuple[str, ...] = ()  # what LAZYT_DEBUG=no-... turns off
    interpret: bool = False  # the interpreter of the graph IR in place of kernels
    fine: bool = False  # small programs divide work among threads and overwrite inputs as large ones do
    first: bool = False  # exact steps of a small program by NumPy, each time as if it were the first in the process
    divided: bool = False  # programs run in parts, and backwards with them, as far longer ones do
    short: bool = False  # recorded and synced as users do, by the shortest ways: what is tried is that these agree

    def due(self) -> Callable[[int], bool]:
        """Whether to sync after operation n; ask once an operation, in order."""
        if self.places is not None:
            return self.places.__contains__
        if self.sync == RANDOM:
            rng = random.Random(self.seed)
            return lambda n: rng.random() < 0.3
        return lambda n: self.sync == ALWAYS

    def __str__(self) -> str:
        return self.name if self.device == HOST else f"{self.name}, on {self.device}"


@dataclass
class Program:
    """What was pending at one sync, with all that it takes to compute it again."""

    pos: Step
    ext: Ext
    scalars: list[Any]
    inputs: list[Data]

    @property
    def steps(self) -> list[Step]:
        return self.pos.steps()

    def work(self, slots: Sequence[Slot] | None = None) -> Work:
        """The primitives of the whole program, or of these values."""
        low = lower(self.steps, self.ext.values, self.scalars)
        wanted = list(low.nodes.values()) if slots is None else [low.nodes[s] for s in slots]
        return work_of(g.reachable(wanted))

    def primitives(self) -> list[str]:
        """The primitives that its last step wrote, a line each."""
        low = lower(self.steps, self.ext.values, self.scalars)
        return [g.node_line(n) for n in low.builder.nodes[low.starts[-1] :]]

    def compute(self, slots: Sequence[Slot], fused: bool) -> list[np.ndarray[Any, Any]]:
        """These values, through kernels that are planned for them alone."""
        made = plan.build(self.pos.program, self.ext.values, slots, self.scalars, fused)
        made.compile(self.ext.values, self.scalars)
        return [memory.as_array(d) for d in made.run(self.ext.values, self.scalars, self.inputs, slots)]


class Watched(Trace):
    """A trace that syncs when it is told to, keeps the programs that it ran, and remembers none of them."""

    def __init__(self, due: Callable[[int], bool], forget: bool = True, keep: bool = False) -> None:
        self.due = due
        self.forget = forget
        self.keep = keep
        self.forced = False
        self.operations = 0
        self.synced: list[int] = []  # after which operations
        self.programs: list[Program] = []
        super().__init__()
        self.watched = True

    # NOTE: recording asks once an operation, after it is recorded.
    @property
    def eager(self) -> bool:
        self.operations += 1
        if not (self.forced or self.due(self.operations)):
            return False
        self.synced.append(self.operations)
        return True

    @eager.setter
    def eager(self, value: bool) -> None:
        self.forced = value

    def start(self) -> None:
        """A trace has ended: keep it, and discard its path in the trie."""
        pos = getattr(self, "pos", None)
        if pos is not None and pos.parent is not None:
            if self.keep:
                scalars = self.scalars[: pos.scalar_start + pos.n_scalars]
                self.programs.append(Program(pos, self.ext, scalars, self.inputs))
            if self.forget:
                super().start()
                self.reset_trie()
                plan_cache._programs.clear()
                return
        super().start()


@contextlib.contextmanager
def mode(m: Mode, keep: bool = False) -> Iterator[Any]:
    """Run what is inside in a mode; what was pending outside is computed before, what is pending inside after.

    Gives the trace, a `Watched` one unless the mode is `short`. Raises DeviceError for a device that is not there.
    """
    check_device(m.device)
    outer = local.trace
    syncing.sync(outer, "lazyt.testing", user_site())
    inner: Trace = Trace() if m.short else Watched(m.due(), forget=m.repeat == 1, keep=keep)
    inner.mode = outer.mode.near["device", HOST]
    inner.start()
    settings, programs, threads = dict(general), plan_cache._programs, lt.get_num_threads()
    kinds, interpreted = first_run._kinds, first_run.INTERPRETED
    allowed, templates = dict(switches), chain._templates
    sizes = [(module, name, getattr(module, name)) for module, name in (*_SIZES, *_DIVIDED)]
    try:
        general.update(strict=True, fuse=m.fuse, tiers=m.tiers, interpret=m.interpret or settings["interpret"])
        general["first"] = m.first
        for name in m.off:
            (switches if name in switches else general)[name] = False
        if m.fine:
            first_run._kinds = _fine_kinds
            for module, name in _SIZES:
                setattr(module, name, 1)
        if m.first:
            first_run._kinds, first_run.INTERPRETED = _kinds_by_numpy, sys.maxsize
        plan_cache._programs, chain._templates = {}, {}
        if m.divided:
            for (module, name), size in _DIVIDED.items():
                setattr(module, name, size)
        if m.threads is not None:
            lt.set_num_threads(m.threads)
        local.trace = inner
        yield inner
        inner.eager = False
        syncing.sync(inner, "lazyt.testing", user_site())
    finally:
        local.trace = outer
        general.update(settings)
        switches.update(allowed)
        for module, name, size in sizes:
            setattr(module, name, size)
        chain._templates = templates
        plan_cache._programs, first_run._kinds, first_run.INTERPRETED = programs, kinds, interpreted
        if m.threads is not None:
            lt.set_num_threads(threads)


@contextlib.contextmanager
def watching(m: Mode) -> Iterator[None]:
    """Sync where a mode says, and change nothing else, for a test suite's run."""
    if m.sync == NEVER and m.places is None:
        yield
        return
    outer = local.trace
    syncing.sync(outer, "lazyt.testing", user_site())
    inner = Watched(m.due(), forget=False)
    inner.mode = outer.mode.near["device", HOST]
    inner.start()
    local.trace = inner
    try:
        yield
    finally:
        local.trace = outer


@contextlib.contextmanager
def on_device(name: str) -> Iterator[None]:
    """Make tensors on this device where none is named; DeviceError for one that is not there."""
    before = set_device(check_device(name))
    try:
        yield
    finally:
        restore_device(before)


def check_device(name: str) -> Device:
    """The device of this name; DeviceError where it is not there."""
    return Device.check(name)


def devices() -> list[str]:
    """The kinds of devices that are there: 'cpu', and 'cuda' where there is one."""
    return available()


# What a small program's first run is: each operation through a plan that all programs share. Users have NumPy do the
# exact ones until they have come often.
FIRST_RUN = Mode("a first run", tiers=True)
FIRST_BY_NUMPY = Mode("a first run, by NumPy where that has the same bits", tiers=True, first=True)
FIRST_RUN_EACH = Mode("a first run, synced after each operation", ALWAYS, tiers=True)
FIRST = Mode("synced at the end", threads=1)
EAGER = Mode("synced after each operation", ALWAYS)
UNFUSED = Mode("one kernel an operation", fuse=False)
AGAIN = Mode("run again, its plans known", tiers=True, repeat=3)


def modes(sync: str, seed: int, backend: str = HOST) -> list[Mode]:
    """The modes of a `sync=` argument: 'all', 'never', 'always' or 'random'; ValueError for any other."""
    at_random = [
        Mode(f"synced at random (seed {seed + i})", RANDOM, seed + i, tiers=bool(i % 2)) for i in range(3)
    ]  # fmt: skip
    table = {
        NEVER: [FIRST, UNFUSED, AGAIN],
        ALWAYS: [EAGER],
        RANDOM: at_random,
        "all": [EAGER, FIRST, UNFUSED, AGAIN, *at_random],
    }
    if sync not in table:
        raise ValueError(f"sync={sync!r}: one of {', '.join(map(repr, table))} is required")
    return [replace(m, device=backend) for m in table[sync]]


@dataclass
class Run:
    """What a mode gave: values by name, and how it ran."""

    mode: Mode
    values: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    synced: list[int] = field(default_factory=list)
    structure: Any = None
    work: dict[str, Work] = field(default_factory=dict)
