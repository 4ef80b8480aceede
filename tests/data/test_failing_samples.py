"""An epoch goes on behind a batch that could not be made."""

from __future__ import annotations

import gc
import multiprocessing
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.data import DataLoader, IterableDataset


class Bad:
    """Some of nine items raise."""

    def __init__(self, *bad: int, error: Any = ValueError) -> None:
        self.bad, self.error = bad, error

    def __len__(self) -> int:
        return 9

    def __getitem__(self, i: int) -> Any:
        if i in self.bad:
            raise self.error(f"item {i}")
        return np.int64(i)


class Stream(IterableDataset):
    """Five items; the third raises, and it goes on, or not."""

    def __init__(self, goes_on: bool) -> None:
        self.at, self.goes_on = 0, goes_on

    def __iter__(self) -> Any:
        return self if self.goes_on else self.items()

    def items(self) -> Any:
        yield from (1, 2)
        raise ValueError("the stream")

    def __next__(self) -> int:
        self.at += 1
        if self.at == 3:
            raise ValueError("the stream")
        if self.at > 5:
            raise StopIteration
        return self.at


def epoch(loader: Any) -> list[Any]:
    found: list[Any] = []
    batches = iter(loader)
    while len(found) < 20:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except (ValueError, RuntimeError):
            found.append("skip")
        else:
            found.append(batch if isinstance(batch, str) else batch.tolist())
    return found


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ((5,), [[0, 1], [2, 3], "skip", [6, 7], [8]]),
        ((0, 2, 8), ["skip", "skip", [4, 5], [6, 7], "skip"]),
        (range(9), ["skip"] * 5),
    ],
)
def test_the_batches_behind_a_failure_are_made(workers: int, bad: Any, expected: Any) -> None:
    assert epoch(DataLoader(Bad(*bad), 2, num_workers=workers)) == expected
    gc.collect()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{"batch_size": None}, {"batch_size": 1}, {"batch_size": 1, "with_indices": True}])
def test_one_by_one(workers: int, options: Any) -> None:
    loader = DataLoader(Bad(3), num_workers=workers, **options)
    batches = iter(loader)
    with pytest.raises(ValueError, match="item 3"):
        list(batches)
    assert len([*batches]) == 5 and next(batches, "end") == "end"


@pytest.mark.parametrize("workers", [0, 2])
def test_what_raises_beside_the_dataset(workers: int) -> None:
    def collate(samples: Any) -> Any:
        if 4 in samples:
            raise ValueError("item 4 in collate_fn")
        return np.stack(samples)

    loader = DataLoader(Bad(), 2, num_workers=workers, collate_fn=collate, multiprocessing_context=None)
    assert epoch(loader) == [[0, 1], [2, 3], "skip", [6, 7], [8]]
    assert epoch(DataLoader(Bad(3, error=StopIteration), 3, num_workers=workers)) == [[0, 1, 2], "skip", [6, 7, 8]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_goes_on_as_its_iterator_does(workers: int) -> None:
    assert epoch(DataLoader(Stream(True), 1, num_workers=workers)) == [[1], [2], "skip", [4], [5]]
    assert epoch(DataLoader(Stream(False), 1, num_workers=workers)) == [[1], [2], "skip"]


def test_workers_that_persist_survive_a_failure() -> None:
    loader = DataLoader(Bad(5), 2, num_workers=2, persistent_workers=True)
    assert epoch(loader) == [[0, 1], [2, 3], "skip", [6, 7], [8]]
    pids = {p.pid for p in multiprocessing.active_children()}
    assert epoch(loader)[2:] == ["skip", [6, 7], [8]] and {p.pid for p in multiprocessing.active_children()} == pids
    del loader
    gc.collect()


def test_random_samples_are_those_of_an_epoch_without_a_failure() -> None:
    class Noise(Bad):
        def __getitem__(self, i: int) -> Any:
            return super().__getitem__(i) * 0 + np.random.randint(1000)

    def values(*bad: int) -> list[Any]:
        lt.random.seed(0)
        return epoch(DataLoader(Noise(*bad), 3))

    whole = values()
    assert values(1) == ["skip", *whole[1:]]
