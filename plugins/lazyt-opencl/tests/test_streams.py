"""Queues, events, and what waits for what: a queue is held up by an event that the test sets."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt_opencl.device import NAME, Device

X = np.arange(12, dtype=np.float32).reshape(3, 4)


class Gate:
    """Holds a queue up until it is opened."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.event = device.cl.UserEvent(device.context)

    def close(self) -> None:
        self.device.current().after([self.event])

    def open(self) -> None:
        if self.event.command_execution_status > 0:
            self.event.set_status(self.device.cl.command_execution_status.COMPLETE)


@pytest.fixture
def gate(opencl: Device) -> Iterator[Gate]:
    found = Gate(opencl)
    yield found
    found.open()
    opencl.synchronize()


@pytest.fixture
def streams() -> Any:
    return lt.opencl  # type: ignore[attr-defined]


def test_a_sync_returns_before_its_work_is_done(gate: Gate, streams: Any) -> None:
    x = lt.asarray(X, device=NAME)
    gate.close()
    y = x * 3
    lt.sync()
    assert not y.is_pending and not streams.current_stream().query()
    gate.open()
    np.testing.assert_array_equal(y.numpy(), X * 3)
    streams.synchronize()
    assert streams.current_stream().query()


def test_a_read_waits_for_what_it_reads_alone(gate: Gate) -> None:
    early = lt.asarray(X, device=NAME) + 1
    lt.sync()
    gate.close()
    late = early * 2
    lt.sync()
    np.testing.assert_array_equal(early.numpy(), X + 1)
    gate.open()
    np.testing.assert_array_equal(late.numpy(), (X + 1) * 2)


def test_an_array_may_change_while_its_copy_waits(gate: Gate) -> None:
    gate.close()
    a = X.copy()
    x = lt.asarray(a, device=NAME)
    a[:] = -1
    gate.open()
    np.testing.assert_array_equal(x.numpy(), X)


def test_streams_run_beside_each_other_and_wait_for_their_inputs(gate: Gate, streams: Any) -> None:
    other = streams.Stream()
    assert other != streams.current_stream() and other.device == f"{NAME}:0"
    x = lt.asarray(X, device=NAME)
    lt.sync()
    gate.close()
    held = x + 1
    lt.sync()
    with streams.stream(other):
        assert streams.current_stream() == other
        free = x - 1
        np.testing.assert_array_equal(free.numpy(), X - 1)
        behind = held * 10
        lt.sync()
        assert not other.query()
    assert streams.current_stream() != other
    gate.open()
    np.testing.assert_array_equal(behind.numpy(), (X + 1) * 10)


def test_memory_that_another_stream_reads_is_not_taken_again(gate: Gate, streams: Any) -> None:
    other = streams.Stream()
    x = lt.asarray(X, device=NAME) + 0
    lt.sync()
    with streams.stream(other):
        gate.close()
        found = x * 2
        lt.sync()
    del x
    gc.collect()
    # As large as what was given back, on the stream that it came from.
    several = [lt.asarray(np.full_like(X, i), device=NAME) + 0 for i in range(4)]
    lt.sync()
    gate.open()
    np.testing.assert_array_equal(found.numpy(), X * 2)
    for i, s in enumerate(several):
        np.testing.assert_array_equal(s.numpy(), np.full_like(X, i))


def test_streams_wait_for_events_and_for_each_other(gate: Gate, streams: Any) -> None:
    other, event = streams.Stream(), streams.Event()
    assert event.query()
    gate.close()
    event.record(streams.current_stream())
    assert not event.query()
    other.wait_event(event)
    other.wait_stream(streams.current_stream())
    assert not other.query()
    gate.open()
    event.synchronize()
    other.synchronize()
    assert event.query() and other.query()


