"""Generated CUDA C through NVRTC to cubins, which takes no GPU: nothing unexpected in the log, no spilled registers."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable

import numpy as np
import pytest

from lazyt.backends.cuda import engine
from lazyt.backends.cuda.codegen import elementwise
from lazyt.backends.cuda.codegen.emit import program
from lazyt.backends.cuda.codegen.mapping import Mapping, choose, phases
from lazyt.backends.cuda.codegen.preamble import PREAMBLE
from lazyt.backends.cuda.codegen.text import Module, literal, type_of
from lazyt.backends.math.elements import reg_type
from lazyt.backends.math.table import RULES
from lazyt.backends.object_cache import ObjectCache
from lazyt.errors import LazytInternalError
from lazyt.ir.kernel import Kernel
from lazyt.ir.kernel_interpreter import table
from lazyt.ops.definition import OPS
from tests.support import operations
from tests.support.cuda.programs import BENCHMARKS, LARGE, PROCESSORS, PROGRAMS, Launch, launches
from tests.support.kernel_cases import cases_of_suite
from tests.support.vector_kernels import BINARY, BOOL, PREDICATES

pytestmark = pytest.mark.usefixtures("nvrtc")

# Compute capability -> the shared memory that a block may ask for.
DEVICES = {75: 64 << 10, 80: 163 << 10, 90: 227 << 10}
NO_CACHE = ObjectCache(None)
Mapped = tuple[Kernel, Mapping, str]


def mapped(found: list[Launch], shared: int) -> list[Mapped]:
    """Each kernel once, with the mapping of its launch and a name."""
    unique = {(k.key, m): (k, m) for k, e in found for m in phases(k, choose(k, e, shared), e[: k.axes], PROCESSORS)}
    return [(k, m, f"k{i}") for i, (k, m) in enumerate(unique.values())]


def compiled(kernels: list[Mapped], capability: int) -> engine.Compiled:
    source = program(kernels)
    found = engine.compile_program(source, capability, NO_CACHE)
    assert found.cubin.startswith(b"\x7fELF")
    assert found.resources.keys() == {name for *_, name in kernels}
    return found


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[Launch]]:
    found = {name: launches(p) for name, p in PROGRAMS.items()}
    assert all(found.values()), "a program has no kernel"
    return found


def kernels_of(recorded: dict[str, list[Launch]], names: Iterable[str], capability: int) -> list[Mapped]:
    return mapped([launch for name in names for launch in recorded[name]], DEVICES[capability])


@pytest.mark.parametrize("capability", [*(pytest.param(c, marks=pytest.mark.slow) for c in (75, 80)), 90])
def test_benchmarks_compile_and_do_not_spill(capability: int, recorded: dict[str, list[Launch]]) -> None:
    kernels = kernels_of(recorded, BENCHMARKS, capability)
    resources = compiled(kernels, capability).resources
    assert not [k.text for k, _, name in kernels if resources[name].spill_stores]
    # Two blocks must find room in the 64 Ki registers of a multiprocessor.
    assert all(resources[name].registers * m.threads * 2 <= 1 << 16 for _, m, name in kernels)


@pytest.mark.parametrize("name", LARGE)
def test_kernels_of_large_arrays_compile_and_do_not_spill(name: str) -> None:
    kernels = mapped(launches(LARGE[name]), DEVICES[90] - (16 << 10))
    if name == "whole_tiles":
        assert [m.wide for _, m, _ in kernels if m.tile and m.exact] == [4, 8]
    else:
        assert any(m.steps and not m.at_once for _, m, _ in kernels)
    resources = compiled(kernels, 90).resources
    assert not [k.text for k, _, name in kernels if resources[name].spill_stores]
    assert all(resources[name].registers * m.threads * 2 <= 1 << 16 for _, m, name in kernels)


def test_launches_for_many_arrays_compile_and_do_not_spill(recorded: dict[str, list[Launch]]) -> None:
    kernels = kernels_of(recorded, ["adam", "gelu_chain", "softmax", "layer_norm", "statistics"], 90)
    many = [(k, dataclasses.replace(m, many=True), name) for k, m, name in kernels if not m.phase]
    resources = compiled(many, 90).resources
    assert not [k.text for k, _, name in many if resources[name].spill_stores]
    assert all(resources[name].registers * m.threads * 2 <= 1 << 16 for _, m, name in many)


@pytest.mark.slow
@pytest.mark.parametrize("capability", DEVICES)
def test_programs_compile(capability: int, recorded: dict[str, list[Launch]]) -> None:
    kernels = kernels_of(recorded, PROGRAMS, capability)
    assert len(kernels) > 40
    compiled(kernels, capability)


def every_primitive() -> list[str]:
    """One kernel for each rule and dtype, and for each cast."""
    module = Module()
    texts = []

    def add(inputs: list[np.dtype], result: np.dtype, expression: str) -> None:
        kinds = [type_of(reg_type(d)) for d in inputs]
        loads = [f"const {t} {'xyz'[i]} = ((const {t} *)in)[{i}];" for i, t in enumerate(kinds)]
        out = f"*({type_of(reg_type(result))} *)out = {expression};"
        texts.append(
            f'extern "C" __global__ void k{len(texts)}(const void *in, void *out) {{ {" ".join(loads)} {out} }}'
        )

    for dtype, rules in RULES.items():
        for op in rules:
            inputs = [BOOL, dtype, dtype] if op == "select" else [dtype] * (2 if op in BINARY else 1)
            if op == "random_bits":
                inputs = [np.dtype("u8"), np.dtype("u8"), np.dtype("i8")]
            expression = elementwise.lower(op, list("xyz"[: len(inputs)]), dtype, module)
            add(inputs, BOOL if op in PREDICATES else dtype, expression)
    for source, target in itertools.product(RULES, RULES):
        add([source], target, elementwise.cast("x", source, target, module))
    return [PREAMBLE, module.text(), *texts]


def test_every_primitive_compiles() -> None:
    source = "\n".join(every_primitive())
    found = engine.compile_program(source, 80, NO_CACHE)
    assert len(found.resources) == source.count("__global__")


@pytest.mark.slow
@pytest.mark.parametrize("capability", [75, 90])
def test_every_primitive_compiles_for_other_devices(capability: int) -> None:
    source = "\n".join(every_primitive())
    assert len(engine.compile_program(source, capability, NO_CACHE).resources) == source.count("__global__")


@pytest.mark.slow
@pytest.mark.parametrize("capability", DEVICES)
def test_every_operation_compiles(capability: int) -> None:
    """The kernels of every public operation's samples, many in a program."""
    found: list[Launch] = []
    for name in operations.NAMES:
        for args, kwargs in OPS[name].samples():  # type: ignore[misc]
            found += launches(lambda n=name, a=args, k=kwargs: operations.public(n)(
                *map(operations.tensors, a), **{key: operations.tensors(v) for key, v in k.items()}))  # fmt: skip
    kernels = mapped(found, DEVICES[capability])
    assert len(kernels) > 500
    for start in range(0, len(kernels), 64):
        compiled(kernels[start : start + 64], capability)


