"""What a workload is: one record, and one way to compute it for each library that can. And what is found of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WARM_UP = 3  # calls between the first and the timed ones: plans settle, pages are touched

Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]
# build(peer, inputs) -> call: one call is what is timed. It returns what `Peer.numpy` turns into the result's arrays;
# where a library keeps them in another layout, `call.results(returned)` gives them in the reference's.
Build = Callable[[Any, Inputs], Callable[[], Any]]


@dataclass(frozen=True)
class Workload:
    """One thing to measure.

    inputs(quick) gives the arrays, the same in every process; reference(inputs) the results in float64; `builds` has,
    by the library's name, how to make the call. Times are divided by `per` and given in `unit` (seconds times `scale`).
    """

    name: str
    what: str
    inputs: Callable[[bool], Inputs]
    reference: Callable[[Inputs], Sequence[Array]]
    builds: Mapping[str, Build]
    unit: str = "ms"
    scale: float = 1e3
    per: Callable[[Inputs], float] = lambda inputs: 1.0
    # What must move and be computed whoever does it, for the limit: None where that is not the point.
    nbytes: Callable[[Inputs], float] | None = None
    flops: Callable[[Inputs], float] | None = None
    # Whether a call changes what the next one gives: then the reference is of the last warm-up call.
    stateful: bool = False
    # Whether every call must be one that the process has not seen: then none is repeated for the sake of a time.
    fresh: bool = False
    # What is timed is a new process, from its start to its first result: "cold" with empty caches, or "warm".
    start: str = ""
    rtol: float = 1e-5
    atol: float = 1e-6
    # The share of elements that may be further off, where results branch on a rounding (an argmin, a mask, the sign
    # of a gradient that is 0).
    outside: float = 0.0

    @property
    def trains(self) -> bool:
        """Whether it is a training step: its memory is compared too."""
        return self.name.endswith("_step")


@dataclass
class Result:
    """What a process found alone. Times are in the workload's unit, but for `first`, in seconds."""

    workload: str
    peer: str
    version: str = ""
    first: float = 0.0
    best: float = 0.0
    median: float = 0.0
    low: float = 0.0  # the quartiles
    high: float = 0.0
    calls: int = 0
    error: float = 0.0  # the largest error against float64, relative to tolerance
    peak: float = 0.0  # bytes of resident memory above the inputs, at the highest, compilation included
    steady: float = 0.0  # the same from the first call's end
    arrays: float = 0.0  # the most bytes of arrays meanwhile, as the library counts them; 0 where it does not
    notes: dict[str, Any] = field(default_factory=dict)
    failure: str = ""


@dataclass
class Duel:
    """lazyt and the best peer, taking turns. Times are in the workload's unit."""

    workload: str
    peer: str
    lazyt_time: float
    peer_time: float
    ratios: list[float]  # lazyt / peer, one a repeat
    ratio: float  # their median
    lower: float
    upper: float  # the bounds of the median at 95 %, each one-sided
    target: float | None = None
    limit_time: float = 0.0  # 0 where no limit is stated
    others: float = 0.0  # the share of the processors that other programs had meanwhile
    slow: float = 0.0  # the share of the turns that the machine was slow behind


WORKLOADS: dict[str, Workload] = {}
# What the machine can do, measured as workloads are: they run beside the others, and are in no table.
LIMITS: dict[str, Workload] = {}


def workload(**fields: Any) -> Workload:
    """Register a workload; names are unique."""
    return _register(WORKLOADS, Workload(**fields))


def limit(**fields: Any) -> Workload:
    """Register a limit."""
    return _register(LIMITS, Workload(**fields))


def _register(table: dict[str, Workload], w: Workload) -> Workload:
    assert w.name not in WORKLOADS | LIMITS, f"two workloads are called {w.name}"
    table[w.name] = w
    return w


def simple(expression: Callable[..., Any]) -> Build:
    """A build of `expression(module, *inputs)` on the peer's arrays, compiled where the peer compiles."""

    def build(peer: Any, inputs: Inputs) -> Callable[[], Any]:
        arrays = [peer.array(x) for x in inputs.values()]
        f = peer.compile(lambda *xs: expression(peer.module, *xs))
        return lambda: peer.wait(f(*arrays))

    return build


def everywhere(expression: Callable[..., Any], *names: str, **others: Callable[..., Any]) -> dict[str, Build]:
    """`simple` builds: `expression` for the peers named, for each other its own; "torch.compile" has torch's."""
    found = dict.fromkeys(names, simple(expression)) | {k: simple(f) for k, f in others.items()}
    if "torch" in found:
        found["torch.compile"] = found["torch"]
    return found


def seeded(shape: Sequence[int], seed: int = 0, scale: float = 1.0) -> Array:
    """Standard normal float32 numbers, the same in every process."""
    return np.random.default_rng(seed).standard_normal(tuple(shape), np.float32) * np.float32(scale)


def in_float64(inputs: Inputs) -> Inputs:
    """The inputs for the reference: floats in float64, integers as they are."""
    return {k: x.astype(np.float64) if x.dtype.kind == "f" else x for k, x in inputs.items()}
