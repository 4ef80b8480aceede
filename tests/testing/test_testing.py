"""lazyt.testing finds what is broken on purpose, names its line, and makes the program small."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.ir import graph as g
from lazyt.ir.passes.canonicalize import canonicalize
from lazyt.ops.definition import OPS
from lazyt.runtime import plan_cache, sync as syncing
from lazyt.testing import Mismatch, assert_close, check_against_numpy, reference, ulp_distance
from lazyt.testing.bisect import first_of, needed
from lazyt.testing.departures import DEPARTURES
from lazyt.testing.differential import lockstep
from lazyt.testing.fuzz import Search, check_apart
from lazyt.testing.gradient_programs import slope
from lazyt.testing.modes import AGAIN, EAGER, FIRST, FIRST_BY_NUMPY, RANDOM, Mode, mode, modes
from lazyt.testing.seeds import recheck, small, try_seed, up_to, write
from lazyt.testing.shrink import shrink
from lazyt.testing.statements import Failure, Stopped, check
from lazyt.tracing.trace import local

HERE = Path(__file__).name


def line_of(f: Callable[..., Any], text: str) -> str:
    """`file:line` of the first line of a function that has `text`."""
    start = f.__code__.co_firstlineno
    for i, line in enumerate(Path(__file__).read_text().splitlines()[start - 1 :]):
        if text in line:
            return f"{HERE}:{start + i}"
    raise AssertionError(text)


# --- what breaks lazyt ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def broken_lowering(name: str, wrong: Callable[..., Any]) -> Iterator[None]:
    """An operation with another meaning: `wrong(b, node)` of what it should be."""
    op = OPS[name]
    lower = op.lower
    object.__setattr__(op, "lower", lambda b, *xs, **more: wrong(b, lower(b, *xs, **more)))
    try:
        yield
    finally:
        object.__setattr__(op, "lower", lower)


def one_more(b: Any, n: Any) -> Any:
    """n + 1, in n's dtype."""
    return b.add(n, b.expand_to(b.constant(1, n.dtype), n.shape))


def rewritten(monkeypatch: pytest.MonkeyPatch, old: str, new: str, when: Callable[[g.Graph], bool]) -> None:
    """Plans compute primitive `new` where the program says `old`, in graphs that fit."""

    def wrong(*args: Any) -> g.Graph:
        graph = canonicalize(*args)
        for n in graph.nodes:
            if n.op == old and when(graph):
                n.op = new
        return graph

    monkeypatch.setattr("lazyt.ir.passes.pipeline.canonicalize", wrong)


# --- assert_close ---------------------------------------------------------------------------------------------------


def test_distance_in_units_in_the_last_place() -> None:
    one = np.float32(1)
    assert ulp_distance(one, np.nextafter(one, np.float32(0))) == 1
    tiny = np.array([np.finfo("f4").smallest_subnormal], "f4")
    assert ulp_distance(tiny, -tiny).tolist() == [2]
    assert ulp_distance(np.array([np.inf]), np.array([np.finfo("f8").max])).tolist() == [1]
    assert ulp_distance(np.array([-np.inf]), np.array([np.inf])).tolist() == [2 * 0x7FF0000000000000]
    assert ulp_distance(np.array([1 + 1j], "c8"), np.array([1 + 1.0000001j], "c8")).tolist() == [1]
    assert ulp_distance(np.array([2**63 + 1], "u8"), np.array([2**63 - 1], "u8")).tolist() == [2]
    with pytest.raises(TypeError, match="dtypes float32 and float64 differ"):
        ulp_distance(one, np.float64(1))


def test_shape_and_dtype_are_told_first() -> None:
    x = lt.asarray(np.ones((2, 3), "f4"))
    with pytest.raises(AssertionError, match=r"shape \(2, 3\) where \(3, 2\) is expected"):
        assert_close(x, np.zeros((3, 2)))
    with pytest.raises(AssertionError, match=r"dtype float32 where float64 is expected \(shape \(2, 3\)\)"):
        assert_close(x, np.zeros((2, 3)))
    assert_close(x, [[1, 1, 1], [1, 1, 1]])
    assert_close(3.0, lt.asarray(np.float64(3)))


