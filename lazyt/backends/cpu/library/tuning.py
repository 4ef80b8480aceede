"""The autotuner: chooses the strategy of a matrix product by timing the candidates, once a class of sizes.

`LAZYT_DEBUG=autotune` turns it on. Sizes of a class are equal when rounded up to 2^i or 1.5 * 2^i. The choice is stored
in the object cache, by class, dtype, layout of the operands, number of threads and processor: afterwards nothing is
timed, and runs are deterministic again. Candidates are BLAS and generated products whose units differ in rows, columns
and packing; all of the generated ones give the same bits.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from lazyt import on_demand
from lazyt.backends import object_cache
from lazyt.backends.common.products import TRANS, leading
from lazyt.backends.cpu import memory
from lazyt.backends.cpu.engine import CODEGEN_VERSION, host
from lazyt.backends.cpu.library import blas
from lazyt.backends.cpu.library.products import Product, stays_on_stack
from lazyt.backends.cpu.thread_pool import Program, get_num_threads
from lazyt.ir.symbolic import uses_offset

if TYPE_CHECKING:
    import json

    from lazyt.backends.common.products import Patches, Value
    from lazyt.backends.cpu.library.products import Choice
    from lazyt.ir.graph import Node
    from lazyt.ir.passes.schedule import MatmulCall
    from lazyt.ir.symbolic import Dim
else:
    json = on_demand.module("json")

VERSION = 1  # of the candidates and of what is kept
# Multiply-adds of the smallest products that are timed, and bytes of the largest.
WORTH = 1 << 20
MOST = 1 << 29
REPEATS = 7
# What must be gained over the choice by estimates.
BETTER = 0.97
# Rows and columns of units that are tried beside those of the estimate.
DEEPS, WIDES = (192, 1 << 30), (256,)


def rounded(n: int) -> int:
    """The class of a size: the next 2^i or 1.5 * 2^i."""
    if n <= 2:
        return n
    top = 1 << (n - 1).bit_length()
    return top * 3 // 4 if n <= top * 3 // 4 else top


def tuned(c: MatmulCall, choice: Choice, value: Value, measure: bool = True) -> Choice:
    """The choice by what is or was measured; as it is where nothing was, if nothing may be measured or is worth it."""
    if choice.tile is None or not choice.blas_cycles or choice.m * choice.n * choice.k * choice.count < WORTH:
        return choice
    if sum(_bytes(n, value) for n in {c.node, *(base for base, _, _ in c.operands)}) > MOST:
        return choice
    key = _key(c, choice, value)
    found = _found.get(key)
    if found is None:
        cache = object_cache.default_cache()
        stored = cache.load(key)
        if stored is not None:
            found = json.loads(stored)
        elif measure:
            try:
                found = _measured(c, choice, value)
            except MemoryError:  # a limit that the plan itself may well stay below
                return choice
            cache.store(key, json.dumps(found).encode())
        else:
            return choice
        _found[key] = found
    return _chosen(c, choice, found)


_found: dict[str, dict[str, Any]] = {}


def forget() -> None:
    """Forget what this process knows of the answers on disk."""
    _found.clear()


def _bytes(n: Node, value: Value) -> int:
    return math.prod(value(d) for d in n.shape) * n.dtype.itemsize


def _key(c: MatmulCall, choice: Choice, value: Value) -> str:
    layout = [leading(x, s, value) for x, (_, s, _) in zip(c.node.operands, c.operands, strict=True)]
    transposed = [la is not None and la[0] == TRANS for la in layout]
    sizes = [rounded(n) for n in (choice.m, choice.n, choice.k, choice.count)]
    about = [c.node.dtype.name, sizes, transposed, get_num_threads(), str(choice.tile)]
    return object_cache.make_key("product", json.dumps([VERSION, CODEGEN_VERSION, about]), host().cpu, host().flags)


def candidates(choice: Choice) -> list[Choice]:
    """Strategies for a product, the one by estimates first."""
    generated = dataclasses.replace(choice, how="generated", on_stack=False)
    out = [dataclasses.replace(choice, on_stack=False), generated, dataclasses.replace(generated, how="blas")]
    out += [dataclasses.replace(generated, deep=deep) for deep in DEEPS]
    out += [dataclasses.replace(generated, wide=wide) for wide in WIDES]
    if choice.pack_b != "across":
        out.append(dataclasses.replace(generated, pack_b="" if choice.pack_b else "panel"))
    return list(dict.fromkeys(out))


def _measured(c: MatmulCall, choice: Choice, value: Value) -> dict[str, Any]:
    """The fastest candidate, and the times in microseconds."""
    choices = candidates(choice)
    nodes = list(dict.fromkeys([*(base for base, _, _ in c.operands), c.node]))
    buffers = {n: memory.allocate(max(_bytes(n, value), 1)) for n in nodes}
    for b in buffers.values():
        ctypes.memset(b.address, 0, b.nbytes)
    trials = [_Trial(c, candidate, value, buffers) for candidate in choices]
    best = [float("inf")] * len(choices)
    for repeat in range(REPEATS):
        for i, trial in enumerate(trials):
            t = trial.run()
            if repeat:  # the first one touches memory
                best[i] = min(best[i], t)
    first = min(range(len(choices)), key=best.__getitem__)
    if best[first] > BETTER * best[0]:
        first = 0
    fastest = choices[first]
    times = {how: min((t for x, t in zip(choices, best, strict=True) if x.how == how)) for how in ("generated", "blas")}
    return {
        "how": fastest.how, "deep": fastest.deep, "wide": fastest.wide, "pack_b": fastest.pack_b,
        **{name: round(t * 1e6, 1) for name, t in times.items()},
    }  # fmt: skip


def _chosen(c: MatmulCall, choice: Choice, found: dict[str, Any]) -> Choice:
    same = found["how"] == "generated"
    timed = f"timed {found['generated']:,.0f} us generated, {found['blas']:,.0f} us by BLAS, for sizes of this class"
    return dataclasses.replace(
        choice, how=found["how"], deep=found["deep"], wide=found["wide"], pack_b=found["pack_b"], timed=timed,
        on_stack=same and stays_on_stack(c, choice.k),
    )  # fmt: skip


class _Trial:
    """One product with memory of its own, in the place of a bound plan."""

    def __init__(self, c: MatmulCall, choice: Choice, value: Value, buffers: dict[Node, memory.Buffer]) -> None:
        alone = dataclasses.replace(c, epilogue=None, kept=True)
        self.value = value
        self.index = {n: i for i, n in enumerate(buffers)}
        self.arena_base = len(buffers)
        self.keeps = False
        self.kept_base: dict[MatmulCall, int] = {}
        product = Product(self, alone, choice)
        self.offsets = {(alone, "A"): 0}
        self.workspace_at = -(-product.extra.get("A", 0) // 64) * 64
        self.buffers = [*buffers.values(), memory.allocate(max(self.workspace_at + product.workspace, 1))]
        rows: list[list[int]] = []
        table: list[int] = []
        patches: Patches = []
        product.rows(rows, table, patches)
        self.program = Program(rows, table, patches, len(self.buffers))
        self.addresses = [b.address for b in self.buffers]
        self.by_blas = choice.how == "blas"

    def _address(
        self, n: Node, offset: int | Dim, itemsize: int, slot: int, patches: Patches, shift: int = 0
    ) -> None:  # fmt: skip
        byte = 0 if uses_offset(offset) else self.value(offset) * itemsize
        patches.append((slot, self.index[n], byte + shift * itemsize))

    def run(self) -> float:
        """Seconds of one run."""
        with blas.OneThread() if self.by_blas else nullcontext():
            t = time.perf_counter()
            self.program.launch(self.addresses)
            return time.perf_counter() - t