def test_events_have_the_time_of_the_device(streams: Any) -> None:
    begin, end = streams.Event(), streams.Event()
    with pytest.raises(ValueError, match="elapsed_time: both events have to be recorded"):
        begin.elapsed_time(end)
    stream = streams.current_stream()
    begin.record(stream)
    x = lt.asarray(X, device=NAME)
    for _ in range(3):
        x = x * 2
        lt.sync()
    end.record(stream)
    assert 0 < begin.elapsed_time(end) < 60_000


def test_each_thread_has_a_current_stream(streams: Any) -> None:
    here, found = streams.current_stream(), []

    def elsewhere() -> None:
        with streams.stream(streams.Stream()):
            found.append((lt.asarray(X, device=NAME) * 2).numpy())
            found.append(streams.current_stream() == here)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], X * 2)
    assert found[1] is False and streams.current_stream() == here


def test_a_wrong_index_is_raised_by_who_waits_and_by_what_is_computed_of_it() -> None:
    table, at = lt.asarray(X, device=NAME), lt.asarray(np.array([0, 9]), device=NAME)
    y = lt.take(table, at, axis=0)
    lt.sync()
    z = y + 1
    lt.sync()
    for x in (y, z, y):
        with pytest.raises(lt.IndexOutOfRange, match=r"index 9 is out of bounds for an axis of size 3 .*test_streams"):
            x.numpy()
    np.testing.assert_array_equal((table + 1).numpy(), X + 1)


def test_a_wrong_index_names_the_line_of_its_own_program() -> None:
    """Though the plan is that of the same program at another line."""
    table, at = lt.asarray(X, device=NAME), lt.asarray(np.array([0, 8]), device=NAME)
    for wait in (False, True):
        first = lt.take(table, at, axis=0)
        if not wait:
            lt.sync()
        with pytest.raises(lt.IndexOutOfRange) as one:
            first.numpy()
        del first
        second = lt.take(table, at, axis=0)
        if not wait:
            lt.sync()
        with pytest.raises(lt.IndexOutOfRange) as other:
            second.numpy()
        del second
        lines = [int(re.findall(r"test_streams.py:(\d+)", str(e.value))[0]) for e in (one, other)]
        assert lines[1] == lines[0] + 6


def test_a_wrong_index_that_is_read_at_once_leaves_all_pending() -> None:
    table, at = lt.asarray(X, device=NAME), lt.asarray(np.array([7]), device=NAME)
    y = lt.take(table, at, axis=0)
    with pytest.raises(lt.IndexOutOfRange, match="index 7"):
        y.numpy()
    assert y.is_pending
    del y


def test_spans_are_the_times_of_the_device(streams: Any) -> None:
    def program() -> None:
        x = lt.asarray(X, device=NAME)
        y = lt.softmax(x * 2, -1) @ x.T
        lt.sync()
        x += 1
        lt.sync()
        y.numpy(), lt.fft.fft(x).numpy()

    for _ in range(3):  # until its plan is a fused one
        program()
    begin = time.perf_counter()
    with streams.spans() as spans:
        program()
        assert spans == []
    end = time.perf_counter()
    names = [s.name for s in spans]
    assert "multiply + softmax" in names and "matmul" in names and "add" in names
    assert {"copy from the host", "copy to the host"} < set(names)
    assert [s.name for s in spans if s.on_host] == ["fft.fft"]
    assert all(begin - 0.01 < s.begin <= s.end < end + 0.01 and s.device == f"{NAME}:0" for s in spans)
    assert names.index("multiply + softmax") < names.index("matmul") < names.index("add")
    assert sum(s.duration for s in spans) > 0
    program()
    assert [s.name for s in spans] == names


def test_the_most_memory_is_counted(streams: Any) -> None:
    gc.collect()  # what earlier tests left would be freed in between
    streams.synchronize()
    streams.reset_peak_memory_stats()
    before = streams.max_memory_allocated()
    x = lt.ones(1 << 16, device=NAME) + 1
    lt.sync()
    del x
    assert streams.max_memory_allocated() >= before + 4 * (1 << 16)
    streams.reset_peak_memory_stats()
    assert streams.max_memory_allocated() < before + 4 * (1 << 16)
