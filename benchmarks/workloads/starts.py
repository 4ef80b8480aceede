"""A fresh process to its first training step: importing, building, planning, compiling, one step."""

from __future__ import annotations

from benchmarks.core import workload
from benchmarks.workloads.gpt import TRAIN

WHAT = "a new process to the end of its first training step of the transformer"

for name, start, caches in (
    ("cold_start", "cold", "with empty caches"),
    ("warm_start", "warm", "with the caches of an earlier one"),
):
    workload(
        name=name,
        what=f"{WHAT}, {caches}",
        inputs=TRAIN.inputs,
        reference=TRAIN.reference,
        builds=TRAIN.builds,
        stateful=TRAIN.stateful,
        start=start,
        rtol=TRAIN.rtol,
        atol=TRAIN.atol,
        outside=TRAIN.outside,
    )
