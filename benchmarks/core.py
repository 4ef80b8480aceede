"""What a workload is: one record, and one way to compute it for each library that can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WARM_UP = 3  # calls between the first and the timed ones: plans settle, pages are touched

Array = np.ndarray[Any, Any]
Inputs = dict[str, Array]
# build(peer, inputs) -> call: one call is what is timed, and returns what `Peer.numpy` turns into the result's arrays.
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
    # Bytes that must move, for a rate: None where memory is not the point.
    nbytes: Callable[[Inputs], int] | None = None
    # Whether a call changes what the next one gives: then the reference is of the last warm-up call.
    stateful: bool = False
    rtol: float = 1e-5
    atol: float = 1e-6


@dataclass
class Result:
    """What a worker found. Times are in the workload's unit, but for `first`, in seconds."""

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
    rate: float = 0.0  # GB/s
    notes: dict[str, Any] = field(default_factory=dict)
    failure: str = ""


WORKLOADS: dict[str, Workload] = {}


def workload(**fields: Any) -> Workload:
    """Register a workload; names are unique."""
    w = Workload(**fields)
    assert w.name not in WORKLOADS, f"two workloads are called {w.name}"
    WORKLOADS[w.name] = w
    return w


def simple(expression: Callable[..., Any]) -> Build:
    """A build of `expression(module, *inputs)` on the peer's arrays, compiled where the peer compiles."""

    def build(peer: Any, inputs: Inputs) -> Callable[[], Any]:
        arrays = [peer.array(x) for x in inputs.values()]
        f = peer.compile(lambda *xs: expression(peer.module, *xs))
        return lambda: peer.wait(f(*arrays))

    return build


def seeded(shape: Sequence[int], seed: int = 0, scale: float = 1.0) -> Array:
    """Standard normal float32 numbers, the same in every process."""
    return (np.random.default_rng(seed).standard_normal(tuple(shape)) * scale).astype(np.float32)