def test_the_worst_element_and_the_recorded_line() -> None:
    lt.sync()  # what an earlier test left pending has numbers too
    x = np.linspace(0, 1, 6, dtype="f4").reshape(2, 3)
    y = lt.exp(lt.asarray(x)) * 2
    want = np.exp(x) * 2
    want[1, 2] += 1
    want[0, 1] += 0.25
    with pytest.raises(AssertionError) as e:
        assert_close(y, want)
    text = str(e.value)
    assert "2 of 6 elements differ (float32 (2, 3))" in text
    assert "worst at [1, 2]: actual 5.43656" in text and f"expected {want[1, 2].item()}" in text
    assert "ULP" in text and "2 rounding primitives" in text
    line = line_of(test_the_worst_element_and_the_recorded_line, "lt.exp")
    assert f"recorded: multiply %1, 2, at tests/testing/{line}" in text


def test_tolerances() -> None:
    x = np.array([1.0, 2.0, np.nan, np.inf])
    assert_close(lt.asarray(x), x)
    for bad in ([1.0, 2.0, np.nan, -np.inf], [1.0, 2.0, 0.0, np.inf], [1.0, 2.0, np.nan, 1e308]):
        with pytest.raises(AssertionError, match="1 of 4"):
            assert_close(lt.asarray(x), np.array(bad))
    with pytest.raises(AssertionError, match=r"1 of 4 elements(.|\n)*actual nan, expected nan"):
        assert_close(lt.asarray(x), x, equal_nan=False)
    near = x * (1 + 4e-16)
    assert_close(lt.asarray(x), near, ulp=2)
    with pytest.raises(AssertionError, match=r"2 ULP\n.*allowed: 1 ULP"):
        assert_close(lt.asarray(x), near, ulp=1)
    assert_close(lt.asarray(x), x + 1, atol=1)
    with pytest.raises(AssertionError, match=r"rtol 0.1, atol 0 \(given\)"):
        assert_close(lt.asarray(x), x * 1.2, rtol=0.1)
    with pytest.raises(ValueError, match="ulp is a tolerance of its own"):
        assert_close(x, x, ulp=1, rtol=1)
    with pytest.raises(AssertionError, match=r"int64 is exact"):
        assert_close(lt.asarray([1, 2]), [1, 3])
    # One product rounds once: two units are allowed, and a thousand are not.
    p = np.array([1.1, 1.3], "f4")
    with pytest.raises(AssertionError, match="1 rounding primitive"):
        assert_close(lt.asarray(p) * lt.asarray(p), p * p * np.float32(1.0001))


# --- modes ----------------------------------------------------------------------------------------------------------


def test_modes_sync_where_they_say_and_leave_nothing_behind() -> None:
    outside = lt.ones(3) + 1
    trace, settings, programs = local.trace, dict(plan_cache.settings), plan_cache._programs

    def work() -> list[bool]:
        x = lt.ones(3) * 2
        y = x + 1
        z = lt.sum(y)
        return [x.is_pending, y.is_pending, z.is_pending]

    with mode(FIRST, keep=True) as tr:
        assert work() == [True, True, True]
        assert not tr.synced
    with mode(EAGER) as tr:
        assert work() == [False, False, False]
        assert tr.synced == [1, 2, 3, 4]
    with mode(Mode("after the third", places=frozenset({3}))):
        assert work() == [False, False, True]
    runs = []
    for seed in (5, 5, 6):
        with mode(Mode("random", RANDOM, seed)) as tr:
            for _ in range(10):
                work()
        runs.append(tr.synced)
    assert runs[0] == runs[1] != runs[2] and 0 < len(runs[0]) < 40
    with mode(AGAIN):
        hits: list[bool] = []
        for _ in range(3):
            kept = lt.exp(lt.ones(3))
            assert kept.numpy().shape == (3,)
            hits.append(lt.last_sync().plan_hit)
    assert not hits[0] and hits[2]
    assert local.trace is trace and plan_cache.settings == settings and plan_cache._programs is programs
    assert outside.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="sync='sometimes'"):
        modes("sometimes", 0)


