"""Kernels of bounded size: what a kernel's code needs is told from the kernel, true, and never more than it may be."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import code_cache
from lazyt.backends.cpu.codegen import needs
from lazyt.backends.cpu.engine import host_features
from lazyt.backends.cuda import engine
from lazyt.backends.cuda.codegen import needs as cuda_needs
from lazyt.backends.cuda.codegen.emit import program as cuda_program
from lazyt.backends.cuda.codegen.mapping import choose
from lazyt.backends.object_cache import ObjectCache
from lazyt.backends.registry import host
from lazyt.errors import DeviceError
from lazyt.ir.kernel import Kernel
from lazyt.runtime import plan_cache
from lazyt.runtime.sync import last_report
from lazyt.tracing.trace import local
from tests.support.assembly import stack_of

RNG = np.random.default_rng(0)


def data(*shape: int, dtype: str = "float64") -> Any:
    return lt.asarray(RNG.normal(size=shape).astype(dtype))


def softmaxes(turns: int, shape: tuple[int, ...] = (10, 10), dtype: str = "float64") -> Any:
    w = data(*shape, dtype=dtype)
    for _ in range(turns):
        p = lt.softmax(w, axis=-1)
        w = w - 0.1 * (p - 0.1)
    return w


def layer_norms(turns: int, dtype: str = "float32") -> Any:
    x, weight = data(12, 10, dtype=dtype), data(10, dtype=dtype)
    for _ in range(turns):
        x = lt.layer_norm(x, (10,), weight, weight) + x * 0.5
    return x


def columns(turns: int) -> Any:
    x = data(7, 50)
    for _ in range(turns):
        x = (x - x.mean(axis=0, keepdims=True)) / (x.std(axis=0, keepdims=True) + 0.1)
    return x


def elementary(turns: int, dtype: str) -> Any:
    x = data(100, dtype=dtype)
    for _ in range(turns):
        x = lt.sin(x) + lt.exp(-x * x)
    return x


def inputs(count: int) -> Any:
    xs = [data(50, dtype="float32") for _ in range(count)]
    total = xs[0]
    for x in xs[1:]:
        total = total + x * 2
    return total


def alive(count: int) -> Any:
    """Values that are all made before the first is read."""
    xs = [lt.sin(data(50)) for _ in range(count)]
    total = xs[0]
    for x in xs:
        total = total * x
    for x in reversed(xs):
        total = total + x * total
    return total


def read_often(count: int) -> Any:
    y = lt.tanh(data(50))
    total = y
    for i in range(count):
        total = total * y + float(i % 3)
    return total


def outputs(count: int) -> Any:
    x = data(50, dtype="float32")
    y = lt.exp(x)
    return [y * float(i) + lt.tanh(x) for i in range(count)]


def gathers(count: int) -> Any:
    x, at = data(64), lt.asarray(RNG.integers(0, 64, size=(count, 64)))
    total = x
    for i in range(count):
        total = total + x[at[i]] * 0.5
    return total


def integers(turns: int) -> Any:
    x = lt.asarray(RNG.integers(1, 100, size=64))
    total = x
    for i in range(turns):
        total = (total * 7 + i) // 3 % 101 + x
    return total


def pairs(turns: int) -> Any:
    a, b = data(400, 6, dtype="float32"), data(30, 6, dtype="float32")
    return sum(((a[:, None, :] * (i + 1) - b[None, :, :]) ** 2).sum(-1) for i in range(turns))


def outer_products(turns: int, dtype: str = "float32") -> Any:
    a, b = data(90, 30, dtype=dtype)[:, :, None], data(90, 10, dtype=dtype)[:, None]
    return [((a * b + i) ** 2).sum((1, 2)) for i in range(turns)]


def training_step() -> Any:
    x, w = data(20, 12, dtype="float32"), data(12, 9, dtype="float32").requires_grad_()
    y = lt.layer_norm(lt.tanh(x @ w), (9,))
    loss = lt.nn.functional.cross_entropy(y, lt.asarray(np.arange(20) % 9))
    loss.backward()
    return loss, w.grad


PROGRAMS: dict[str, Callable[[], Any]] = {
    "softmax": lambda: softmaxes(1),
    "softmaxes": lambda: softmaxes(12),
    "softmaxes in float32": lambda: softmaxes(12, dtype="float32"),
    "softmaxes of long rows": lambda: softmaxes(12, (4, 300)),
    "layer norms": lambda: layer_norms(12),
    "layer norms in float16": lambda: layer_norms(4, "float16"),
    "columns": lambda: columns(12),
    "elementary functions": lambda: elementary(40, "float32"),
    "elementary functions in float64": lambda: elementary(30, "float64"),
    "elementary functions in float16": lambda: elementary(10, "float16"),
    "inputs": lambda: inputs(300),
    "alive": lambda: alive(200),
    "read often": lambda: read_often(1000),
    "outputs": lambda: outputs(100),
    "gathers": lambda: gathers(40),
    "integers": lambda: integers(30),
    "pairs": lambda: pairs(12),
    "a pair of float64": lambda: ((data(400, 20)[:, None, :] - data(30, 20)[None, :, :]) ** 2).sum(-1),
    "outer products": lambda: outer_products(1),
    "outer products in float64": lambda: outer_products(5, "float64"),
    "a training step": training_step,
}


def forget() -> None:
    """Plans are kept, and know nothing of another bound."""
    lt.sync()
    local.trace.reset_trie()
    plan_cache._programs.clear()


def kernels_of(program: Callable[[], Any]) -> list[Kernel]:
    """The kernels of a program's plan, made anew, each once."""
    forget()
    with mock.patch.dict(plan_cache.settings, {"tiers": False}):
        values = program()
        lt.sync()
        report = last_report()
    assert values is not None and report is not None and report.plan is not None
    plan = report.plan
    return list({c.kernel.key: c.kernel for c in plan.whole().schedule.kernels}.values())


