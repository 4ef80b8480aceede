"""Long rows, fewer than multiprocessors, that a kernel reads again: divided between blocks, to the same bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cuda import cupy_driver
from lazyt.backends.cuda.flags import switches
from tests.support.cuda.fake import FakeDriver, installed
from tests.support.cuda.programs import flat
from tests.support.cuda.shim import compiler


@pytest.fixture(autouse=True)
def _has_a_compiler() -> Iterator[None]:
    compiler()
    # The rules that all backends share give the bits of the CPU.
    with mock.patch.dict(switches, {"native-math": False}):
        yield


class ManyProcessors(FakeDriver):
    def properties(self, device: int) -> cupy_driver.Properties:
        return dataclasses.replace(super().properties(device), processors=24)


def soft_rows(x: Any) -> Any:
    return lt.softmax(x, -1), lt.nn.functional.log_softmax(x * 2, -1), lt.argmax(x, -1), x.std(-1)


def half_rows(x: Any) -> Any:
    return lt.softmax(x.astype("bfloat16"), -1).astype("float32"), lt.softmax(x.astype("float16"), -1)


def normalized_rows(x: Any) -> Any:
    x = x.detach().requires_grad_()
    w = (x.detach()[0] + 1).requires_grad_()
    y = lt.nn.functional.layer_norm(x, (x.shape[-1],), w, w.detach())
    (y * y).sum().backward()
    return y, x.grad, w.grad


def classified_rows(x: Any) -> Any:
    x = x.detach().requires_grad_()
    at = lt.asarray(np.arange(x.shape[0]) * 4001).to(x.device)
    loss = lt.nn.functional.cross_entropy(x, at)
    loss.backward()
    return loss, x.grad


@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize("program", [classified_rows, soft_rows, half_rows, normalized_rows])
def test_long_rows_that_are_read_again_are_divided(program: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage in launches of its own, with the bits of one block a row, which are the CPU's."""
    x = (np.random.default_rng(rows).normal(size=(rows, 40_003)) * 3).astype(np.float32)
    want = flat(program(lt.tensor(x)))
    ways = []
    for on in (True, False):
        monkeypatch.setitem(switches, "split", on)
        with installed(ManyProcessors()):
            values = program(lt.tensor(x, device="cuda:0"))
            ways.append(str(lt.explain(*values)).count("divided between blocks"))
            for g, w in zip(flat(values), want, strict=True):
                np.testing.assert_array_equal(g, w)
            del values
    assert ways[0] > 0 == ways[1]


def test_a_wrong_class_of_a_long_row_is_found() -> None:
    with installed(ManyProcessors()):
        x = lt.tensor(np.ones((2, 40_003), np.float32), device="cuda:0")
        loss = lt.nn.functional.cross_entropy(x, lt.tensor([7, 40_003], device="cuda:0"))
        with pytest.raises(IndexError, match="40003"):
            loss.numpy()
        del loss