# --- check_against_numpy --------------------------------------------------------------------------------------------

X = np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4)


def program(x: Any, y: Any, xp: Any) -> Any:
    h = xp.tanh(x) * 2
    h[0] += y
    part = h[:, ::2]
    part *= 3
    y += 1
    if float(xp.sum(h)) > 1e9:
        h = h + 1
    s = xp.softmax(h, axis=-1)
    return {"rows": s, "more": (xp.max(s, axis=0), [xp.argmax(h), int(xp.sum(x > 0))])}


def test_a_right_program_passes_in_every_mode() -> None:
    x, y = X.copy(), np.arange(4, dtype="f4")
    check_against_numpy(program, x, y, seed=1)
    np.testing.assert_array_equal(x, X)  # the caller's arrays are left alone
    for sync in ("never", "always", "random"):
        check_against_numpy(program, lt.asarray(x), y, sync=sync, seed=2, backends=["cpu"])
    check_against_numpy(lambda a, n: a.sum() ** n, np.arange(4.0), 3, sync="always")
    with pytest.raises(lt.DeviceError, match="cuda"):
        check_against_numpy(program, x, y, backends=["cuda:77"])


def test_gradients_have_the_same_bits_in_every_mode() -> None:
    def gradient(x: Any, xp: Any) -> Any:
        if xp is reference:
            return 3 * x * x
        t = xp.asarray(x, copy=True)
        t.requires_grad = True
        (t**3).sum().backward()
        return t.grad

    check_against_numpy(gradient, np.linspace(0, 1, 5), seed=0)


def test_side_by_side_counts_every_operation() -> None:
    assert lockstep(program, [X, np.arange(4, dtype="f4")]) >= 12


def test_a_wrong_meaning_is_traced_to_its_line() -> None:
    with broken_lowering("tanh", one_more), pytest.raises(Mismatch) as e:
        check_against_numpy(program, X, np.zeros(4, "f4"), seed=3)
    f = e.value.finding
    assert f is not None
    assert f.operation == "tanh" and f.line.endswith(line_of(program, "xp.tanh"))
    assert f.operands == ["float32 (3, 4) in [-1.0, 1.0]"] and "the operation's meaning" in f.blame
    assert "12 of 12 elements differ" in str(f.found)
    for word in ("program, result['rows']", "synced after each operation", "worst at", "expected", f.line):
        assert word in str(e.value)


def test_a_wrong_kernel_is_told_from_a_wrong_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten(monkeypatch, "tanh", "sin", lambda graph: True)
    with pytest.raises(Mismatch) as e:
        check_against_numpy(program, X, np.zeros(4, "f4"), seed=3)
    f = e.value.finding
    assert f is not None and f.operation == "tanh" and f.line.endswith(line_of(program, "xp.tanh"))
    assert "code generation" in f.blame and any("tanh" in row for row in f.near)


def test_a_wrong_write_is_traced_to_its_line() -> None:
    def writes(x: Any, xp: Any) -> Any:
        y = x + 1
        y[1:] *= 2
        return y

    with broken_lowering("multiply", one_more), pytest.raises(Mismatch) as e:
        check_against_numpy(writes, X)
    assert e.value.finding is not None
    assert e.value.finding.line.endswith(line_of(writes, "*= 2"))