# Those that compile in a second or so together; the rest have a slow test.
QUICK = (
    "softmax",
    "columns",
    "elementary functions in float16",
    "read often",
    "outputs",
    "pairs",
    "a pair of float64",
    "outer products",
    "outer products in float64",
    "a training step",
)


@pytest.fixture(scope="module")
def kernels() -> dict[str, list[Kernel]]:
    return {name: kernels_of(PROGRAMS[name]) for name in QUICK}


class TestDeclared:
    def agree(self, found: list[Kernel]) -> int:
        """Stack and length as declared, by the assembly; how many of the kernels have frames worth the name."""
        if platform.machine() != "x86_64":
            pytest.skip("reads the assembly of x86-64")
        large = 0
        for kernel in found:
            declared = needs.needs_of(kernel)
            assembly = code_cache.assembly_of(kernel)
            taken = stack_of(assembly, code_cache.symbol_of(kernel))
            assert taken <= declared.frame, (taken, declared, kernel.text)
            if "avx2" in host_features():  # narrower registers take a multiple, which no bound counts
                assert assembly.count("\n") <= 2 * declared.code + 400, (declared, kernel.text)
            large += taken > 4096
        return large

    @pytest.mark.slow
    def test_by_the_assembly(self, kernels: dict[str, list[Kernel]]) -> None:
        assert sum(map(self.agree, kernels.values())) >= 3

    @pytest.mark.slow
    @pytest.mark.parametrize("name", sorted(set(PROGRAMS) - set(QUICK)))
    def test_by_the_assembly_of_more(self, name: str) -> None:
        found = kernels_of(PROGRAMS[name])
        assert found
        self.agree(found)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", sorted(set(PROGRAMS) - set(QUICK)))
    def test_bounded(self, name: str) -> None:
        for kernel in kernels_of(PROGRAMS[name]):
            found = needs.needs_of(kernel)
            assert found.frame <= needs.FRAME and found.code <= 2 * needs.CODE, (found, kernel.text)

    def test_allocas_in_the_text_are_the_slots(self, kernels: dict[str, list[Kernel]]) -> None:
        """Column kernels ask for exactly what `column_slots` counts, where nothing else is on the stack."""
        checked = 0
        for found in kernels.values():
            for kernel in found:
                if kernel.vector != "outer" or not kernel.rows:
                    continue
                slots = needs.column_slots(kernel, needs.Levels(kernel))
                text = code_cache.source_of(kernel)
                allocated = sum(int(n) for n in re.findall(r"= alloca i8, i64 (\d+)", text))
                assert allocated == slots.nbytes
                assert slots.nbytes <= needs.FRAME
                checked += 1
        assert checked >= 3

    def test_a_slot_is_used_again(self) -> None:
        """As many stages as you like: what is kept is what later ones read, not what all had."""
        few, many = (
            needs.column_slots(k, needs.Levels(k)).sizes
            for k in (max(kernels_of(lambda n=n: columns(n)), key=lambda k: len(k.stages)) for n in (1, 3))
        )
        assert len(many) <= 2 * len(few)