@pytest.mark.slow
@pytest.mark.parametrize("capability", DEVICES)
def test_kernels_of_the_cpu_tests_compile(capability: int) -> None:
    """As many as the shim runs of them (test_cuda_emit.py)."""
    found = [(c.kernel, [int(e) for e in table(c.kernel, c.want)]) for some in cases_of_suite().values() for c in some]
    kernels = mapped(found, DEVICES[capability])
    assert len(kernels) > 50
    for start in range(0, len(kernels), 64):
        compiled(kernels[start : start + 64], capability)


def test_constants_are_read_exactly() -> None:
    """NVRTC rounds the decimal constants of the rules as NumPy does: their bits stand in the PTX."""
    values = [0.1, 1.4426950408889634, 2.2250738585072014e-308, 5e-324, 1.7976931348623157e308, 6.123233995736766e-17]
    singles = [np.float32(v) for v in (0.1, 1e-45, 3.4028235e38, 1.17549435e-38, 0.33333334)]
    body = [f"d[{i}] = {literal('double', v)};" for i, v in enumerate(values)]
    body += [f"f[{i}] = {literal('float', float(v))};" for i, v in enumerate(singles)]
    source = f'extern "C" __global__ void k(double *d, float *f) {{ {" ".join(body)} }}'
    binding = engine.nvrtc()
    made = binding.createProgram(source, "k.cu", [], [])
    binding.compileProgram(made, ("--gpu-architecture=compute_80",))
    ptx = binding.getPTX(made).decode().upper()
    for v in values:
        bits = f"{np.float64(v).view(np.uint64):016X}"
        assert bits in ptx or str(int(bits, 16)) in ptx, v
    for v in singles:
        bits = f"{v.view(np.uint32):08X}"
        assert bits in ptx or str(int(bits, 16)) in ptx, v


def test_an_unexpected_line_of_the_log_is_an_error() -> None:
    source = 'extern "C" __global__ void k(unsigned *p) { p[0] = -1; }'
    with pytest.raises(LazytInternalError, match=r"NVRTC says what it should not: lazyt.cu\(1\): warning #68-D"):
        engine.compile_program(source, 80, NO_CACHE)
    with pytest.raises(LazytInternalError, match=r"(?s)NVRTC refused .*identifier .q. is undefined"):
        engine.compile_program('extern "C" __global__ void k(int *p) { p[0] = q; }', 80, NO_CACHE)


def test_cubins_are_cached_on_disk(tmp_path) -> None:
    source = 'extern "C" __global__ void cached(int *p) { p[0] = 1; }'
    cache = ObjectCache(tmp_path / "c")
    before = engine.counters.compiles, engine.counters.disk_hits
    first = engine.compile_program(source, 80, cache)
    again = engine.compile_program(source, 80, ObjectCache(tmp_path / "c"))
    assert first == again
    assert (engine.counters.compiles, engine.counters.disk_hits) == (before[0] + 1, before[1] + 1)
    assert first.resources["cached"].spill_stores == 0 < first.resources["cached"].registers
    engine.compile_program(source, 75, cache)
    assert engine.counters.compiles == before[0] + 2, "another device is another cubin"


def test_source_reads_as_the_kernel(recorded: dict[str, list[Launch]]) -> None:
    """Values are numbered as in the kernel IR, and longer rules are functions."""
    (kernel, entries) = recorded["softmax"][0]
    text = program(mapped([(kernel, entries)], 48 << 10))
    for i, value in enumerate(kernel.values):
        if type(value).__name__ != "Const":
            assert re.search(rf"\bv{i}\b", text), f"%{i} is not in the source"
    assert "lt_exp_below_f32(v" in text
