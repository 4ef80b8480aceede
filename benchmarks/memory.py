"""The largest batch of a training step that fits into a memory limit, with and without a budget; what that costs.

    python -m benchmarks.memory              # both models, limit 2 GiB
    python -m benchmarks.memory gpt --limit "1 GiB"
    python -m benchmarks.memory --quick      # in some minutes: the peaks that plans say; nothing runs
    python -m benchmarks.memory --cost       # time and bytes of recomputing what is cheap in the GPT step
    python -m benchmarks.memory resnet --cost --batch 64    # time of a step with 2-bit activations, and of planning it

A batch fits if a process whose address space is limited by `resource` runs a step with it. The largest one is found by
bisection, to 8 %, each trial in a fresh process with a time limit: one that takes longer counts as too large. It begins
where the plans of two small batches say, so there are few trials. What the process takes before the step (Python,
NumPy, LLVM: about half a GiB) counts too; the budget is what is left of the limit, less a reserve for compiling.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import lazyt as lt
from lazyt import nn
from lazyt.runtime.memory import size_of

if TYPE_CHECKING:
    from lazyt.runtime.memory_policy import Saved

# Address space of a process that has recorded a step.
BASE = 448 << 20
# Address space that compiling the step takes.
RESERVE = 192 << 20
RESOLUTION = 1.08
# A trial may take so long.
SECONDS = 900
# Batches of --quick.
QUICK = {"gpt": 16, "resnet": 64}
# How a step is planned: as usual, under a budget, and under one with its activations compressed.
PLAIN, RECOMPUTE, COMPRESS = WAYS = ("plain", "recomputation", "with compression")
CHEAP = frozenset(("gelu", "layer_norm", "dropout", "astype", "permute_dims", "relu", "batch_norm"))


class Block(nn.Module):
    """A layer of a GPT."""

    def __init__(self, d: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: lt.Tensor) -> lt.Tensor:
        b, t, d = x.shape
        h = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, d // self.heads)
        q, k, v = (h[:, :, i].permute(0, 2, 1, 3) for i in range(3))
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(a.permute(0, 2, 1, 3).reshape(b, t, d)))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Module):
    """Token and position embeddings, layers, and logits."""

    def __init__(self, vocabulary: int = 128, length: int = 128, d: int = 64, layers: int = 8) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.blocks = nn.Sequential(*(Block(d, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary)

    def forward(self, index: lt.Tensor) -> lt.Tensor:
        x = self.token(index) + self.position(lt.arange(index.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Residual(nn.Module):
    """Two convolutions beside a way past them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        past = [nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)]
        self.past = nn.Sequential(*(past if before != after else ()))

    def forward(self, x: lt.Tensor) -> lt.Tensor:
        h = nn.functional.relu(self.norm1(self.conv1(x)))
        return nn.functional.relu(self.norm2(self.conv2(h)) + self.past(x))


def resnet() -> nn.Module:
    """A ResNet for images of 32 x 32: three stages of three blocks."""
    blocks = [
        Residual(before if i == 0 else after, after, 2 if i == 0 and after > 8 else 1)
        for before, after in ((8, 8), (8, 16), (16, 32))
        for i in range(3)
    ]
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