def test_a_wrong_fusion_is_traced_to_the_step_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fused(x: Any, xp: Any) -> Any:
        y = xp.exp(x)
        z = xp.floor(y * 4)
        return z - 1

    # Wrong only where floor and exp meet in one fused plan.
    now: dict[str, bool] = {}
    init = plan_cache.Plan.__init__

    def noted(self: Any, low: Any, want: Any, fused: bool, *args: Any, **options: Any) -> None:
        now["fused"] = fused
        init(self, low, want, fused, *args, **options)

    monkeypatch.setattr(plan_cache.Plan, "__init__", noted)
    rewritten(
        monkeypatch, "floor", "ceil", lambda graph: now["fused"] and {"exp", "floor"} <= {n.op for n in graph.nodes}
    )
    check_against_numpy(fused, X, sync="always")
    with pytest.raises(Mismatch, match="synced at the end") as e:
        check_against_numpy(fused, X)
    f = e.value.finding
    assert f is not None and "fusion" in f.blame
    assert f.operation.startswith("floor") and f.line.endswith(line_of(fused, "xp.floor"))


def _syncs_after(seed: int, operation: int) -> bool:
    due = Mode("", RANDOM, seed).due()
    return [n for n in range(1, operation + 1) if due(n)][-1:] == [operation]


def test_a_wrong_sync_is_found_by_leaving_the_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(x: Any, xp: Any) -> Any:
        for _ in range(6):
            x = x * 2
        y = xp.exp(x)
        return y + x

    commit = syncing.commit

    def wrong(tr: Any, slots: Any, holders: Any, others: Any, values: Any, *rest: Any) -> None:
        # A sync right after exp keeps the wrong value.
        if tr.pos.op is OPS["exp"] and len(values) > 1:
            values = [values[0]] * len(values)
        commit(tr, slots, holders, others, values, *rest)

    monkeypatch.setattr(syncing, "commit", wrong)
    seed = next(seed for seed in range(200) if _syncs_after(seed, 7))
    with pytest.raises(Mismatch) as e:
        check_against_numpy(many, np.ones(3, "f4"), sync="random", seed=seed)
    text = str(e.value)
    assert "needed: a sync after operation 7 (exp, at " in text and line_of(many, "xp.exp(x)") in text
    assert text.count("needed:") == 1


def test_other_structure_shape_and_dtype_are_told() -> None:
    for fn, match in (
        (lambda x: (x, x) if isinstance(x, np.ndarray) else x, "result is made of"),
        (lambda x: x if isinstance(x, np.ndarray) else x[None], r"shape \(1, 3, 4\), expected \(3, 4\)"),
        (lambda x: x if isinstance(x, np.ndarray) else x.astype("float64"), "dtype float64, expected float32"),
    ):
        with pytest.raises(Mismatch, match=match):
            check_against_numpy(fn, X, sync="never")


def test_an_error_of_lazyt_has_the_mode_in_its_notes() -> None:
    with pytest.raises(lt.ShapeError) as e:
        check_against_numpy(lambda x: x if isinstance(x, np.ndarray) else x @ x, X, sync="never")
    assert e.value.__notes__ == ["lazyt.testing: synced at the end"]


def test_searching_by_halves() -> None:
    assert first_of(list(range(100)), lambda i: i >= 37) == 37
    assert first_of([1, 2], lambda i: False) is None
    tried = []

    def fails(s: frozenset[int]) -> bool:
        tried.append(s)
        return {3, 17} <= s

    assert needed(range(20), fails) == {3, 17}
    assert len(tried) < 80


# --- departures -----------------------------------------------------------------------------------------------------


