"""Random programs: fused, unfused, eager, both tiers, one thread or two give the same bits, and NumPy agrees."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, note

import lazyt as lt
from lazyt.backends.cpu import kernel_rows
from lazyt.runtime import plan_cache
from lazyt.testing import array_programs, reference
from lazyt.testing.array_programs import WORD, Writer
from tests.support.drawn import examples
from tests.support.plans import bits, forget

TOLERANCE = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-11}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let small kernels have work for several threads, and what a test changes be put back."""
    monkeypatch.setattr(kernel_rows, "GRAIN", 8)
    for name in plan_cache.settings:
        monkeypatch.setitem(plan_cache.settings, name, plan_cache.settings[name])
    threads = lt.get_num_threads()
    lt.set_num_threads(2)
    yield
    lt.set_num_threads(threads)
    forget()


def check_numpy(w: Writer, line: str) -> None:
    """A statement alone, on the values that lazyt had, gives what NumPy gives."""
    name, *operands = WORD.findall(line)
    got = w.values[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = np.asarray(
                eval(line.partition("=")[2], {"xp": reference, "np": np, "leaf": array_programs.leaf, **w.values})
            )
        except (ValueError, TypeError):
            return  # NumPy refuses some reductions over nothing whose result is nothing.
    assert (got.dtype, got.shape) == (want.dtype, want.shape), line
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, err_msg=line)
    elif not ("cumulative" in line and got.dtype == np.float16):  # lazyt rounds such a scan once, at the end.
        floats = [w.values[n] for n in (name, *operands) if w.values[n].dtype.kind == "f"]
        scale = max([1.0, *(float(np.max(np.abs(v[np.isfinite(v)]), initial=0)) for v in floats[1:])])
        t = max(TOLERANCE[str(v.dtype)] for v in floats)
        np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=t, atol=t * scale, err_msg=line)


def run(regime: str, lines: list[str], w: Writer) -> dict[str, np.ndarray]:
    """The values of a program's names under a regime."""
    s = plan_cache.settings
    forget()
    s["tiers"], s["fuse"] = regime in ("first seen", "eager"), regime != "unfused"
    lt.set_num_threads(1 if regime == "one thread" else 2)
    if regime == "synced now and then":
        lines = [line if i % 3 else f"{line}\nxp.sync()" for i, line in enumerate(lines)]
    space: dict[str, Any] = {"xp": lt, "np": np, "leaf": array_programs.leaf}
    code = compile("\n".join(lines), f"<{regime}>", "exec")
    if regime == "eager":
        with lt.eager():
            exec(code, space)
    else:
        exec(code, space)
    names = w.alive[-3:] if regime == "the rest is dead" else list(w.values)
    for name in w.values.keys() - set(names):
        del space[name]
    return {name: space[name].numpy() for name in names}


REGIMES = ("fused", "the rest is dead", "first seen", "unfused", "eager", "one thread", "synced now and then")


def check_every_way(data: st.DataObject) -> None:
    plan_cache.settings["tiers"] = True
    w = Writer(lambda n: data.draw(st.integers(0, n - 1)))
    w.program(length=12)
    note("\n".join(w.lines))
    for line in w.lines:
        check_numpy(w, line)
    for regime in REGIMES:
        for name, got in run(regime, w.lines, w).items():
            want = w.values[name]
            assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{regime}: {name}"
            if name not in w.tainted and bits(got) != bits(want):
                np.testing.assert_array_equal(got, want, err_msg=f"{regime}: {name}")
                raise AssertionError(f"{regime}: {name} differs in the sign of a zero")


@examples(15)
@given(st.data())
def test_every_way_to_run_a_program_gives_the_same_bits(data: st.DataObject) -> None:
    """A program compiles some ten kernels in each way; the slow test tries four times as many."""
    check_every_way(data)


@pytest.mark.slow
@examples(60)
@given(st.data())
def test_every_way_to_run_more_programs_gives_the_same_bits(data: st.DataObject) -> None:
    check_every_way(data)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 1), (2, 130), (1, 40), (5, 17), (70, 3), (0, 4), (4, 0)])
def test_reductions_have_one_order_whatever_they_are_fused_with(dtype: str, shape: tuple[int, ...]) -> None:
    x = array_programs.leaf(shape, dtype, 7)
    found = []
    for fuse in (True, False):
        plan_cache.settings["tiers"], plan_cache.settings["fuse"] = False, fuse
        for threads in (1, 2):
            forget()
            lt.set_num_threads(threads)
            t = lt.asarray(x)
            soft = lt.softmax(t, axis=-1) if shape[-1] else t
            row = lt.sum(t * soft, axis=-1, keepdims=True)
            column = lt.sum(t * soft, axis=0)
            parts = (soft, row, column, t - row, lt.mean(t), lt.var(t - row), lt.sum((t - row) * column))
            found.append([bits(p.numpy()) for p in parts])
    assert all(f == found[0] for f in found)


def test_an_axis_split_twice_is_still_affine() -> None:
    """repeat puts an axis between, reshape merges all: what a library call reads is computed in one kernel."""
    plan_cache.settings["tiers"] = False
    a = np.arange(24).reshape(4, 3, 2)
    x = lt.cumsum(lt.reshape(lt.repeat(lt.asarray(a), 2, axis=0) - 1, -1))
    y = x + 0
    del x
    np.testing.assert_array_equal(y.numpy(), np.cumsum(np.repeat(a, 2, axis=0).reshape(-1) - 1))


def test_a_part_of_two_concatenations_is_copied_after_it_is_written() -> None:
    plan_cache.settings["tiers"] = False
    c, x, y = lt.asarray([False]), lt.asarray([7.0]), lt.asarray(np.arange(3, dtype=np.float32))
    part = lt.where(c, x, -1.0)
    whole = lt.concat([part, y])
    twice = lt.concat([whole, whole, x])
    low = lt.minimum(part @ x, 0.0)
    assert twice.tolist() == [-1.0, 0.0, 1.0, 2.0, -1.0, 0.0, 1.0, 2.0, 7.0]
    assert whole.tolist() == [-1.0, 0.0, 1.0, 2.0] and low.tolist() == -7.0


def test_a_written_value_is_copied_into_a_concatenation_after_both_writes() -> None:
    plan_cache.settings["tiers"] = False
    x = lt.asarray(np.arange(4))
    x[0:1] = 100
    assert lt.concat([x, x[::-1]]).tolist() == [100, 1, 2, 3, 3, 2, 1, 100]


def test_several_gathers_of_one_plan_keep_their_strides() -> None:
    """The code of the second index check is 2, and the stride of what it indexes is 1."""
    plan_cache.settings["tiers"] = False
    x, y = lt.asarray(np.arange(6)), lt.asarray(np.arange(10, 16))
    i, j = lt.asarray([5, 1]), lt.asarray([0, 4])
    p, q, r = x[i], y[j], x[j]
    lt.sync()
    assert (p.tolist(), q.tolist(), r.tolist()) == ([5, 1], [10, 14], [0, 4])


def test_a_plan_made_for_nothing_serves_something() -> None:
    """flip must not look at whether there are elements: the plan is used for other extents."""
    for n in (0, 0, 3):
        x = lt.asarray(np.arange(n))
        assert (lt.flip(x) * 2).tolist() == list(range(2 * n - 2, -1, -2))
