"""Sizes, operands and masks of attention of bfloat16."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import lazyt as lt
from tests.support.dots import BFLOAT16, Array

MASKS = ["none", "causal", "bool", "floats", "hidden rows"]


class Sizes(NamedTuple):
    batch: tuple[int, ...]
    queries: int
    keys: int
    d: int
    e: int


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(BFLOAT16)


def operands(s: Sizes) -> list[Array]:
    """q, k, v and a cotangent of the result."""
    shapes = ((s.queries, s.d), (s.keys, s.d), (s.keys, s.e), (s.queries, s.e))
    return [draw(*s.batch, *shape, seed=i) for i, shape in enumerate(shapes)]


def masked(kind: str, s: Sizes) -> tuple[Any, dict[str, Any]]:
    """A mask of one of `MASKS`, None for none, and the arguments that say it."""
    rows, rng = (s.queries, s.keys), np.random.default_rng(5)
    if kind == "none":
        return None, {}
    if kind == "causal":
        return np.tri(*rows) > 0, {"is_causal": True}
    if kind == "floats":
        mask = rng.standard_normal(rows).astype(np.float32)
    else:
        mask = rng.random(rows) > 0.4
        mask[:, 0] |= kind == "bool"
        mask[:3] &= kind == "bool"
    return mask, {"attn_mask": lt.asarray(mask)}
