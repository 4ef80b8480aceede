"""A DataLoader over a cheap dataset: what a library adds to each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.core import Array, Build, Inputs, workload

BATCH = 64


def _inputs(quick: bool) -> Inputs:
    n, features = (200, 4) if quick else (20_000, 64)
    return {"x": np.arange(n * features, dtype=np.float32).reshape(n, features), "y": np.arange(n)}


class Rows:
    """What users write: a row and a label, of NumPy's arrays."""

    def __init__(self, x: Array, y: Array) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.x[i], self.y[i]


class Epoch:
    """One epoch, shuffled; all of its batches, which `results` puts in order."""

    def __init__(self, peer: Any, inputs: Inputs, workers: int) -> None:
        self.peer = peer
        data = peer.module.data if peer.name == "lazyt" else peer.module.utils.data
        more = {"num_workers": workers, "persistent_workers": True} if workers else {}
        self.loader = data.DataLoader(Rows(*inputs.values()), BATCH, shuffle=True, **more)

    def __call__(self) -> list[Any]:
        found = [*self.loader]
        self.peer.wait(found)
        return found

    def results(self, returned: Sequence[Any]) -> list[Any]:
        """Every sample once, by its label."""
        x, y = (np.concatenate([self.peer.numpy(batch[k]) for batch in returned]) for k in (0, 1))
        order = y.argsort()
        return [self.peer.array(x[order]), self.peer.array(y[order])]


def _build(workers: int) -> Build:
    return lambda peer, inputs: Epoch(peer, inputs, workers)


def _reference(inputs: Inputs) -> list[Array]:
    return list(inputs.values())


for _name, _what, _workers in (
    ("dataloader", "a sample through a DataLoader that shuffles, of a dataset that costs nothing", 0),
    ("dataloader_workers", "the same with two worker processes", 2),
):
    workload(
        name=_name,
        what=_what,
        inputs=_inputs,
        reference=_reference,
        builds=dict.fromkeys(("lazyt", "torch"), _build(_workers)),
        unit="us",
        scale=1e6,
        per=lambda inputs: len(inputs["x"]),
    )
