"""Similarity and distance of pairs of vectors, as modules."""

from __future__ import annotations

from typing import Any

from lazyt.functions import distances as functional
from lazyt.nn.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(Module):
    """`functional.cosine_similarity`. As `torch.nn.CosineSimilarity`.

    >>> import lazyt as lt
    >>> lt.nn.CosineSimilarity()(lt.asarray([[1.0, 0.0]]), lt.asarray([[0.0, 2.0]])).tolist()
    [0.0]
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Any, x2: Any) -> Any:
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, eps={self.eps}"


class PairwiseDistance(Module):
    """`functional.pairwise_distance`. As `torch.nn.PairwiseDistance`.

    >>> import lazyt as lt
    >>> lt.nn.PairwiseDistance(eps=0.0)(lt.asarray([[3.0, 4.0]]), lt.zeros((1, 2))).tolist()
    [5.0]
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Any, x2: Any) -> Any:
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)

    def extra_repr(self) -> str:
        return f"p={self.norm}, eps={self.eps}, keepdim={self.keepdim}"