def test_where_lazyt_means_to_differ_nothing_is_wrong() -> None:
    def program(x, y, xp):
        return xp.floor_divide(x, y) + 1

    check_against_numpy(program, np.array([np.inf, 1.0, 7.0]), np.array([2.0, -np.inf, 2.0]), seed=0)
    check_against_numpy(lambda x, xp: xp.reciprocal(x), np.array([0j, 1 + 1j]), seed=0)
    check_against_numpy(lambda x, xp: xp.expm1(x), np.array([np.inf + 0j, np.nan + 0j, 1 + 1j]), seed=0)
    with pytest.raises(Mismatch), broken_lowering("expm1", one_more):
        check_against_numpy(lambda x, xp: xp.expm1(x), np.array([np.inf + 0j, 1 + 1j]), seed=0)
    halves = np.array([np.inf, 7.0]).astype(lt.bfloat16), np.array([-2.0, 2.0]).astype(lt.bfloat16)
    check_against_numpy(lambda x, y, xp: xp.floor_divide(x, y), *halves, sync="always")
    huge = np.finfo(np.float64).max
    check_against_numpy(lambda x, xp: xp.cumulative_prod(x), np.array([0.0, huge, -huge]), seed=0)
    check_against_numpy(lambda x, xp: xp.astype(x, "int32"), np.array([np.nan, np.inf, -3e9, 2.5]), seed=0)
    large = np.array([0.0, huge, -huge]), np.array([1.0, -3.0, -3.0])
    check_against_numpy(lambda x, y, xp: xp.matmul(x, y), *large, sync="always")
    with pytest.raises(Mismatch), broken_lowering("matmul", one_more):
        check_against_numpy(lambda x, y, xp: xp.matmul(x, y), np.ones(3), large[1], seed=0)
    with pytest.raises(Mismatch), broken_lowering("astype", one_more):
        check_against_numpy(lambda x, xp: xp.astype(x, "int32"), np.array([np.nan, 2.5]), seed=0)
    with pytest.raises(Mismatch), broken_lowering("floor_divide", one_more):
        check_against_numpy(program, np.array([np.inf, 1.0, 7.0]), np.array([2.0, -np.inf, 2.0]), seed=0)


def test_departures_are_written_down() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    for d in DEPARTURES:
        assert all(f"`{n}`" in page for n in d.names if n != "true_divide"), d


# --- random programs ------------------------------------------------------------------------------------------------


def test_a_seed_is_a_program() -> None:
    for seed in range(6):
        assert write(seed) == write(seed)
    kinds = "\n".join("\n".join(write(s)) for s in range(12))
    for part in (" += ", "new(", "[::-1]", "np.array(", "xp.reshape", "] = "):
        assert part in kinds


def test_what_numpy_refuses_is_no_program() -> None:
    with pytest.raises(Stopped):
        check(["v0 = np.zeros(3) + np.zeros(4)"])


def test_a_broken_operation_is_found_and_made_small(capsys: pytest.CaptureFixture[str]) -> None:
    with broken_lowering("multiply", one_more):
        found = next(f for s in range(60) if (f := try_seed(s)) is not None)
        assert found.failure.kind == "numpy" and len(found.lines) > 6
        assert len(found.small) <= 3, found.small
        assert any("*" in line or "multiply" in line for line in found.small)
        code = found.script()
        assert code.count("\n") < 30
        with pytest.raises(AssertionError, match="assert_close"):
            exec(compile(code, "<script>", "exec"), {"__name__": "script"})
    exec(compile(code, "<script>", "exec"), {"__name__": "script"})  # agrees when nothing is broken
    assert capsys.readouterr().out.count("NumPy:") == 2


def test_a_view_of_the_table_is_no_new_value() -> None:
    # matrix_transpose is a view in both: a copy of it in NumPy alone would take a write for a difference.
    for seed in (102492, 104733, 106020):
        assert not any("new(xp.matrix_transpose" in line for line in write(seed))
        assert try_seed(seed) is None


def test_bits_of_a_covariance_may_depend_on_what_else_is_planned() -> None:
    # A product of 35 x 35 by BLAS, among the plain calls of a program.
    lines = write(5028051)
    assert any("xp.cov(v0)" in line for line in lines)
    assert try_seed(5028051) is None


def test_what_follows_the_statement_that_failed_is_left_out() -> None:
    lines = ["v0 = xp.ones(2)", "v1 = v0 + 1", "v2 = v1 * 2"]
    assert up_to(lines, Failure("numpy", "v1", "wrong", line=1)) == lines[:2]
    assert up_to(lines, Failure("once", "v1", "wrong while it was written, and not again")) == lines


