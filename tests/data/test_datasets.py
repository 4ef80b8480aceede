"""Datasets, samplers and collating: what each gives, and what it refuses."""

from __future__ import annotations

import itertools
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

import lazyt as lt
from lazyt import data
from lazyt.errors import DTypeError, IndexOutOfRange, ShapeError


def seeded(n=0):
    return lt.random.Generator(n)


class Count(data.IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


def test_datasets_join_and_divide():
    d = data.TensorDataset(lt.arange(6).reshape(3, 2), np.arange(3))
    assert [t.tolist() for t in d[1]] == [[2, 3], 1] and [t.tolist() for t in d[-1]] == [[4, 5], 2] and len(d) == 3
    joined = data.ConcatDataset([[1, 2], [], [3]])
    assert [*joined] == [1, 2, 3] and joined[-1] == 3 and len(joined) == 3
    assert len(d + d) == 6 and [t.tolist() for t in (d + d)[4]] == [[2, 3], 1]
    chained = Count(2) + Count(3)
    assert isinstance(chained, data.ChainDataset) and [*chained] == [0, 1, 0, 1, 2]
    assert data.StackDataset([1, 2], "ab")[1] == (2, "b")
    subset = data.Subset([10, 20, 30], [2, 0])
    assert [*subset] == [30, 10] and len(subset) == 2


def test_a_random_split_is_a_partition_that_the_seed_decides():
    parts = data.random_split(range(11), [0.5, 0.3, 0.2], seeded())
    assert [len(p) for p in parts] == [6, 3, 2]
    assert sorted(i for p in parts for i in p) == [*range(11)]
    again = data.random_split(range(11), [6, 3, 2], seeded())
    assert (
        [[*p] for p in again]
        == [[*p] for p in parts]
        != [[*p] for p in data.random_split(range(11), [6, 3, 2], seeded(1))]
    )


def test_what_datasets_refuse():
    with pytest.raises(ShapeError, match=r"first extents of the tensors differ: \[2, 3\]"):
        data.TensorDataset(lt.ones(2), lt.ones(3))
    with pytest.raises(ShapeError, match="one dimension or more"):
        data.TensorDataset(lt.asarray(1.0))
    with pytest.raises(ShapeError, match=r"lengths \[3, 3\] do not add up to the 7 samples"):
        data.random_split(range(7), [3, 3])
    with pytest.raises(IndexOutOfRange, match="index 3 is out of range for 3 samples"):
        data.ConcatDataset([[1, 2, 3]])[3]
    with pytest.raises(DTypeError, match="an IterableDataset has no numbers"):
        data.ConcatDataset([Count(2)])
    with pytest.raises(DTypeError, match="IterableDatasets are required, not 'list'"):
        data.ChainDataset([[1]])
    with pytest.raises(ShapeError, match=r"different lengths: \[1, 2\]"):
        data.StackDataset([1], [1, 2])
    with pytest.raises(NotImplementedError, match="Dataset: a dataset defines __getitem__"):
        data.Dataset()[0]


def test_samplers():
    assert [*data.SequentialSampler(range(3))] == [0, 1, 2]
    order = [*data.RandomSampler(range(20), generator=seeded())]
    assert sorted(order) == [*range(20)] != order
    assert order == [*data.RandomSampler(range(20), generator=seeded())]
    s = data.RandomSampler(range(20), generator=seeded())
    assert [*s] != [*s], "each iteration draws anew"
    assert len([*data.RandomSampler(range(3), num_samples=7)]) == 7
    assert {*data.RandomSampler(range(3), replacement=True, num_samples=50)} == {0, 1, 2}
    many = data.RandomSampler(range(3), replacement=True, num_samples=10**12)
    assert len(many) == 10**12 and {*itertools.islice(many, 50)} == {0, 1, 2}
    assert len([*data.RandomSampler(range(3), replacement=True, num_samples=20_000)]) == 20_000
    assert sorted(data.SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    drawn = np.bincount([*data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000, generator=seeded())], minlength=3)
    assert drawn[0] == 0 and 2800 < drawn[2] < 3200
    assert sorted(data.WeightedRandomSampler([1.0, 2.0, 0.0, 1.0], 3, replacement=False)) == [0, 1, 3]
    assert [*data.BatchSampler(range(5), 2, True)] == [[0, 1], [2, 3]]
    assert len(data.BatchSampler(range(5), 2, True)) == 2 and len(data.BatchSampler(range(5), 2, False)) == 3


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: data.RandomSampler(range(3), num_samples=0), "num_samples is a positive integer, not 0"),
        (lambda: data.BatchSampler(range(3), 0, False), "batch_size is a positive integer, not 0"),
        (lambda: data.BatchSampler(range(3), 1, 2), "drop_last is True or False, not 2"),
        (lambda: data.WeightedRandomSampler([-1.0, 2.0], 1), "not negative"),
        (lambda: data.WeightedRandomSampler([[1.0]], 1), r"a vector, not of shape \(1, 1\)"),
        (lambda: data.WeightedRandomSampler([1.0, 0.0], 2, False), "2 samples without replacement of 1"),
    ],
)
def test_what_samplers_refuse(make, match):
    with pytest.raises(ShapeError, match=match):
        make()