class TestBounded:
    def test_no_kernel_needs_more_than_it_may(self, kernels: dict[str, list[Kernel]]) -> None:
        for name, found in kernels.items():
            for kernel in found:
                found_needs = needs.needs_of(kernel)
                assert found_needs.frame <= needs.FRAME, (name, found_needs)
                assert found_needs.code <= 2 * needs.CODE, (name, found_needs)

    def test_a_longer_loop_reuses_the_kernels_of_its_prefix(self) -> None:
        short, long = ({k.key for k in kernels_of(lambda n=n: softmaxes(n))} for n in (12, 40))
        assert len(long) <= len(short) + 1
        assert len(short & long) >= len(short) - 1

    def test_the_boundary_has_a_name(self) -> None:
        with mock.patch.dict(plan_cache.settings, {"tiers": False}):
            text = str(softmaxes(6).explain())
        assert "one kernel would need more stack, or more code, than kernels may" in text

    @pytest.mark.parametrize(
        ("program", "count"),
        [
            (lambda: softmaxes(1), 1),
            (lambda: lt.layer_norm(data(30, 12), (12,)), 1),
            (lambda: lt.nn.functional.gelu(data(50, 12)) * 2, 1),
        ],
    )
    def test_ordinary_programs_are_not_divided(self, program: Callable[[], Any], count: int) -> None:
        assert len(kernels_of(program)) == count

    def test_a_kernel_of_one_operation_stays(self) -> None:
        """Nothing can be divided, whatever is allowed: planning ends, and the value is right."""
        with mock.patch.object(needs, "CODE", 1), mock.patch.dict(plan_cache.settings, {"tiers": False}):
            x = data(30, 10)
            got = lt.softmax(x * 2, axis=-1) + x
            want = np.exp(x.numpy() * 2) / np.exp(x.numpy() * 2).sum(-1, keepdims=True) + x.numpy()
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-15)


class TestBits:
    """Where kernels are divided changes no bit."""

    @pytest.mark.parametrize(
        "program",
        [softmaxes, layer_norms, columns, lambda n: elementary(n, "float32"), gathers, integers],
        ids=["softmaxes", "layer norms", "columns", "elementary", "gathers", "integers"],
    )
    def test_as_without_a_bound(self, program: Callable[[int], Any]) -> None:
        global RNG
        found = []
        for allowed in (1.0, 0.1, 4.0):
            RNG = np.random.default_rng(1)
            sizes = {"FRAME": int(needs.FRAME * allowed), "CODE": int(needs.CODE * allowed)}
            with mock.patch.multiple(needs, **sizes), mock.patch.dict(plan_cache.settings, {"tiers": False}):
                forget()
                found.append(program(5).numpy())
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(found[0], found[2])


SCRIPT = """
    import faulthandler
    faulthandler.enable()
    import numpy as np
    import lazyt as lt
    from lazyt import optim

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    TURNS = {
        "softmax": (lambda w: w - 0.1 * (lt.softmax(w, axis=-1) - 0.1), lambda w: w - 0.1 * (softmax(w) - 0.1)),
        "normalise": (
            lambda w: w / (lt.sqrt((w * w).sum(axis=-1, keepdims=True)) + 0.5) + 0.1,
            lambda w: w / (np.sqrt((w * w).sum(-1, keepdims=True)) + 0.5) + 0.1,
        ),
        "layer norm": (
            lambda w: lt.layer_norm(w, (w.shape[-1],)) + 0.5 * w,
            lambda w: (w - w.mean(-1, keepdims=True)) / np.sqrt(w.var(-1, keepdims=True) + 1e-5) + 0.5 * w,
        ),
        "logsumexp": (
            lambda w: w - 0.3 * lt.logsumexp(w, axis=-1, keepdims=True),
            lambda w: w - 0.3 * np.log(np.exp(w).sum(-1, keepdims=True)),
        ),
        "std": (
            lambda w: w / (w.std(axis=-1, keepdims=True) + 1.0),
            lambda w: w / (w.std(-1, keepdims=True) + 1.0),
        ),
        "cumsum": (
            lambda w: 0.3 * lt.cumsum(w, axis=-1) / (1 + abs(w).max(axis=-1, keepdims=True)),
            lambda w: 0.3 * np.cumsum(w, -1) / (1 + abs(w).max(-1, keepdims=True)),
        ),
    }
    rng = np.random.default_rng(3)
    for name, n, turns, dtype in CASES:
        x = rng.normal(size=(9, n)).astype(dtype)
        w, v = lt.asarray(x), x.astype("float64")
        mine, numpys = TURNS[name]
        for _ in range(turns):
            w, v = mine(w), numpys(v)
        tolerance = {"float16": 0.1, "float32": 1e-3, "float64": 1e-9}[dtype]
        np.testing.assert_allclose(w.numpy().astype("float64"), v, rtol=tolerance, atol=tolerance, err_msg=name)
    print("done")
"""


