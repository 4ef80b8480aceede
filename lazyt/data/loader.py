"""`DataLoader`: batches of a dataset, made in this process or by workers."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import wait
from typing import Any

from lazyt.data.collate import default_collate, default_convert
from lazyt.data.dataset import IterableDataset
from lazyt.data.fetch import Fetcher, Recipe
from lazyt.data.samplers import BatchSampler, RandomSampler, SequentialSampler
from lazyt.data.seeding import check_generator, drawn_seed
from lazyt.data.worker import Exhausted, Failure
from lazyt.data.workers import Worker, Workers, failed
from lazyt.errors import DTypeError, ShapeError
from lazyt.functions.random import Generator
from lazyt.runtime.context import sync

__all__ = ["DataLoader"]


class DataLoader:
    """Batches of a dataset, in order or shuffled, made by `num_workers` processes ahead of the loop, or by none.

    `dataset` has `__getitem__` and `__len__`, or is an `IterableDataset`. The options are those of
    `torch.utils.data.DataLoader`; these say more, or something else:

    - One seed gives the same batches for any number of workers: the order is drawn from `generator` (or
      `lazyt.random`), and before each batch `lazyt.random`, `random` and NumPy's global generator are seeded by its
      number. In this process they are put back afterwards.
    - `with_indices`: yields (batch, indices of its samples).
    - `sync_per_batch`: each batch begins with `lazyt.sync()`, so a step's program never runs into the next one's.
    - `pin_memory` is accepted and changes nothing: copies to a GPU go through page-locked memory in any case.

    Workers send batches through shared memory. Starting them is a sync. An exception of a worker is raised in the loop,
    with its traceback; a worker that dies, or needs more than `timeout` seconds, raises WorkerError. Ctrl-C ends them.
    Who catches the exception of a batch, around `next`, goes on with the batch after it.

    >>> import lazyt as lt
    >>> data = lt.data.TensorDataset(lt.arange(4.0), lt.arange(4))
    >>> for x, y in lt.data.DataLoader(data, batch_size=3):
    ...     print(x.tolist(), y.tolist())
    [0.0, 1.0, 2.0] [0, 1, 2]
    [3.0] [3]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        with_indices: bool = False,
        sync_per_batch: bool = False,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context)
        check_generator(generator, "DataLoader")
        self.dataset = dataset
        self.num_workers, self.timeout = num_workers, timeout
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.generator = worker_init_fn, generator
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.with_indices, self.sync_per_batch = with_indices, sync_per_batch
        self.multiprocessing_context = multiprocessing_context
        iterable = isinstance(dataset, IterableDataset)
        if iterable and (shuffle or sampler is not None or batch_sampler is not None or with_indices):
            raise ShapeError(
                "DataLoader: shuffle, sampler, batch_sampler and with_indices are about numbers, which the samples of "
                "an IterableDataset have not"
            )
        if sampler is not None and shuffle:
            raise ShapeError("DataLoader: sampler and shuffle exclude each other: a sampler says the order")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ShapeError("DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ShapeError("DataLoader: batch_size=None makes no batches, so drop_last has no meaning")
        if batch_size is not None and (
            isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1
        ):
            raise ShapeError(f"DataLoader: batch_size is a positive integer or None, not {batch_size!r}")
        if sampler is None and not iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and not iterable:
            assert sampler is not None
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self.batched else default_convert)
        self._workers: Workers | None = None

    def __iter__(self) -> Iterator[Any]:
        return _Batches(self, _made_by_workers(self) if self.num_workers else _made_here(self))

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            n = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return n
            return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        return len(self.batch_sampler if self.batched else self.sampler)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_workers": None}

    def _recipe(self) -> Recipe:
        return Recipe(self.dataset, self.collate_fn, self.batched, self.drop_last)

    def _requests(self) -> Iterator[Any]:
        """What one batch after another is made of: indices, one index, or for iterable datasets how many samples."""
        if isinstance(self.dataset, IterableDataset):
            while True:
                yield None if self.batch_size is None else range(self.batch_size)
        yield from self.batch_sampler if self.batched else self.sampler  # type: ignore[misc]


