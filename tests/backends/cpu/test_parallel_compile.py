"""Compiling several modules at once: the same code, the same errors, and off when it is switched off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends.cpu import engine, parallel_compile
from lazyt.backends.cpu.flags import switches
from lazyt.errors import LazytInternalError


def _text(name: str, times: int) -> str:
    lines = "\n".join(f"  %t{i + 1} = fadd <16 x float> %t{i}, %x" for i in range(times))
    return (
        f"define <16 x float> @{name}(<16 x float> %x) {{\n  %t0 = fmul <16 x float> %x, %x\n{lines}\n"
        f"  ret <16 x float> %t{times}\n}}\n"
    )


def _parse(text: str, context: Any) -> Any:
    return engine.host().parse(text, ["f"], context)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_the_code_is_that_of_one_thread_alone(lanes: int) -> None:
    host = engine.host()
    texts = [_text(f"ahead_{i}", i * 7 % 5 + 1) for i in range(9)]
    making = parallel_compile.Making(host.create_machine, _parse)
    making.add(texts[:4])
    making.start(lanes - 1)
    making.add(texts)
    assert making.finish() == {t: host.machine.emit_object(host.parse(t, ["f"])) for t in texts}


def test_what_llvm_rejects_is_left_to_whoever_compiles_it() -> None:
    host = engine.host()
    making = parallel_compile.Making(host.create_machine, _parse)
    making.add(["nonsense", _text("ahead_good", 2)])
    making.start(1)
    assert [code is None for code in making.finish().values()] == [True, False]
    with pytest.raises(LazytInternalError, match="LLVM rejects the IR of f"):
        engine.compile_module("nonsense\ndefine void @f() {", ["f"])


def _values(salt: float) -> list[np.ndarray]:
    """Of a program with kernels that no other test has."""
    x = lt.asarray(np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30))
    y = lt.tanh(x * salt).sum(0) + lt.exp(x).max(0) * 3
    z = lt.cumulative_sum(lt.sin(x) - salt, axis=1) @ lt.cos(x).T
    return [v.numpy() for v in (y, z, lt.sort(y), lt.softmax(z, 0))]


def test_plans_give_the_same_bits_with_it_and_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = []
    for on in (True, False):
        lt.set_num_threads(2)
        monkeypatch.setitem(switches, "ahead", on)
        monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path / str(on)))
        found.append(_values(0.37))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_each_module_is_counted_and_kept_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAZYT_CACHE_DIR", str(tmp_path))
    texts = [(_text(f"ahead_counted_{i}", i + 1), f"ahead_counted_{i}") for i in range(3)]
    before, ahead = engine.counters.compiles, {*engine._loader.ahead}
    engine.compile_ahead(texts, 2)
    assert engine.counters.compiles == before
    for text, name in texts:
        assert engine.compile_module(text, [name]).address(name)
    assert engine.counters.compiles == before + 3
    assert len(list(tmp_path.glob("*.o"))) == 3
    assert {*engine._loader.ahead} <= ahead


ALONE = """
import numpy as np
import lazyt as lt
from lazyt.backends.cpu import engine, parallel_compile

together, begun, alone = [], [], []
start, finish, parse = parallel_compile.Making.start, parallel_compile.Making.finish, engine.Host.parse

def started(making, lanes):
    begun.append(list(making.made))
    start(making, lanes)

def finished(making):
    together.append(list(making.made))
    return finish(making)

def parsed(host, text, names, context=None):
    if context is None:
        alone.append(text)
    return parse(host, text, names, context)

lt.set_num_threads(2)
q, w = lt.asarray(np.ones((2, 40, 24), np.float32)), lt.asarray(np.ones((24, 72), np.float32))
lt.sync()
parallel_compile.Making.start, parallel_compile.Making.finish, engine.Host.parse = started, finished, parsed
lt.sync(lt.tanh(lt.nn.functional.scaled_dot_product_attention(q * 1.25, q - 0.5, q + 2.5) @ w) * 0.625)
assert len(together) == 1, len(together)
for part in ("@lazyt_k_", "@lazyt_gemm_", "@lazyt_attention_"):
    assert any(part in text for text in together[0]), part
assert not alone, [text[-2000:] for text in alone]  # nor is the driver of programs
for part, first in (("@lazyt_gemm_", True), ("@lazyt_attention_", True), ("@lazyt_k_", False)):
    assert any(part in text for text in begun[0]) == first, "calls begin while the rest is planned"

x = lt.tensor(np.ones((300, 300), np.float32), requires_grad=True)
(lt.tanh(x) * 0.375).sum().backward()
lt.optim.SGD([x], 0.5).step()
lt.sync()
assert lt.last_sync().in_place and not alone, "nor what is written where a run overwrites inputs"
"""


def test_all_that_a_plan_calls_is_made_together(tmp_path: Path) -> None:
    """Kernels, products and attention; in a process that has none of them yet."""
    environment = {**os.environ, "LAZYT_CACHE_DIR": str(tmp_path), "LAZYT_DEBUG": "no-tiers,no-blas"}
    subprocess.run([sys.executable, "-c", ALONE], env=environment, check=True)
