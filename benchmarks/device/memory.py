"""python -m benchmarks.device.memory [--device cuda:0] [--way WORD ...] [--batch 8]

What a GPT-2-sized training step (tf32 products) takes on a GPU, in time and at its peak, by the ways to keep less for
the backward. Each way runs in a process of its own. Losses of exact ways are those of the plain step; the peak is
what a plan says for lazyt (its pool is printed too), and what its allocator counted for PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.device import works
from benchmarks.device.libraries import LIBRARIES, Library

ROUNDS = 5
# Each way: the library, and what surrounds its forward pass.
WAYS = (
    "lazyt plain", "lazyt budget", "lazyt least", "lazyt swap", "lazyt L2", "lazyt L3", "lazyt L4",
    "torch plain", "torch checkpoint", "torch save_on_cpu",
)  # fmt: skip
# Budgets, as shares of the smallest one that works.
BUDGETS = {"budget": 1.15, "least": 1.0}


def least(lt: Any, record: Callable[[Any], Any]) -> int:
    """The smallest budget that a step can have."""
    loss = record(lt.memory.budget(1))
    try:
        lt.memory.plan(loss)
    except lt.OutOfMemory as e:
        found = re.search(r"at least (\d+) bytes", str(e))
        assert found is not None, "the error says what is enough"
        with lt.memory.budget("1 TiB"):
            lt.sync()
        return int(found[1])
    raise AssertionError("a budget of one byte is too little")


def around(library: Library, way: str, record: Callable[[Any], Any]) -> Callable[[], Any]:
    """What makes the context of a forward pass."""
    m = library.m
    if way in BUDGETS:
        nbytes = int(BUDGETS[way] * least(m, record))
        return lambda: m.memory.budget(nbytes)
    if way in ("swap", "L2", "L3", "L4"):
        held = m.memory.compress(level=way, bits=None if way == "swap" else 2, device=library.device)
        return lambda: held
    if way == "save_on_cpu":
        return lambda: m.autograd.graph.save_on_cpu(pin_memory=True)
    return contextlib.nullcontext


def measure(library: Library, way: str, scale: int, seconds: float) -> dict[str, Any]:
    """A way's step: seconds, losses of the first steps, bytes at the peak, and those that the pool holds."""
    m = library.m
    library.precision("high")
    (m.random.seed if library.name == "lazyt" else m.manual_seed)(0)
    model, loss_of = works.gpt_model(library, scale)
    model = model.to(library.device)
    if way == "checkpoint":
        checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint
        for block in model.blocks:
            block.forward = _again(checkpoint, block.forward)
    more = {"fused": True} if library.name == "torch" and library.on_gpu else {}
    optimizer = m.optim.Adam(model.parameters(), lr=3e-4, **more)

    def record(how: Any) -> Any:
        optimizer.zero_grad()
        with how:
            loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(1 if way in BUDGETS else 2):  # to find the smallest budget is one more
        library.submit(record(contextlib.nullcontext()))
    context = around(library, way, record)
    library.wait()
    found: dict[str, Any] = {}
    started = time.perf_counter()
    losses = [float(record(context()).detach())]
    library.wait()
    found["first"] = time.perf_counter() - started
    losses += [float(record(context()).detach()) for _ in range(2)]
    if library.name == "lazyt":
        loss = record(context())  # NOTE: held, as above: a program that drops it is another, and may need more
        found["peak"] = m.memory.plan(loss).peak
        m.sync()
        if library.on_gpu:
            found["pool"] = importlib.import_module("cupy").get_default_memory_pool().total_bytes()
    elif library.on_gpu:
        m.cuda.reset_peak_memory_stats()
        record(context())
        library.wait()
        found["peak"] = m.cuda.max_memory_allocated()
    once = max(library.span(lambda: record(context()), 2), 1e-7)
    n = max(1, min(int(seconds / once), 200))
    times = [library.span(lambda: record(context()), n) for _ in range(ROUNDS)]
    return {"seconds": statistics.median(times), "losses": losses, **found}


def _again(checkpoint: Any, forward: Any) -> Any:
    return lambda x: checkpoint(forward, x, use_reentrant=False)


HEADS = ("ms", "of plain", "peak MiB", "of plain", "pool MiB", "first s")
HEAD = f"{'way':20}{''.join(f'{h:>10}' for h in HEADS)}  losses"


def row(way: str, cell: dict[str, Any], plain: dict[str, Any]) -> str:
    """A line of the table: a way's time and peak, also by those of the plain step of the same library."""
    if "failure" in cell:
        return f"{way:20}{cell['failure']}"
    peak, none = cell.get("peak", 0), float("nan")
    return (
        f"{way:20}{cell['seconds'] * 1e3:10.2f}{cell['seconds'] / plain.get('seconds', none):10.2f}"
        f"{peak / 2**20:10.0f}{peak / plain.get('peak', none):10.2f}{cell.get('pool', 0) / 2**20:10.0f}"
        f"{cell['first']:10.1f}  {' '.join(f'{x:.5f}' for x in cell['losses'])}"
    )


def run(way: str, device: str, scale: int, seconds: float) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.device.memory", "--one", way, "--device", device]
    done = subprocess.run(
        [*command, "--scale", str(scale), "--seconds", str(seconds)], capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"failure": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="time and peak of a training step on a GPU, by what it keeps")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--way", nargs="*", default=[], help="only ways with one of these words in their names")
    parser.add_argument("--scale", type=int, default=1, help="1: GPT-2's size; another number: a tiny model")
    parser.add_argument("--seconds", type=float, default=0.5, help="of one round of steps")
    parser.add_argument("--one", metavar="WAY", help="measure one way in this process")
    a = parser.parse_args()
    if a.one:
        library, way = a.one.split()
        print(json.dumps(measure(LIBRARIES[library](a.device), way, a.scale, a.seconds)), flush=True)
        return
    print(HEAD)
    found: dict[str, dict[str, Any]] = {}
    for name in WAYS:
        if not a.way or any(word in name for word in a.way):
            found[name] = run(name, a.device, a.scale, a.seconds)
            print(row(name, found[name], found.get(f"{name.split()[0]} plain", {})), flush=True)


if __name__ == "__main__":
    main()
