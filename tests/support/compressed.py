"""What tests of compressed activations share: small models, and what the pending program keeps for its backward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import lazyt as lt
from lazyt.ir.passes import pipeline
from lazyt.ir.passes.call_operands import nbytes
from lazyt.ir.passes.compress import Cut, factored
from lazyt.ir.passes.program import Options
from lazyt.ir.symbolic import hint
from lazyt.nn import functional as F
from lazyt.runtime.liveness import wanted_of
from lazyt.tracing.lower import lower
from lazyt.tracing.trace import local


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weights(*shapes: tuple[int, ...]) -> list[lt.Tensor]:
    return [lt.tensor(array(*s, seed=i) / s[0] ** 0.5, requires_grad=True) for i, s in enumerate(shapes)]


def model(x: lt.Tensor, w: list[lt.Tensor]) -> lt.Tensor:
    return lt.tanh(F.relu(x @ w[0]) @ w[1]) @ w[2]


def blocks(x: lt.Tensor, ws: list[lt.Tensor]) -> lt.Tensor:
    """Convolution, normalization and ReLU, once for each of the weights."""
    for w in ws:
        x = F.relu(F.batch_norm(F.conv2d(x, w, padding=1), None, None, training=True))
    return x


def filters() -> list[lt.Tensor]:
    return [lt.tensor(array(8, 8, 3, 3, seed=i) * 0.1, requires_grad=True) for i in range(3)]


class Kept(NamedTuple):
    """Bytes of what crosses from forward to backward in few bits, and of the same arrays as they were."""

    packed: int
    whole: int
    arrays: list[tuple[str, int]]  # the operation that made each, and its bits
    full: list[str]  # the operations that made what crosses as it is, inputs and small arrays aside


def kept() -> Kept:
    """Of the pending program."""
    tr = local.trace
    low = lower(tr.pos.steps(), tr.ext.values, tr.scalars[: tr.pos.scalar_start + tr.pos.n_scalars])
    outputs = [low.nodes[s] for s in wanted_of(tr)[0]]
    before = pipeline.compile_graph(outputs, low.scope, Options(), until="collect_sums").graph
    cut = Cut(factored(before, low.scope), low.scope)
    after = pipeline.compile_graph(outputs, low.scope, Options(verify=True), until="compress").graph
    return Kept(
        sum(hint(nbytes(n)) for n in after.kept),
        sum(hint(nbytes(n)) for n in cut.packs),
        sorted((n.site.name, bits) for n, bits in cut.packs.items()),
        sorted(n.site.name for n in cut.whole),
    )
