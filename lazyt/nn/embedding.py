"""Tables of vectors that are looked up by integers."""

from __future__ import annotations

from typing import Any

from lazyt.functions import nn as functional
from lazyt.functions.arithmetic import multiply
from lazyt.functions.creation import arange
from lazyt.functions.logic import not_equal
from lazyt.functions.manipulation import expand_dims
from lazyt.functions.random import standard_normal
from lazyt.nn.module import Module
from lazyt.nn.parameters import new_parameter
from lazyt.optim.parameters import write

__all__ = ["Embedding"]


class Embedding(Module):
    """A table of vectors, looked up by integers: (...) to (..., embedding_dim). As `torch.nn.Embedding`.

    >>> import lazyt as lt
    >>> lt.nn.Embedding(10, 4)(lt.asarray([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.weight = new_parameter(num_embeddings, embedding_dim, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors anew; that of `padding_idx` is 0."""
        values = standard_normal(self.weight.shape, dtype=self.weight.dtype).to(self.weight.device)
        if self.padding_idx is not None:
            numbers = arange(self.num_embeddings, device=values.device)
            rows = not_equal(numbers, self.padding_idx % self.num_embeddings)
            values = multiply(values, expand_dims(rows, 1))
        write(self.weight, values)

    def forward(self, x: Any) -> Any:
        return functional.embedding(x, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        end = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{end}"
