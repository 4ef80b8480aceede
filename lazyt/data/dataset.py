"""Datasets: what has samples by number, or gives them one after another; and how they are joined and divided."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from lazyt.config import HOST
from lazyt.data.seeding import host_generator
from lazyt.errors import DTypeError, IndexOutOfRange, ShapeError
from lazyt.functions.random import Generator
from lazyt.runtime import memory
from lazyt.runtime.host_views import array_of
from lazyt.runtime.sync import materialise
from lazyt.runtime.tensor import Tensor, tensor_of

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset",
    "random_split",
]  # fmt: skip

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """The base of datasets whose samples have numbers: `__getitem__`, and `__len__`. As `torch.utils.data.Dataset`.

    A dataset may have `__getitems__(indices)` too, which gives the list of the samples of a batch at once.

    >>> import lazyt as lt
    >>> class Squares(lt.data.Dataset):
    ...     def __len__(self):
    ...         return 4
    ...     def __getitem__(self, i):
    ...         return i * i
    >>> [batch.tolist() for batch in lt.data.DataLoader(Squares(), batch_size=2)]
    [[0, 1], [4, 9]]
    """

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError(f"{type(self).__name__}: a dataset defines __getitem__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """The base of datasets that give samples one after another: `__iter__`. As `torch.utils.data.IterableDataset`.

    With several workers each has a copy, and iterates it whole: `get_worker_info()` says which part is whose.
    """

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__}: an IterableDataset defines __iter__")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


def _at(index: Any, n: int, what: str) -> int:
    """An index from 0 on; IndexOutOfRange for one that is not there."""
    i = operator.index(index)
    if not -n <= i < n:
        raise IndexOutOfRange(f"{what}: index {i} is out of range for {n} samples")
    return i + n if i < 0 else i


class TensorDataset(Dataset[tuple[Any, ...]]):
    """The rows of tensors (or NumPy arrays) of equal first extent: sample i is the tuple of their rows i.

    Raises ShapeError for other extents. As `torch.utils.data.TensorDataset`.

    >>> import lazyt as lt
    >>> d = lt.data.TensorDataset(lt.arange(6).reshape(3, 2), lt.arange(3))
    >>> len(d), [row.tolist() for row in d[1]]
    (3, [[2, 3], 1])
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors or any(not getattr(t, "shape", ()) for t in tensors):
            raise ShapeError("TensorDataset: tensors of one dimension or more are required")
        extents = [t.shape[0] for t in tensors]
        if len(set(extents)) > 1:
            raise ShapeError(f"TensorDataset: the first extents of the tensors differ: {extents}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def _collated(self, indices: Sequence[int]) -> list[Any] | None:
        """What `default_collate` makes of these samples, by one gather a tensor; None where it is not as simple."""
        if type(self).__getitem__ is not TensorDataset.__getitem__ or not indices:
            return None
        n = len(self)
        try:
            at = np.array(indices, np.int64)
        except (TypeError, ValueError, OverflowError):
            return None
        if at.ndim != 1 or at.min() < -n or at.max() >= n:
            return None
        arrays = [_host_array(t) for t in self.tensors]
        if any(a is None for a in arrays):
            return None
        return [tensor_of(memory.wrap_array(a.take(at, axis=0))) for a in arrays if a is not None]


def _host_array(t: Any) -> np.ndarray[Any, Any] | None:
    """A tensor's value in the host's memory, computed if it is pending; None for one with gradients or elsewhere."""
    if not isinstance(t, Tensor):
        return t if type(t) is np.ndarray else None
    if t.requires_grad or t.device != HOST:
        return None
    a = array_of(t)
    if a is None:
        materialise(t, "TensorDataset")
        a = array_of(t)
    return a


class StackDataset(Dataset[Any]):
    """Datasets of one length side by side: sample i is the tuple, or the dict, of their samples i.

    As `torch.utils.data.StackDataset`.

    >>> import lazyt as lt
    >>> lt.data.StackDataset(image=[1, 2], label=["a", "b"])[1]
    {'image': 2, 'label': 'b'}
    """

    def __init__(self, *datasets: Any, **named: Any) -> None:
        if bool(datasets) == bool(named):
            raise ShapeError("StackDataset: datasets by position or by name are required, not both or none")
        self.datasets: Any = datasets or named
        lengths = [len(d) for d in (datasets or named.values())]
        if len(set(lengths)) > 1:
            raise ShapeError(f"StackDataset: the datasets have different lengths: {lengths}")
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Any]):
    """Datasets one behind another. As `torch.utils.data.ConcatDataset`.

    >>> import lazyt as lt
    >>> d = lt.data.ConcatDataset([[1, 2], [3]])
    >>> len(d), d[2], d[-3]
    (3, 3, 1)
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ShapeError("ConcatDataset: one dataset or more is required")
        for d in self.datasets:
            if isinstance(d, IterableDataset):
                raise DTypeError("ConcatDataset: an IterableDataset has no numbers; ChainDataset takes it")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: Any) -> Any:
        i = _at(index, len(self), "ConcatDataset")
        which = bisect.bisect_right(self.cumulative_sizes, i)
        return self.datasets[which][i - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after another. As `torch.utils.data.ChainDataset`."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise DTypeError(f"ChainDataset: IterableDatasets are required, not {type(d).__name__!r}")

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


class Subset(Dataset[Any]):
    """The samples of a dataset at these indices. As `torch.utils.data.Subset`.

    >>> import lazyt as lt
    >>> list(lt.data.Subset("abcd", [3, 0]))
    ['d', 'a']
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)

    def _collated(self, indices: Sequence[int]) -> list[Any] | None:
        whole = getattr(self.dataset, "_collated", None)
        if whole is None or type(self).__getitem__ is not Subset.__getitem__:
            return None
        found: list[Any] | None = whole([self.indices[i] for i in indices])
        return found


def random_split(dataset: Any, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset]:
    """Disjoint random subsets of these lengths, or of these fractions, which add up to 1.

    What fractions leave over goes to the first subsets, one each. Raises ShapeError for lengths that do not add up to
    that of the dataset. As `torch.utils.data.random_split`.

    >>> import lazyt as lt
    >>> a, b = lt.data.random_split(range(10), [0.75, 0.25], lt.random.Generator(1))
    >>> len(a), len(b), sorted([*a, *b]) == list(range(10))
    (8, 2, True)
    """
    n = len(dataset)
    sizes: list[Any] = list(lengths)
    if all(isinstance(x, float | int) and 0 <= x <= 1 for x in sizes) and math.isclose(sum(sizes), 1):
        sizes = [math.floor(n * x) for x in sizes]
        for i in range(n - sum(sizes)):
            sizes[i % len(sizes)] += 1
    if sum(sizes) != n or any(x < 0 or x != int(x) for x in sizes):
        raise ShapeError(
            f"random_split: lengths {list(lengths)} do not add up to the {n} samples of the dataset, or to 1"
        )
    order = host_generator(generator).permutation(n).tolist()
    ends = list(itertools.accumulate(map(int, sizes)))
    return [Subset(dataset, order[end - int(size) : end]) for end, size in zip(ends, sizes, strict=True)]