def in_a_process(script: str) -> str:
    """What a program prints; a crash is a failure with the fault handler's words, not the end of the tests."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return run.stdout


class TestUnreadLoops:
    """Row kernels over a few elements, for many turns that nobody reads: right, and no crash."""

    @pytest.mark.parametrize("name", ["softmax", "normalise", "layer norm", "logsumexp", "std", "cumsum"])
    def test_turns(self, name: str) -> None:
        cases = [(name, 10, 30, "float64"), (name, 20, 12, "float32")]
        assert "done" in in_a_process(f"CASES = {cases}\n" + textwrap.dedent(SCRIPT))

    @pytest.mark.slow
    def test_many(self) -> None:
        rng = np.random.default_rng(5)
        names = ["softmax", "normalise", "layer norm", "logsumexp", "std", "cumsum"]
        cases = [
            (
                str(rng.choice(names)), int(rng.integers(1, 41)), int(rng.integers(1, 101)),
                str(rng.choice(["float16", "float32", "float64"])),
            )
            for _ in range(24)
        ]  # fmt: skip
        cases = [c for c in cases if c[3] != "float16" or c[2] < 20]
        for i in range(0, len(cases), 4):
            assert "done" in in_a_process(f"CASES = {cases[i : i + 4]}\n" + textwrap.dedent(SCRIPT))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "optimizer", [pytest.param("SGD([w], lr=0.1, momentum=0.9)", marks=pytest.mark.slow), "Adam([w], lr=0.01)"]
    )
    def test_training_steps(self, optimizer: str) -> None:
        """As read at each step."""
        out = in_a_process(f"""
            import faulthandler
            faulthandler.enable()
            import numpy as np
            import lazyt as lt
            from lazyt.optim import SGD, Adam

            found = []
            for reads in (False, True):
                rng = np.random.default_rng(0)
                w, v = lt.asarray(rng.normal(size=(8, 8))).requires_grad_(), lt.asarray(rng.normal(size=(8, 8)))
                made = {optimizer}
                for _ in range(9):
                    made.zero_grad()
                    loss = (lt.softmax(w, axis=-1) * v).sum()
                    loss.backward()
                    made.step()
                    if reads:
                        lt.sync()
                found.append(w.detach().numpy())
            np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
            print("done")
        """)
        assert "done" in out


def test_a_thread_with_a_small_stack() -> None:
    """Kernels run on their caller's thread too."""
    out = in_a_process("""
        import faulthandler, threading
        faulthandler.enable()
        import numpy as np
        import lazyt as lt

        def work():
            w = lt.asarray(np.random.default_rng(0).normal(size=(10, 10)))
            for _ in range(30):
                w = w - 0.1 * (lt.softmax(w, axis=-1) - 0.1)
            first = lt.layer_norm(w.T.astype("float32"), (10,))
            print("done", float(w.sum()), float(first.sum()))

        threading.stack_size(256 << 10)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """)
    assert "done" in out


class TestOnAGPU:
    """The same rule for CUDA C; compiling takes no GPU."""

    def planned(self, program: Callable[[], Any]) -> list[Kernel]:
        """The kernels that a plan for a GPU would have: with its bound, and nothing of the CPU's own."""
        off = {"tiers": False, "reuse": False, "epilogues": False, "gemm": False}
        with mock.patch.dict(plan_cache.settings, off):
            can = replace(host().capabilities("cpu"), share=cuda_needs.share_of)
            with mock.patch.object(host(), "capabilities", return_value=can):
                return kernels_of(program)

    @pytest.mark.parametrize("name", ["softmaxes of long rows", "inputs", "columns", "elementary functions in float64"])
    def test_bounded(self, name: str) -> None:
        found = self.planned(PROGRAMS[name])
        assert found
        for kernel in found:
            declared = cuda_needs.needs_of(kernel)
            assert declared.code <= cuda_needs.CODE
            assert declared.shared <= cuda_needs.SHARED
            assert declared.arguments <= cuda_needs.ARGUMENTS
            entries = [1000] * kernel.layout.size
            text = cuda_program([(kernel, choose(kernel, entries), "k")])
            folds = sum(
                8 * int(np.prod([int(n) for n in re.findall(r"\[(\d+)\]", shape)]))
                for shape in re.findall(r"__shared__ \w+ shared_\w+?((?:\[\d+\])+);", text)
            )
            assert folds <= declared.shared

    def test_compiles_in_registers(self) -> None:
        try:
            engine.nvrtc()
        except DeviceError as error:
            pytest.skip(f"kernels are compiled by NVRTC: {error}")
        for kernel in self.planned(PROGRAMS["softmaxes of long rows"]):
            source = cuda_program([(kernel, choose(kernel, [1000] * kernel.layout.size), "k")])
            used = engine.compile_program(source, 90, ObjectCache(None)).resources["k"]
            assert used.stack <= 4096
