"""Shapes by rule: what inference over symbols leaves agrees with inference over ints, errors included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.config import general
from lazyt.tracing import shape_inference
from lazyt.tracing.trace import local

W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: lt.tanh(x @ lt.asarray(W) + 1.0),
    "batched product": lambda x: x[:, None, :] @ lt.asarray(W),
    "softmax": lambda x: lt.softmax(x, -1),
    "mean over batch": lambda x: x.mean(axis=0),
    "mean over all": lambda x: x.mean(),
    "largest over batch": lambda x: lt.max(x, axis=0, keepdims=True),
    "variance": lambda x: lt.var(x, axis=0),
    "flattened": lambda x: lt.reshape(x, (-1,)) * 2,
    "split rows": lambda x: lt.reshape(x, (x.shape[0], 2, 2)).sum(-1),
    "joined": lambda x: lt.concat([x, x + 1], axis=0),
    "stacked": lambda x: lt.stack([x, -x], axis=1),
    "outer difference": lambda x: x[:, None] - x[None],
    "transposed product": lambda x: x.T @ x,
    "halves": lambda x: x[x.shape[0] // 2 :],
    "padded": lambda x: lt.pad(x, ((1, 2), (0, 0))),
    "windows": lambda x: lt.nn.functional.max_pool2d(x[None, None], 2) if x.shape[0] > 1 else x,
    "running sum": lambda x: lt.cumulative_sum(x, axis=0),
    "sorted": lambda x: lt.sort(x, axis=0),
    "where": lambda x: lt.where(x > 0, x, 0.0),
    "repeated": lambda x: lt.tile(x, (2, 1)),
    "argmax": lambda x: lt.argmax(x, axis=0),
    "gradient": lambda x: lt.grad(lambda y: (lt.tanh(y @ lt.asarray(W)) ** 2).mean())(x),
}  # fmt: skip
# Sizes that repeat nothing: a rule is there from the fourth on; 1 and 0 are like no other.
SIZES = (7, 5, 9, 4, 12, 1, 6, 0, 33, 2, 16)
FAIL_WHEN_EMPTY = {"largest over batch", "argmax", "windows"}


def _ones_new(n: int) -> Any:
    return lt.asarray(np.arange(4 * n, dtype=np.float32).reshape(n, 4) / 7 - 1)


def _run(f: Callable[[Any], Any], n: int) -> Any:
    y = f(_ones_new(n))
    pending = y.shape, y.dtype
    values = y.numpy()
    assert pending == (values.shape, values.dtype)
    return values


@pytest.fixture
def inferred(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of operations lowered over ints."""
    names: list[str] = []
    real = shape_inference.infer

    def counted(op: Any, *rest: Any) -> Any:
        names.append(op.name)
        return real(op, *rest)

    monkeypatch.setattr(shape_inference, "infer", counted)
    return names


@pytest.mark.parametrize("name", PROGRAMS)
def test_rules_agree_with_inference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = PROGRAMS[name]
    sizes = [n for n in SIZES if n or name not in FAIL_WHEN_EMPTY]
    ruled = [_run(f, n) for n in sizes]
    monkeypatch.setitem(general, "shapes", False)
    local.trace.reset_trie()
    for n, found in zip(sizes, ruled, strict=True):
        np.testing.assert_array_equal(found, _run(f, n))


def test_a_network_on_ever_new_batches_infers_nothing(inferred: list[str]) -> None:
    w, b = lt.asarray(W), lt.asarray(W[0])

    def run(n: int) -> None:
        lt.softmax(lt.tanh(_ones_new(n) @ w + b), -1).numpy()

    for n in (7, 5, 9, 4):
        run(n)
    del inferred[:]
    for n in range(10, 40):
        run(n)
    assert not inferred


def test_a_new_program_of_calls_that_others_made_infers_nothing(inferred: list[str]) -> None:
    x, y = lt.asarray(np.arange(5, dtype=np.int8)), lt.asarray(W[:, :1])
    lt.concat([x + 100, x]).sum()
    y.T @ y
    lt.sync()
    del inferred[:]
    np.testing.assert_allclose((y.T @ y).numpy(), W[:, :1].T @ W[:, :1], rtol=1e-6)
    total = lt.concat([x + 100, x]).sum()
    assert total.dtype == np.int64 and not inferred
    total = lt.concat([x + 101, x.astype("int16")]).sum()  # another dtype is another call
    assert inferred == ["astype", "concat", "sum"]
    with pytest.raises(lt.ScalarRangeError, match="200"):
        x + 200
    with pytest.raises(lt.ScalarRangeError, match="200"):
        (x + x) + 200  # looked up, and refused all the same
    assert total.item() == 20 + 505


@pytest.mark.parametrize(
    ("f", "good", "bad", "error", "message"),
    [
        (lambda n, m: lt.ones((n, 3)) @ lt.ones((m, 2)), [(2, 3), (4, 3), (5, 3), (6, 3)], (7, 4),
         lt.ShapeError, "matmul"),
        (lambda n, m: lt.ones((n, 3)) + lt.ones((m, 3)), [(2, 2), (4, 4), (5, 5), (6, 6)], (7, 4),
         lt.ShapeError, r"\(7, 3\) and \(4, 3\) do not broadcast"),
        (lambda n, m: lt.reshape(lt.ones((n,)), (2, m)), [(4, 2), (6, 3), (8, 4), (10, 5)], (9, 4),
         lt.ShapeError, "reshape"),
        (lambda n, m: lt.concat([lt.ones((n, 2)), lt.ones((3, m))]), [(4, 2), (5, 2), (6, 2), (7, 2)], (8, 3),
         lt.ShapeError, "concat"),
        (lambda n, m: lt.nn.functional.glu(lt.ones((n, m))), [(1, 4), (2, 6), (3, 8), (4, 2)], (5, 3),
         lt.ShapeError, "glu"),
        (lambda n, m: lt.nn.functional.avg_pool2d(lt.ones((1, 1, n, m)), 2), [(4, 4), (6, 5), (7, 3), (8, 8)], (1, 5),
         lt.ShapeError, "window"),
        (lambda n, m: lt.max(lt.ones((n, m)), axis=1), [(4, 4), (6, 5), (7, 3), (8, 8)], (3, 0), ValueError, "max"),
        (lambda n, m: lt.topk(lt.ones((n,)), m)[0], [(4, 2), (6, 5), (7, 3), (8, 8)], (3, 5), lt.ShapeError, "topk"),
    ],
)  # fmt: skip
def test_errors_are_still_found_when_recorded(
    f: Callable[[int, int], Any], good: list[tuple[int, int]], bad: tuple[int, int], error: Any, message: str
) -> None:
    for sizes in good * 2:
        lt.sync(f(*sizes))
    with pytest.raises(error, match=message):
        f(*bad)
    lt.sync(f(*good[0]))
