"""The CUDA backend's generated source, compiled for the CPU (tests/support/cuda/shim.h), against the interpreter.

Every kernel that the CPU backend's tests check is checked here too, under the mapping that it would get and others.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from lazyt.backends.cuda.codegen.mapping import WARP, Mapping, phases
from lazyt.ir.kernel import Cast
from tests.support.cuda import shim
from tests.support.cuda.checking import chosen, verify
from tests.support.cuda.shim import Library
from tests.support.kernel_builder import Builder, checked_gather, layernorm, reduction, softmax
from tests.support.kernel_cases import SUITE, Case, cases_of_suite
from tests.support.kernel_suite import F32, finite

pytestmark = pytest.mark.usefixtures("cpp_compiler")


def mappings(case: Case) -> list[Mapping]:
    """The one that the launch would get, and one with 64-bit indices and without what makes it fast."""
    best = chosen(case.kernel, case.want)
    return [best, dataclasses.replace(best, index="s64", wide=1, steps=0)]


@functools.cache
def of_cpu_tests(most: int) -> tuple[dict[str, list[tuple[Case, Mapping]]], Library]:
    """At most so many cases of each test, each with its mappings, and a library of all of them."""
    pairs = {
        name: [(c, m) for c in cases[:: -(-len(cases) // most)] for m in mappings(c)]
        for name, cases in cases_of_suite().items()
    }
    return pairs, Library([(c.kernel, m) for some in pairs.values() for c, m in some])


@pytest.mark.parametrize("name", SUITE)
def test_kernels_of_the_cpu_tests(name: str) -> None:
    pairs, library = of_cpu_tests(5)
    for case, mapping in pairs[name]:
        verify(library, case, mapping)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITE)
def test_all_kernels_of_the_cpu_tests(name: str) -> None:
    pairs, library = of_cpu_tests(10**6)
    for case, mapping in pairs[name]:
        verify(library, case, mapping)


# Rows and columns at every boundary: of a warp, of a segment, of what a team takes at once, of a chunk.
LENGTHS = (1, 15, 16, 17, 31, 32, 33, 63, 65, 127, 129, 1000, 2047, 2048, 2049, 4096, 4097, 32768, 32769, 65536, 65600)


@functools.cache
def rows_and_columns() -> tuple[list[tuple[Case, Mapping]], Library]:
    rng = np.random.default_rng(3)
    pairs = []
    for n in LENGTHS:
        x = finite(rng, (3, n), F32)
        ones = np.ones(n, F32)
        builders = [layernorm(x, ones, ones, "row"), reduction("argmax", x, "row"), softmax(x, "row", 1)]
        if n < 5000:
            columns = np.ascontiguousarray(x.T).T
            builders += [layernorm(columns, ones, ones, "outer"), reduction("min", columns, "outer")]
        for k in builders:
            # The interpreter's exp is not ours.
            case = Case.of(k, exact=not any(getattr(v, "name", "") == "exp" for v in k.values))
            best = chosen(case.kernel, case.want, shared=227 << 10)
            forced = {dataclasses.replace(best, threads=WARP * (4 if best.warps == 1 else best.warps), steps=0)}
            if k.vector == "outer":
                forced = {dataclasses.replace(best, threads=32 * g, groups=max(1, g)) for g in (1, 2, 8)}
            pairs += [(case, m) for m in {best, *forced}]
    return pairs, Library([(c.kernel, m) for c, m in pairs])


@pytest.mark.parametrize("n", LENGTHS)
def test_rows_and_columns_of_every_length(n: int) -> None:
    pairs, library = rows_and_columns()
    some = [(c, m) for c, m in pairs if c.builder.extents[-1] == n]
    assert some
    for case, mapping in some:
        verify(library, case, mapping)


def wide_softmax(x: np.ndarray) -> Builder:
    """In float32, whatever the rows are."""
    k = Builder(x.shape, 1, "row")
    v = k.add(Cast(k.load(x), F32))
    top = k.reduce("max", v)
    e = k.op("exp", k.op("sub", v, top))
    total = k.reduce("sum", e)
    k.stage(reduces=(top,), loops=True)
    k.stage(reduces=(total,), loops=True)
    k.stage(k.store(k.add(Cast(k.op("div", e, total), x.dtype)), np.zeros_like(x)), loops=True)
    return k


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_rows_longer_than_a_team_are_kept(dtype: str) -> None:
    """In several rounds; loads alone, where then two blocks fit."""
    rng = np.random.default_rng(3)
    pairs = []
    for n in (32_769, 33_000, 33_024, 49_408):
        case = Case.of(wide_softmax(finite(rng, (2, n), np.dtype(dtype))), exact=False)
        mapping = chosen(case.kernel, case.want, shared=211 << 10)
        assert mapping.steps * WARP * mapping.warps >= n
        assert not mapping.at_once
        assert mapping.plain == (dtype == "f2")
        pairs += [(case, dataclasses.replace(mapping, plain=plain)) for plain in (False, True)]
    library = Library([(c.kernel, m) for c, m in pairs])
    for case, mapping in pairs:
        verify(library, case, mapping)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "argmin"])
@pytest.mark.slow
def test_few_long_rows_in_two_phases(name: str) -> None:
    """Chunks in blocks of their own, or segments in warps, then their results in order: the bits of one pass."""
    rng = np.random.default_rng(4)
    cases = [
        Case.of(reduction(name, (1 + rng.normal(size=shape) / 1e3).astype(dtype), "row"))
        for shape in ((1, 32769), (1, 131073), (3, 200_001))
        for dtype in (F32, np.dtype("f2"), np.dtype("i4"))
    ]
    cases.append(Case.of(reduction(name, rng.normal(size=(2, 65536)), "row")))
    found = [(c, chosen(c.kernel, c.want)) for c in cases]
    # The number of rows is below that of multiprocessors; with few of these, chunks are enough.
    wanted = [(c, m, n) for c, m in found for n in (4, 132)]
    launches = [phases(c.kernel, m, c.builder.extents, n) for c, m, n in wanted]
    library = Library([(c.kernel, p) for (c, *_), some in zip(wanted, launches, strict=True) for p in some])
    assert {p.segments for some in launches for p in some} == {False, True}
    for (case, mapping, n), some in zip(wanted, launches, strict=True):
        assert [p.phase for p in some] == [1, 2]
        verify(library, case, mapping, n)


def test_mappings_follow_lengths_and_alignment() -> None:
    rng = np.random.default_rng(0)

    def of(k: Builder, shared: int = 48 << 10) -> Mapping:
        return chosen(k.kernel(), k.arguments(), shared)

    def soft(n: int, shared: int = 48 << 10) -> Mapping:
        return of(softmax(finite(rng, (2, n), F32), "row", 1), shared)

    assert (soft(700).warps, soft(700).steps, soft(700).threads) == (1, 32, 256)
    assert (soft(8192).warps, soft(8192).steps, soft(8192).threads) == (4, 64, 128)
    # Two values take turns in one slot: 16384 rows of float32 are 64 KiB, more than any block may have unasked.
    assert soft(16384).steps == 0
    assert soft(16384, shared=227 << 10).steps == 64
    # More than a team takes at once, in several rounds.
    assert soft(40000, shared=211 << 10).steps == 79
    assert soft(60000, shared=211 << 10).steps == 0
    # Rows of so many elements need no bounds, if they are whole warps' neighbours; of others no neighbours are apart.
    assert (soft(768).steps, soft(768).exact) == (24, True)
    assert (soft(700).even, soft(768).even, soft(800).even, soft(701).even) == (4, 128, 32, 1)
    columns = [of(reduction("sum", np.zeros((4, n), F32), "outer")) for n in (128, 129, 5000)]
    assert [m.groups for m in columns] == [1, 2, 8]

    def copy(x: np.ndarray) -> Mapping:
        k = Builder(x.shape)
        k.stage(k.store(k.load(x), np.zeros(x.shape, x.dtype)))
        return of(k)

    whole = np.zeros(64, F32)[:64]
    assert copy(whole).wide == 4
    assert copy(whole.astype(np.float16)).wide == 8
    # One element on from where it would be aligned, a row whose length is no multiple of 16 bytes, a stride.
    assert copy(np.zeros(65, F32)[1:]).wide == 1
    assert copy(np.zeros((4, 65), F32)[:, :64]).wide == 1
    assert copy(np.zeros((4, 64), F32)).wide == 4


@pytest.mark.parametrize("bad", [-1, 10, 2**62, -(2**63)])
def test_check_records_a_wrong_index(bad: int) -> None:
    index = np.arange(40) % 10
    index[23] = bad
    k, kernel = checked_gather(40, index, np.arange(10, dtype=F32))
    mapping = chosen(kernel, k.arguments())
    library = Library([(kernel, mapping)])
    args = k.arguments()
    library.run(kernel, mapping, args)
    assert args.status.tolist() == [41, bad]
    args.status[:] = [7, 8]
    library.run(kernel, mapping, args)
    assert args.status.tolist() == [7, 8], "what was recorded first stays"


def test_the_shim_sees_what_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads outside a buffer, packs that are not aligned, and a barrier that some threads never reach."""
    x = np.arange(64, dtype=F32)
    k = Builder((64,))
    k.stage(k.store(k.load(x), np.zeros(64, F32)))
    kernel = k.kernel()
    mapping = chosen(kernel, k.arguments())
    library = Library([(kernel, mapping)])
    args = k.arguments()
    short = dataclasses.replace(args.accesses[0], array=x[:40].copy())
    with pytest.raises(AssertionError, match=r"access @0 touches byte 160 of 160"):
        library.run(kernel, mapping, dataclasses.replace(args, accesses=(short, args.accesses[1])))
    moved = dataclasses.replace(args.accesses[0], offset=1)
    with pytest.raises(AssertionError, match="not aligned to 16 bytes"):
        library.run(kernel, mapping, dataclasses.replace(args, extents=(32,), accesses=(moved, args.accesses[1])))

    k = reduction("max", np.zeros((1, 4096), F32), "row")
    kernel = k.kernel()
    mapping = chosen(kernel, k.arguments())
    text = shim.program
    lost = "if (lane) __syncthreads();"
    monkeypatch.setattr(shim, "program", lambda kernels: lost.join(text(kernels).rsplit("__syncthreads();", 1)))
    with pytest.raises(AssertionError, match=r"deadlock: .* waits for its block that others do not reach"):
        Library([(kernel, mapping)]).run(kernel, mapping, k.arguments())
