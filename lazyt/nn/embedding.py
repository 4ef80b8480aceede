"""Tables of vectors that are looked up by integers."""

from __future__ import annotations

from typing import Any

from lazyt.errors import ShapeError
from lazyt.functions import embedding as functional
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import multiply
from lazyt.functions.creation import arange
from lazyt.functions.logic import not_equal
from lazyt.functions.manipulation import expand_dims
from lazyt.functions.random import standard_normal
from lazyt.nn import init
from lazyt.nn.module import Module, Parameter
from lazyt.nn.new_parameters import Registered, new_parameter, size_of
from lazyt.optim.parameters import write

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """What both have: the weight and how it is looked up."""

    weight = Registered()
    padding_idx: int | None

    def _begin(
        self, num: int, dim: int, padding_idx: int | None, weight: Any, freeze: bool, device: Any, dtype: Any
    ) -> None:
        name = type(self).__name__
        size_of(name, num_embeddings=num, embedding_dim=dim)
        if padding_idx is not None and not -num <= padding_idx < num:
            raise ShapeError(f"{name}: padding_idx {padding_idx} is out of range for {num} vectors")
        self.num_embeddings, self.embedding_dim = num, dim
        self.padding_idx = None if padding_idx is None else padding_idx % num
        if weight is None:
            self.weight = new_parameter(num, dim, device=device, dtype=dtype)
            self.reset_parameters()
            return
        given = tensor(weight)
        if given.shape != (num, dim):
            raise ShapeError(f"{name}: a weight of shape {(num, dim)} is required, got {given.shape}")
        self.register_parameter("weight", Parameter(given, requires_grad=not freeze))

    def reset_parameters(self) -> None:
        """Draw the vectors anew; that of `padding_idx` is 0."""
        with init.drawn_on(self.weight):
            values = standard_normal(self.weight.shape, dtype=self.weight.dtype)
        if self.padding_idx is not None:
            rows = not_equal(arange(self.num_embeddings, device=values.device), self.padding_idx)
            values = multiply(values, expand_dims(rows, 1))
        write(self.weight, values)

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **options: Any) -> Any:
        """A table of given vectors (a matrix), frozen by default; options as of the class."""
        given = tensor(embeddings)
        if given.ndim != 2:
            raise ShapeError(f"{cls.__name__}.from_pretrained: a matrix is required, got shape {given.shape}")
        table = cls(*given.shape, _weight=given, **options)  # type: ignore[call-arg]
        table.weight.requires_grad_(not freeze)
        return table

    def extra_repr(self) -> str:
        plain = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False, "mode": ""}
        given = [f"{k}={getattr(self, k)!r}" for k, v in plain.items() if getattr(self, k, v) != v]
        return ", ".join([str(self.num_embeddings), str(self.embedding_dim), *given])


class Embedding(_Table):
    """A table of vectors, looked up by integers: (...) to (..., embedding_dim). As `torch.nn.Embedding`.

    >>> import lazyt as lt
    >>> lt.nn.Embedding(10, 4)(lt.asarray([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        functional.need_dense("Embedding", sparse)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self._begin(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)

    def forward(self, input: Any) -> Any:
        return functional.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq
        )


class EmbeddingBag(_Table):
    """Sums, means or maxima of the vectors that bags of integers name. As `torch.nn.EmbeddingBag`.

    >>> import lazyt as lt
    >>> lt.nn.EmbeddingBag(10, 4)(lt.asarray([1, 2, 3]), lt.asarray([0, 1])).shape
    (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        functional.need_dense("EmbeddingBag", sparse)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.mode, self.include_last_offset = mode, include_last_offset
        self._begin(num_embeddings, embedding_dim, padding_idx, _weight, False, device, dtype)

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        return functional.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            False,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