@pytest.mark.parametrize("seed", [5049104, 5052998, 5056261, 5067319])
def test_what_the_search_found_and_lazyt_means(seed: int) -> None:
    # The sign of an infinite complex number; an identity matrix, which is float32 by default, beside float16; log(0),
    # which is -100 in a cross-entropy; an index into an axis without elements.
    assert try_seed(seed) is None


def test_what_fails_while_a_loop_is_written_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    # Singular values of NaN, which NumPy refuses too; it ended the process of a search.
    assert try_seed(70109471) is None

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("broken on purpose")

    assert any("xp.nonzero(v3)" in line for line in write(1581))
    told: list[list[str]] = []
    monkeypatch.setattr(lt, "nonzero", fails)
    found = try_seed(1581, seconds=1.0, tell=told.append)
    assert found is not None and "broken on purpose" in found.failure.message and "nonzero(v3)" in found.lines[-1]
    assert found.lines in told


def test_floats_of_small_integers_are_wider_than_numpys() -> None:
    # NumPy's are float16, which has no 162,754.
    lines = ["v0 = xp.asarray(np.array([12, 3, -5, 100], 'int8'))", "v1 = new(xp.expm1(v0))"]
    assert check(lines) is None
    x = np.array([12, 3, -5, 100], np.int8)
    for f in ("expm1", "exp", "sinh", "tanh"):
        check_against_numpy(lambda a, xp, f=f: getattr(xp, f)(a), x)
    with broken_lowering("exp", one_more), pytest.raises(AssertionError, match="first difference: exp"):
        check_against_numpy(lambda a, xp: xp.exp(a), x)


def test_weights_that_cancel_have_many_sums() -> None:
    loss = "v1 = new(xp.nll_loss(xp.ones((6, 4), dtype='float32'), xp.asarray(np.array([0, 3, 1, 1, 2, 0])), v0))"
    assert check(["v0 = xp.asarray(np.array([1.5, 0.0, 3.4e38, -3.4e38], 'float32'))", loss]) is None
    with broken_lowering("nll_loss", one_more):
        assert check(["v0 = xp.asarray(np.array([1.5, 0.0, 3.0, -2.0], 'float32'))", loss]) is not None


def test_nothing_defines_the_sign_of_a_nan() -> None:
    # The remainder by NumPy, which a first run asks, has another one than a kernel's.
    lines = ["v0 = xp.asarray(np.array([np.inf, 1.0], 'float32'))", "v1 = new(xp.remainder(v0, 3))"]
    assert check([*lines, "v2 = new(xp.signbit(v1))"], [FIRST_BY_NUMPY]) is None
    assert check([*lines, "v2 = new(xp.copysign(v0, v1))"], [FIRST_BY_NUMPY]) is None


def test_eigenvalues_are_complex_numbers_where_all_are_real_too() -> None:
    assert np.linalg.eigvals(np.eye(2)).dtype == np.float64
    check_against_numpy(lambda x, xp: (xp.linalg.eigvals(x), *xp.linalg.eig(x)), np.eye(2), sync="always")
    assert check(["v0 = new(xp.linalg.eigvals(xp.asarray(np.eye(2))))"]) is None


def test_singular_values_are_0_where_the_standard_says_so() -> None:
    a = np.array([[11.480464935302734, 9.085765838623047], [9.085765838623047, 7.19057559967041]], np.float32)
    check_against_numpy(lambda x, xp: xp.linalg.pinv(x), a, sync="always")


def test_a_write_in_the_middle_of_a_search_finds_what_is_pending() -> None:
    # A trace forgets its trie where it is synced; what a write under a mask syncs in between was looked for there.
    assert all(try_seed(seed) is None for seed in range(628641405, 628641412))


