"""The workloads, by family: importing this package registers them all, in the order in which they run."""

from benchmarks.core import WORKLOADS
from benchmarks.workloads import batches, elementwise, recording, reductions, rows, training

__all__ = ["WORKLOADS", "batches", "elementwise", "recording", "reductions", "rows", "training"]
