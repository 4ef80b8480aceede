"""Emitted code against the kernel interpreter, bit by bit, and against NumPy."""

from __future__ import annotations

import ctypes
import dataclasses
import mmap

import numpy as np
import pytest

from lazyt.backends.cpu.codegen import emit_stores, lane_by_lane
from lazyt.backends.cpu.codegen.emit import emit
from lazyt.backends.cpu.flags import switches
from lazyt.errors import LazytInternalError
from lazyt.ir import kernel as ir
from tests.support import cpu_kernels
from tests.support.cpu_kernels import call
from tests.support.kernel_builder import Builder, checked_gather
from tests.support.kernel_suite import *  # noqa: F403 - its tests, with the `check` below
from tests.support.kernel_suite import BOOL, F32, INT64, Check, scaled_columns


@pytest.fixture
def check() -> Check:
    return cpu_kernels.check


@pytest.mark.parametrize("bad", [-1, 10, 2**62, -(2**63)])
def test_check_records_the_first_wrong_index(bad: int) -> None:
    index = np.arange(40) % 10
    index[23] = bad
    k, kernel = checked_gather(40, index, np.arange(10, dtype=F32))
    args = k.arguments()
    call(kernel, args)
    assert args.status.tolist() == [41, bad]
    # What was recorded first stays.
    args.status[:] = [7, 8]
    call(kernel, args)
    assert args.status.tolist() == [7, 8]


def test_what_is_kept_for_a_column_stands_before_the_loop_over_rows() -> None:
    text = emit(scaled_columns(np.zeros((50, 21), F32), np.zeros(21, F32)).kernel(), "f")
    assert text.count("fdiv") == 1
    # The loop over columns inside the one over rows is written last.
    assert text.index("fdiv") < text.rindex("= phi i64") < text.index("fmul")


def twice_stored(n: int) -> Builder:
    x, y, z = (np.arange(n, dtype=F32) for _ in range(3))
    k = Builder((n,))
    v = k.load(x)
    k.stage(k.store(v, y), k.store(k.op("neg", v), z))
    return k


@pytest.mark.parametrize(("features", "masked"), [({"avx", "avx2"}, "some"), ({"avx", "avx512f", "avx512bw"}, "loop")])
def test_whole_vectors_are_read_and_stored_without_a_mask_where_masks_are_slow(
    features: set[str], masked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lane_by_lane, emit_stores):
        monkeypatch.setattr(module, "host_features", lambda: frozenset(features))
    monkeypatch.setitem(switches, "stream", False)
    monkeypatch.setitem(switches, "peel", False)
    monkeypatch.setattr("lazyt.backends.cpu.codegen.emit.lanes_of", lambda *_: ir.LANES)
    text = emit(twice_stored(40).kernel(), "f")
    assert text.count("store <8 x float>") == (4 if masked == "some" else 0)
    assert text.count("load <16 x float>") == (masked == "some")
    # One branch for what is read, and one for both stores, behind all that is computed.
    assert text.count("label %whole") == (2 if masked == "some" else 0)
    for access in ("<16 x float> @llvm.masked.load", "void @llvm.masked.store"):
        block = text[: text.index(f"call {access}")].rsplit(":\n", 1)[0].rsplit("\n", 1)[1]
        assert block.startswith(masked)


def negated(n: int, step: int) -> Builder:
    """Of every `step`-th of n bools, the others."""
    k = Builder((n,))
    x = np.arange(n * step) % 7 < 3
    k.stage(k.store(k.op("not", k.load(x[::step]), dtype=BOOL), np.zeros(n * step, np.bool_)[::step]))
    return k


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize(("features", "loops"), [({"avx", "avx2"}, True), ({"avx", "avx512f", "avx512bw"}, False)])
def test_what_no_processor_masks_is_accessed_in_a_loop_over_the_lanes(
    step: int, features: set[str], loops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_by_lane, "host_features", lambda: frozenset(features))
    text = emit(negated(40, step).kernel(), "f")
    # NOTE: LLVM writes a branch a lane for a masked access to bytes.
    assert ("@llvm.cttz" in text) == loops
    assert ("@llvm.masked.load.v" in text) == (not loops and step == 1)


@pytest.mark.parametrize("step", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [1, 7, 16, 31, 33])
def test_some_lanes_of_bytes(n: int, step: int) -> None:
    k = negated(n, step)
    args = k.arguments()
    call(k.kernel(), args)
    expected = np.zeros(n * step, np.bool_)
    expected[::step] = (np.arange(n * step) % 7 >= 3)[::step]
    np.testing.assert_array_equal(args.accesses[1].array, expected)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 40])
def test_several_stores_of_whole_and_partial_vectors(n: int) -> None:
    k = twice_stored(n)
    args = k.arguments()
    call(k.kernel(), args)
    for access, sign in zip(args.accesses[1:], (1, -1), strict=True):
        np.testing.assert_array_equal(access.array, sign * np.arange(n, dtype=F32))