def _check_workers(count: Any, timeout: Any, prefetch: Any, persistent: Any, context: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ShapeError(f"DataLoader: num_workers is an integer from 0 on, not {count!r}")
    if timeout < 0:
        raise ShapeError(f"DataLoader: timeout is in seconds, from 0 (none) on, not {timeout!r}")
    if not count and (prefetch is not None or persistent or timeout or context is not None):
        raise ShapeError(
            "DataLoader: prefetch_factor, persistent_workers, timeout and multiprocessing_context are about workers, "
            "and num_workers is 0"
        )
    if prefetch is not None and (not isinstance(prefetch, int) or prefetch < 1):
        raise ShapeError(f"DataLoader: prefetch_factor is a positive integer, not {prefetch!r}")
    if isinstance(context, str) and context not in multiprocessing.get_all_start_methods():
        raise DTypeError(
            f"DataLoader: multiprocessing_context is one of {multiprocessing.get_all_start_methods()}, not {context!r}"
        )


class _Raised:
    """In place of a batch: what the user's code raised for it. The batches after it are made as without it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        if isinstance(error, StopIteration):  # as of a generator: it would end the loop
            self.error = RuntimeError("DataLoader: a sample raised StopIteration")
            self.error.__cause__ = error


class _Batches(Iterator[Any]):
    """An epoch, which goes on behind a batch that could not be made, as PyTorch's."""

    def __init__(self, loader: DataLoader, made: Iterator[tuple[Any, Any]]) -> None:
        self._loader, self._made = loader, made

    def __next__(self) -> Any:
        batch, request = next(self._made)
        loader = self._loader
        if isinstance(batch, _Raised):
            try:
                raise batch.error
            finally:
                del self, batch  # the traceback keeps no workers alive
        if loader.sync_per_batch:
            sync()
        return (batch, request) if loader.with_indices else batch


def _made_here(loader: DataLoader) -> Iterator[tuple[Any, Any]]:
    fetcher = Fetcher(loader._recipe(), drawn_seed(loader.generator), guest=True)
    for number, request in enumerate(loader._requests()):
        try:
            batch = fetcher.fetch(number, request)
        except StopIteration as e:
            if fetcher.recipe.iterable:
                return
            batch = _Raised(e)
        except Exception as e:  # noqa: BLE001 - it is raised in the loop
            batch = _Raised(e)
        yield batch, request
        del batch


def _started(loader: DataLoader) -> Workers:
    context = loader.multiprocessing_context
    if context is None or isinstance(context, str):
        context = multiprocessing.get_context(context)
    return Workers(loader._recipe(), loader.num_workers, context, loader.worker_init_fn)


def _made_by_workers(loader: DataLoader) -> Iterator[tuple[Any, Any]]:
    workers = loader._workers or _started(loader)
    if not workers.idle:  # an epoch that was left before its end
        workers.stop()
        workers = _started(loader)
    loader._workers = workers if loader.persistent_workers else None
    workers.idle = False
    try:
        workers.begin(drawn_seed(loader.generator))
        yield from _Epoch(loader, workers).batches()
        workers.idle = True
    finally:
        if not (workers.idle and loader.persistent_workers):
            loader._workers = None
            workers.stop()


class _Epoch:
    """Requests that are under way, and their answers."""

    def __init__(self, loader: DataLoader, workers: Workers) -> None:
        self.loader, self.workers = loader, workers.list
        self.requests = enumerate(loader._requests())
        self.open: deque[tuple[Worker, int, Any]] = deque()
        self.through: set[int] = set()  # workers whose iterable dataset is

    def batches(self) -> Iterator[tuple[Any, Any]]:
        for _ in range(self.loader.prefetch_factor or 1):
            for w in self.workers:
                self._ask(w)
        while self.open:
            w, number, request = self._first()
            answer = w.answer(number, self.loader.timeout)[1]
            if isinstance(answer, Exhausted):
                self.through.add(w.id)
                continue
            self._ask(w)
            if isinstance(answer, Failure):
                answer = _Raised(failed(answer, w, number, request))
            yield answer, request
            del answer

    def _ask(self, w: Worker) -> None:
        if w.id in self.through:
            return
        number, request = next(self.requests, (-1, None))
        if number >= 0:
            w.ask("batch", number, request)
            self.open.append((w, number, request))

    def _first(self) -> tuple[Worker, int, Any]:
        """What is next: the oldest request, or, where order does not matter, one that has its answer."""
        if not self.loader.in_order:
            asked: set[int] = set()
            for i, (w, _, _) in enumerate(self.open):
                if w.id not in asked and w.poll.poll(0):
                    found = self.open[i]
                    del self.open[i]
                    return found
                asked.add(w.id)
            ready = wait({w.socket for w, _, _ in self.open}, self.loader.timeout or None)
            return self._first() if ready else self.open.popleft()
        return self.open.popleft()
