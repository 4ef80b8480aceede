"""Making one batch of a dataset: the same in the process of the loop and in a worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lazyt.data.collate import default_collate
from lazyt.data.dataset import IterableDataset
from lazyt.data.seeding import mixed, seed_all, seeded


class WorkerInfo(NamedTuple):
    """What `get_worker_info()` gives in a worker process."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class Recipe(NamedTuple):
    """How batches are made of a dataset."""

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool  # a request is a list of indices (or their number), not one index
    drop_last: bool

    @property
    def iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)


_info: list[WorkerInfo | None] = [None]


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a DataLoader its `id`, `num_workers`, `seed` and copy of the `dataset`; elsewhere None.

    As `torch.utils.data.get_worker_info`.

    >>> import lazyt as lt
    >>> lt.data.get_worker_info() is None
    True
    """
    return _info[0]


def set_worker_info(info: WorkerInfo) -> None:
    """Say in a worker which it is."""
    _info[0] = info


class Fetcher:
    """Batches by request, each with generators seeded by its number: random samples do not depend on who makes them.

    guest: the process has other uses for its generators, so they are put back.
    """

    def __init__(self, recipe: Recipe, seed: int, guest: bool) -> None:
        self.recipe = recipe
        self.seed = seed
        self.guest = guest
        self.rest: Iterator[Any] | None = None
        dataset = recipe.dataset
        whole = getattr(dataset, "_collated", None)
        self.whole = whole if recipe.batched and recipe.collate is default_collate else None
        self.several = getattr(dataset, "__getitems__", None) if recipe.batched else None

    def fetch(self, number: int, request: Any) -> Any:
        """Batch `number` of an epoch; StopIteration when an iterable dataset is through."""
        if self.whole is not None and (found := self.whole(request)) is not None:
            return found  # none of the user's functions is called
        seed = mixed(self.seed, number)
        make = self._next if self.recipe.iterable else self._make
        if self.guest:
            with seeded(seed):
                return make(request)
        seed_all(seed)
        return make(request)

    def _make(self, request: Any) -> Any:
        dataset, collate = self.recipe.dataset, self.recipe.collate
        if not self.recipe.batched:
            return collate(dataset[request])
        return collate(self.several(request) if self.several is not None else [dataset[i] for i in request])

    def _next(self, request: Any) -> Any:
        if self.rest is None:
            self.rest = iter(())  # where there is no iterator, it ends
            self.rest = iter(self.recipe.dataset)
        if not self.recipe.batched:
            return self.recipe.collate(next(self.rest))
        samples = list(itertools.islice(self.rest, len(request)))
        if not samples or (self.recipe.drop_last and len(samples) < len(request)):
            raise StopIteration
        return self.recipe.collate(samples)