def test_what_is_read_nowhere_is_not_read_from_its_address() -> None:
    k = Builder((40,))
    where = k.op("lt", k.scalar(1, INT64), k.const(0, INT64), dtype=BOOL)
    k.stage(k.store(k.load(np.ones(40, F32), where), np.ones(40, F32)))
    kernel = k.kernel()
    # To read with no lane takes long beyond what is mapped.
    assert "ptr @nothing" in emit(kernel, "f")
    args = k.arguments()
    call(kernel, args)
    assert not args.accesses[-1].array.any()


def test_check_outside_the_domain_and_where_false_records_nothing() -> None:
    index = np.full(48, 99)
    index[:33] = 3
    k, kernel = checked_gather(48, index, np.arange(10, dtype=F32))
    args = dataclasses.replace(k.arguments(), extents=(33,))
    call(kernel, args)
    assert args.status.tolist() == [0, 0]
    index = np.arange(40) % 10
    index[5] = -5
    k, kernel = checked_gather(40, index, np.arange(10, dtype=F32), where=True)
    args = k.arguments()
    call(kernel, args)
    assert args.status.tolist() == [0, 0]
    assert args.accesses[-1].array[5] == 0


def test_gather_from_nothing_reads_nothing() -> None:
    k, kernel = checked_gather(20, np.zeros(20, INT64), np.zeros(0, F32))
    args = k.arguments()
    call(kernel, args)
    assert args.status.tolist() == [41, 0]
    assert not args.accesses[-1].array.any()


# The verifier


def test_verify_names_the_broken_rule() -> None:
    x = np.zeros((3, 4), F32)

    def base() -> Builder:
        k = Builder((3, 4), 1, "row")
        k.reduce("sum", k.load(x))
        return k

    def refused(k: Builder, match: str) -> None:
        with pytest.raises(LazytInternalError, match=match):
            k.kernel()

    refused(base(), "every reduction is finished by exactly one stage")
    k = base()
    k.stage(k.store(1, x), loops=True, reduces=())
    refused(k, "uses %1 before a stage finished it")
    k = base()
    k.stage(loops=True, reduces=(1,))
    k.stage(k.store(0, x))
    refused(k, "moves along row axes in a stage that does not loop")
    k = base()
    k.stage(reduces=(1,))
    refused(k, "only a stage over rows finishes reductions")
    k = base()
    k.stage(reduces=(1, 1), loops=True)
    k.stages.append(k.stages[0])
    refused(k, "a stage finishes %1")
    k = base()
    k.values[1] = ir.Reduce("mean", 0, F32)
    refused(k, "unknown reduction mean")
    k = base()
    k.values[1] = ir.Reduce("argmax", 0, F32)
    refused(k, "not int64")
    k = base()
    k.values[1] = ir.Reduce("any", 0, BOOL)
    refused(k, "what is not bool")
    k = base()
    k.values[1] = ir.Reduce("sum", 0, np.dtype(np.float16))
    refused(k, "of another dtype")
    k = base()
    k.add(ir.Op("add", (0, 9), F32))
    refused(k, "not defined before it")
    k = base()
    k.add(ir.Load(0, F32, where=0))
    refused(k, "which is not bool")
    k = base()
    k.add(ir.Scalar(0, F32))
    refused(k, "reads scalar 0")
    k = base()
    k.accesses[0] = ir.Access(F32, "n")
    refused(k, "one class an axis")
    k = base()
    k.add(ir.Gather(0, ((0, 0),), F32))
    refused(k, "an index that is not int64")
    k = Builder((3, 4))
    k.reduce("sum", k.load(x))
    refused(k, "needs row axes")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240)


@pytest.mark.parametrize("wider", [set(), {"avx", "avx2"}, {"avx", "avx512f", "avx512bw"}])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("n", [8, 16, 40])
def test_large_results_are_written_past_the_caches(
    n: int, first: int, wider: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # LLVM divides vectors that are wider than this processor's registers, so the code of each runs everywhere.
    for module in (lane_by_lane, emit_stores):
        monkeypatch.setattr(module, "host_features", lambda: frozenset(wider))
    monkeypatch.setattr(emit_stores, "STREAMED", 4 * 40)
    monkeypatch.setattr(cpu_kernels, "MODULES", {})
    x, y = np.arange(2 * n, dtype=F32), np.zeros((2, n + first), F32)
    k = Builder((2, n))
    k.stage(k.store(k.op("neg", k.load(x.reshape(2, n))), y[:, first:]))
    assert ("!nontemporal" in emit(k.kernel(), "f")) == ("avx" in wider)
    cpu_kernels.check(k)


@pytest.mark.parametrize("n", [16, 33])
def test_every_other_element_is_read_up_to_the_last_one(n: int) -> None:
    """The page behind it may not be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = np.frombuffer(pages, F32).ctypes.data + mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, 0) == 0
    page = np.frombuffer(pages, F32, count=mmap.PAGESIZE // F32.itemsize)
    x = page[len(page) - 2 * n + 1 :: 2]
    x[:] = np.arange(n)
    k = Builder((n,))
    k.stage(k.store(k.op("neg", k.load(x, classes="2")), np.zeros(n, F32)))
    args = k.arguments()
    call(k.kernel(), args)
    np.testing.assert_array_equal(args.accesses[1].array, -np.arange(n, dtype=F32))