class Training:
    """A model, its optimizer, and a batch of data."""

    def __init__(self, model: str, batch: int) -> None:
        lt.random.seed(0)
        if model == "gpt":
            self.model: nn.Module = Gpt()
            self.x = lt.random.integers(0, 128, size=(batch, 128))
            self.y = lt.random.integers(0, 128, size=(batch * 128,))
        else:
            self.model = resnet()
            self.x = lt.random.normal(size=(batch, 3, 32, 32))
            self.y = lt.random.integers(0, 10, size=(batch,))
        self.optimizer = lt.optim.AdamW(self.model.parameters(), lr=1e-3)
        lt.sync()

    def record(self, how: lt.memory.budget | None, compressed: bool = False) -> lt.Tensor:
        """Record a step; gives its loss."""
        with ExitStack() as stack:
            if how is not None:
                stack.enter_context(how)
            if compressed:
                stack.enter_context(lt.memory.compress(bits=2))
            out = self.model(self.x)
            loss = nn.functional.cross_entropy(out.reshape(self.y.shape[0], -1), self.y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def address_space() -> int:
    """Bytes of address space that this process has."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


def trial(model: str, batch: int, limit: int, way: str) -> None:
    """Run a step within the limit; the process fails if it does not fit."""
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    training = Training(model, batch)
    left = limit - address_space() + lt.memory.allocated() - RESERVE
    how = None if way == PLAIN else lt.memory.budget(left)
    lt.memory.reset_peak()
    start = perf_counter()
    loss = training.record(how, way == COMPRESS).item()
    seconds = perf_counter() - start
    print(f"{loss:.6f} {lt.memory.peak()} {seconds:.3f}")


def fits(model: str, batch: int, limit: int, way: str) -> str:
    """What a trial printed; '' if the batch does not fit."""
    command = [sys.executable, "-m", "benchmarks.memory", model, "--trial", str(batch), "--limit", str(limit)]
    print(f"  {model}, {way}, batch {batch}: ", end="", flush=True)
    try:
        done = subprocess.run(
            [*command, "--way", way], capture_output=True, text=True, check=False, timeout=SECONDS
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"more than {SECONDS} s", flush=True)
        return ""
    print("does not fit" if done.returncode else "fits", flush=True)
    memory = (
        "OutOfMemory",
        "MemoryError",
        "out of memory",
        "Cannot allocate",
        "Unable to allocate",
        "Memory allocation",
    )
    if done.returncode and not any(word in done.stderr for word in memory):
        raise RuntimeError(f"a trial of {model} with {batch} failed: {done.stderr[-2000:]}")
    return "" if done.returncode else done.stdout.strip()


def largest(model: str, limit: int, way: str) -> tuple[int, str]:
    """The largest batch that fits, and what its trial printed."""
    low, found, high = 0, "", 0
    batch = expected(model, limit, way)
    while not (low and high and high <= low * RESOLUTION + 1):
        if text := fits(model, batch, limit, way):
            low, found = batch, text
        else:
            high = batch
            if batch == 1:
                break
        middle = (low + high) // 2
        batch = int(low * RESOLUTION) + 1 if not high else int(high / RESOLUTION) if not low else middle
    return low, found


def expected(model: str, limit: int, way: str) -> int:
    """The batch that the plans of two smaller ones let expect."""
    small, more = QUICK[model], 2 * QUICK[model]
    first, second = (needs(model, batch, way)[0] for batch in (small, more))
    left = limit - BASE - (0 if way == PLAIN else RESERVE)
    return max(int(small + (left - first) * (more - small) / (second - first)), 1)


def needs(model: str, batch: int, way: str) -> tuple[int, float]:
    """The bytes that a step needs as it is planned, at the least under a budget, and the seconds that took."""
    training = Training(model, batch)
    start = process_time()
    if way == PLAIN:
        found = lt.memory.plan(loss := training.record(None)).peak
    else:
        loss = training.record(lt.memory.budget(1), way == COMPRESS)
        try:
            lt.memory.plan(loss)
        except lt.OutOfMemory as e:
            text = re.search(r"at least (\d+) bytes", str(e))
        assert text is not None, "a budget of one byte is too little, and the error says what is enough"
        found = int(text[1])
    seconds = process_time() - start
    # What is pending is computed before the next model is made.
    with lt.memory.budget(16 * found):
        loss.item()
    return found, seconds


def peaks(model: str, batch: int) -> None:
    """Print what plans of a step need: as usual, and with the smallest budgets that work."""
    usual, _ = needs(model, batch, PLAIN)
    print(f"{model}, batch {batch}: {usual / 2**20:.1f} MiB")
    for way in (RECOMPUTE, COMPRESS):
        least, seconds = needs(model, batch, way)
        ratio, found = usual / least, f"found in {seconds:.1f} s of this process"
        print(f"  {way}: at least {least / 2**20:.1f} MiB, {ratio:.1f} times less; {found}", flush=True)


def table(models: list[str], limit: int) -> None:
    """Print the largest batches within the limit."""
    lines = []
    for model in models:
        base = 0
        for way in WAYS:
            batch, text = largest(model, limit, way)
            base = base or batch
            _, peak, seconds = text.split() if text else ("", "0", "0")
            lines.append(
                f"{model:8}{way:18}{batch:8}{batch / max(base, 1):8.1f}{int(peak) / 2**20:12.0f}{float(seconds):10.1f}"
            )
    print(f"{'model':8}{'way':18}{'batch':>8}{'times':>8}{'peak MiB':>12}{'seconds':>10}")
    print("\n".join(lines))


def cheap(s: Saved) -> str:
    """A policy: what costs little to compute is computed again, all else is kept."""
    return "recompute" if s.operation in CHEAP else "keep"


def cost(batch: int, rounds: int) -> None:
    """Print the bytes that the GPT step keeps, and its CPU time, with all kept and with what is cheap recomputed."""
    ways = {"all kept": None, "cheap values recomputed": lt.memory.budget(None, policy=cheap)}
    # A budget that all fits into has the order of launches of low peak, as the policy's plan has.
    times: dict[str, list[float]] = {name: [] for name in ways}
    trainings = {name: Training("gpt", batch) for name in ways}
    for i in range(rounds + 2):
        for name, how in ways.items():
            start = process_time()
            loss = trainings[name].record(how)
            if i == 0:
                plan = lt.memory.plan(loss)
                kept = plan.kept / 2**20
                print(f"{name}: keeps {kept:.1f} MiB, peak {plan.peak / 2**20:.1f} MiB")
            loss.item()
            if i >= 2:
                times[name].append(process_time() - start)
    base, again = (sorted(t)[len(t) // 4] for t in times.values())
    print(f"step {base * 1e3:.1f} ms, recomputing {again * 1e3:.1f} ms: {100 * (again / base - 1):+.1f} %")


def cost_of_compression(model: str, batch: int, rounds: int) -> None:
    """Print the CPU seconds of the first step and of further ones, exact and with activations of 2 bits, in turn."""
    ways = {"exact": False, "2 bits": True}
    trainings = {name: Training(model, batch) for name in ways}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 2):
        for name, compressed in ways.items():
            start = process_time()
            trainings[name].record(None, compressed).item()
            times[name].append(process_time() - start)
    for name, (first, _, *rest) in times.items():
        print(f"{name}: first step {first:.2f} s, then {sorted(rest)[len(rest) // 2] * 1e3:.1f} ms")
    # Of steps next to each other: the machine's other work changes slowly.
    ratios = sorted(b / a for a, b in zip(*(t[2:] for t in times.values()), strict=True))
    print(f"2 bits by exact: {ratios[len(ratios) // 2]:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="largest batches within a memory limit")
    parser.add_argument("model", nargs="?", choices=("gpt", "resnet"))
    parser.add_argument("--limit", default="2 GiB", type=partial(size_of, "--limit"))
    parser.add_argument("--trial", type=int, metavar="BATCH", help="run a step with a batch, in this process")
    parser.add_argument("--way", choices=WAYS, default=PLAIN, help="of a trial: how its step is planned")
    parser.add_argument("--cost", action="store_true", help="of recomputation; of a ResNet that of compression")
    parser.add_argument("--batch", type=int, default=16, help="of --cost")
    parser.add_argument("--rounds", type=int, default=10, help="of --cost")
    parser.add_argument("--quick", action="store_true", help="print what plans need, and run nothing large")
    a = parser.parse_args()
    if a.cost:
        if a.model == "resnet":
            cost_of_compression(a.model, a.batch, a.rounds)
        else:
            cost(a.batch, a.rounds)
    elif a.quick:
        for model in [a.model] if a.model else QUICK:
            peaks(model, QUICK[model])
    elif a.trial is not None:
        trial(a.model, a.trial, a.limit, a.way)
    else:
        table([a.model] if a.model else [*QUICK], a.limit)


if __name__ == "__main__":
    main()
