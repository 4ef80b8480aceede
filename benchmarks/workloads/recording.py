"""What an operation costs besides its arithmetic: long chains on a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.core import Array, Inputs, seeded, workload

OPS = 1000


def _inputs(quick: bool) -> Inputs:
    return {"x": seeded((8,), 0), "y": seeded((8,), 1, 0.01)}


def _chain(x: Any, y: Any) -> Any:
    for _ in range(OPS // 2):
        x = (x + y) * 0.999
    return x


def _reference(inputs: Inputs) -> Sequence[Array]:
    return [_chain(inputs["x"], inputs["y"])]


def _build(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    x, y = peer.array(inputs["x"]), peer.array(inputs["y"])
    return lambda: peer.wait(_chain(x, y))


def _build_grad(peer: Any, inputs: Inputs) -> Callable[[], Any]:
    x, y = peer.array(inputs["x"]), peer.array(inputs["y"])
    x.requires_grad_(True)
    return lambda: peer.wait(_chain(x, y))


workload(
    name="record_overhead",
    what=f"{OPS:,} operations on 8 floats, tensor and scalar operands in turn: recorded, synced and run",
    inputs=_inputs,
    reference=_reference,
    # Nobody would compile a chain that is different each time, which is what this one stands for.
    builds=dict.fromkeys(("lazyt", "numpy", "torch", "jax", "mlx"), _build),
    unit="us/op",
    scale=1e6,
    per=lambda inputs: OPS,
    rtol=1e-4,
)
workload(
    name="record_overhead_grad",
    what=f"the same {OPS:,} operations with requires_grad",
    inputs=_inputs,
    reference=_reference,
    builds=dict.fromkeys(("lazyt", "torch"), _build_grad),
    unit="us/op",
    scale=1e6,
    per=lambda inputs: OPS,
    rtol=1e-4,
)