def test_a_generator_is_lazyts():
    with pytest.raises(DTypeError, match=r"generator is a lazyt.random.Generator, not 'int'"):
        data.RandomSampler(range(3), generator=3)


class Point(NamedTuple):
    x: Any
    y: Any


def test_collating():
    c = data.default_collate
    for batch, dtype, want in [
        ([1, 2], lt.int64, [1, 2]), ([1.0, 2.0], lt.float32, [1, 2]), ([1, 2.5], lt.float32, [1, 2.5]),
        ([True, False], lt.bool, [True, False]), ([1j], lt.complex64, [1j]),
        ([np.float64(1)], lt.float64, [1]), ([np.ones(2, np.float16)] * 2, lt.float16, [[1, 1], [1, 1]]),
        ([lt.ones(2), lt.zeros(2)], lt.float32, [[1, 1], [0, 0]]),
        ([lt.arange(3)[i] for i in range(3)], lt.int64, [0, 1, 2]),
        ([lt.ones(2, dtype=lt.bfloat16)], lt.bfloat16, [[1, 1]]), ([np.ones((0, 2))] * 3, lt.float64, [[], [], []]),
    ]:  # fmt: skip
        found = c(batch)
        assert found.dtype == dtype and found.tolist() == want
    assert c(["a", "b"]) == ["a", "b"]
    found = c([Point(1, [2.0, "u"]), Point(3, [4.0, "v"])])
    assert (
        isinstance(found, Point)
        and found.x.tolist() == [1, 3]
        and found.y[0].tolist() == [2, 4]
        and found.y[1] == ["u", "v"]
    )
    assert [x.tolist() for x in c([(1, 2), (3, 4)])] == [[1, 3], [2, 4]]
    w = lt.tensor([1.0, 1.0], requires_grad=True)
    c([w * 2, w * 3]).sum().backward()
    assert w.grad.tolist() == [5, 5], "what has gradients is stacked with them"


def test_collating_computes_nothing_that_is_pending():
    a = lt.ones(3) + 1
    b = data.default_collate([a, a])
    assert a.is_pending and b.is_pending and b.tolist() == [[2] * 3] * 2


def test_what_collating_refuses():
    with pytest.raises(ShapeError, match=r"samples of a batch have one shape, not \(2,\) and \(3,\)"):
        data.default_collate([np.ones(2), np.ones(3)])
    with pytest.raises(ShapeError, match=r"samples have \[1, 2\] entries"):
        data.default_collate([(1,), (1, 2)])
    with pytest.raises(ShapeError, match=r"samples have keys \['a'\] and \['b'\]"):
        data.default_collate([{"a": 1}, {"b": 1}])
    with pytest.raises(DTypeError, match="are collated, not 'object'"):
        data.default_collate([object()])
    with pytest.raises(DTypeError, match="arrays of dtype <U1 are not tensors"):
        data.default_collate([np.array(["a"])])


def test_converting():
    found = data.default_convert({"a": np.arange(2), "b": [np.float32(1.5), "s"], "p": Point(np.ones(1), 2), "t": (1,)})
    assert found["a"].tolist() == [0, 1] and found["b"][0].dtype == lt.float32 and found["b"][1] == "s"
    assert isinstance(found["p"], Point) and found["t"] == [1]


def test_a_loader_is_pickled_with_what_it_was_made_of():
    loader = pickle.loads(pickle.dumps(data.DataLoader(range(4), 2, num_workers=1)))
    assert loader.num_workers == 1 and len(loader) == 2