def test_equal_elements_at_the_median_are_a_kink() -> None:
    assert slope(["a = new(var((2, 3, 2), 518))", "loss = xp.sum(xp.median(a, axis=1))"]) is None
    assert slope(["a = new(var((2, 3, 2), 518))", "loss = xp.sum(xp.exp(a) * 9)"]) is not None


def test_a_dtype_may_be_a_name_in_what_is_made_small() -> None:
    lines = ["v0 = xp.asarray(np.arange(6.0))", "v1 = new(v0[np.array([True, False, True, False, True, True], bool)])"]
    assert shrink(lines, lambda x: any("np.array(" in line and "bool" in line for line in x), 5)[-1].count("True") <= 2


@pytest.mark.slow
def test_what_is_wrong_only_when_fused_is_made_small_in_that_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten(monkeypatch, "floor", "ceil", lambda graph: {"exp", "floor"} <= {n.op for n in graph.nodes})
    lines = [
        "v0 = xp.asarray(leaf((3, 5), 'float32', 1))",
        "v1 = xp.sin(v0)",
        "v2 = xp.exp(v0)",
        "v3 = v2 + 1",
        "v4 = xp.floor(v3)",
        "v5 = v4 * v1",
    ]
    failure = check(lines)
    assert failure is not None and failure.kind == "synced at the end"
    found = small(0, lines, failure, lambda x: recheck(x, failure), 30)
    assert len(found.small) <= 4 and "floor" in "".join(found.small) and "exp" in "".join(found.small)
    with pytest.raises(AssertionError, match="assert_close"):
        exec(compile(found.script(), "<script>", "exec"), {"__name__": "script"})


SCRIPT = """
import os, signal, sys
from lazyt.ops.definition import OPS
from lazyt.testing.__main__ import main

for name in ("add", "multiply", "subtract", "sum", "max"):
    op = OPS[name]

    def wrong(b, *xs, lower=op.lower, **more):
        n = lower(b, *xs, **more)
        {wrong}

    object.__setattr__(op, "lower", wrong)
if __name__ == "__main__":
    sys.exit(main({arguments}))
"""


def search(tmp_path: Path, wrong: str, arguments: list[str]) -> tuple[int, str]:
    """`python -m lazyt.testing` in a process where lazyt is broken, and its workers' lazyt too."""
    path = tmp_path / "search.py"
    path.write_text(SCRIPT.format(wrong=wrong, arguments=arguments))
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(lt.__file__).parent.parent)},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_the_command_reports_what_it_finds(tmp_path: Path) -> None:
    wrong = "return b.add(n, b.expand_to(b.constant(1, n.dtype), n.shape)) if n.dtype.kind in 'if' else n"
    code, text = search(tmp_path, wrong, ["fuzz", "--minutes", "0.5", "--programs", "2", "--seed", "7"])
    assert code == 1, text
    assert "found: seed " in text and "def program(xp" in text and "assert_close(actual, expected)" in text
    assert "2 programs, " in text
    code, text = search(tmp_path, wrong, ["replay", text.split("found: seed ")[1].split(":")[0]])
    assert code == 1 and "def program(xp" in text


@pytest.mark.slow
def test_a_crash_is_a_finding(tmp_path: Path) -> None:
    crash = "os.kill(os.getpid(), signal.SIGSEGV) if n.ndim else 0; return n"
    code, text = search(tmp_path, crash, ["fuzz", "--minutes", "0.4", "--programs", "8", "--seed", "6"])
    assert code == 1, text
    assert "the process died of SIGSEGV" in text and "def program(xp" in text


@pytest.mark.slow
def test_a_program_that_hangs_is_a_failure() -> None:
    failure = check_apart(["import time", "time.sleep(100)"], 4)
    assert failure is not None and failure.kind == "hangs"


@pytest.mark.slow
def test_nothing_found_is_success() -> None:
    s = Search(12, jobs=2)
    assert s.run(60, most=2) == [] and s.tried == 2
