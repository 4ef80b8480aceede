"""Samplers: in which order samples are taken, and how they are put into batches. They give Python's integers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from lazyt.data.seeding import check_generator, host_generator
from lazyt.errors import ShapeError
from lazyt.functions.random import Generator

__all__ = ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler",
           "WeightedRandomSampler"]  # fmt: skip

T = TypeVar("T", covariant=True)


class Sampler(Generic[T]):
    """The base of samplers: `__iter__` gives indices, `__len__`, if there is one, their number."""

    def __init__(self, data_source: Any = None) -> None:
        """As PyTorch's, which takes and ignores a dataset."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__}: a sampler defines __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, ... in order. As `torch.utils.data.SequentialSampler`."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def _count(n: Any, name: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n <= 0:
        raise ShapeError(f"{name}: num_samples is a positive integer, not {n!r}")
    return n


# Indices with replacement that are drawn at a time.
DRAWN = 1 << 14


class RandomSampler(Sampler[int]):
    """All indices in random order, or `num_samples` of them; with `replacement`, each drawn by itself.

    More samples than there are begin a new order when one is through. As `torch.utils.data.RandomSampler`.

    >>> import lazyt as lt
    >>> s = lt.data.RandomSampler(range(5), generator=lt.random.Generator(0))
    >>> sorted(s), len(s)
    ([0, 1, 2, 3, 4], 5)
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        check_generator(generator, "RandomSampler")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = None if num_samples is None else _count(num_samples, "RandomSampler")
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many indices one iteration gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, wanted = len(self.data_source), self.num_samples
        g = host_generator(self.generator)
        while self.replacement and wanted > 0:  # drawn in parts: there may be more of them than memory has
            yield from g.integers(n, size=min(wanted, DRAWN)).tolist()
            wanted -= DRAWN
        while n and wanted > 0:
            yield from g.permutation(n)[:wanted].tolist()
            wanted -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order. As `torch.utils.data.SubsetRandomSampler`."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        check_generator(generator, "SubsetRandomSampler")
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in host_generator(self.generator).permutation(len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with probabilities proportional to weights. As `torch.utils.data.WeightedRandomSampler`.

    Raises ShapeError for weights that are no vector, are negative or all 0, and without replacement for more samples
    than there are positive weights.

    >>> import lazyt as lt
    >>> list(lt.data.WeightedRandomSampler([0.0, 1.0, 0.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        check_generator(generator, "WeightedRandomSampler")
        self.num_samples = _count(num_samples, "WeightedRandomSampler")
        self.replacement = replacement
        self.generator = generator
        w = self.weights = np.asarray(weights, np.float64)
        if w.ndim != 1:
            raise ShapeError(f"WeightedRandomSampler: weights are a vector, not of shape {w.shape}")
        positive = int((w > 0).sum())
        if not np.isfinite(w).all() or (w < 0).any() or not positive:
            raise ShapeError("WeightedRandomSampler: weights are finite, not negative, and not all 0")
        if not replacement and positive < num_samples:
            raise ShapeError(
                f"WeightedRandomSampler: {num_samples} samples without replacement of {positive} with a positive weight"
            )

    def __iter__(self) -> Iterator[int]:
        g = host_generator(self.generator)
        p = self.weights / self.weights.sum()
        return iter(g.choice(len(p), self.num_samples, self.replacement, p).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; the last is shorter, or left out. As
    `torch.utils.data.BatchSampler`.

    >>> import lazyt as lt
    >>> list(lt.data.BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size <= 0:
            raise ShapeError(f"BatchSampler: batch_size is a positive integer, not {batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ShapeError(f"BatchSampler: drop_last is True or False, not {drop_last!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        rest = iter(self.sampler)
        while batch := list(itertools.islice(rest, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n: int = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
