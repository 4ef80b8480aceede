"""Learn to write Python's documentation, one character at a time, with a small transformer; then write some.

    python examples/chargpt.py           # below 1.9 nats a character on unseen text, in under five minutes on two cores
    python examples/chargpt.py --quick   # a short form, for checking that all is well
    python examples/chargpt.py --amp bfloat16   # in mixed precision; float16 is with scaled losses

The text is what `help()` knows about the language (`pydoc_data.topics`), which every Python carries. A training step is
planned once: its batch comes in parts whose gradients are added up, the gradient is clipped, and the rate falls along a
cosine. Writing goes one character at a time through a cache of keys and values: each
step writes the place of its character in it, and no place needs a plan of its own.
"""

from __future__ import annotations

import argparse
import time
from pydoc_data.topics import topics

import numpy as np

import lazyt as lt
from lazyt import nn, optim
from lazyt.nn import functional as F

CONTEXT = 128  # characters that the model sees
WIDTH = 128
HEADS = 4
LAYERS = 3


def load() -> tuple[str, np.ndarray, np.ndarray]:
    """The alphabet, and the text as numbers: nine tenths to learn from, the last tenth to be tested on."""
    # Topics repeat each other's paragraphs; each is kept once, or the test would be on text that was learned.
    paragraphs = dict.fromkeys(p for name in sorted(topics) for p in topics[name].split("\n\n"))
    text = "\n\n".join(paragraphs)
    alphabet = "".join(sorted(set(text)))
    numbers = {c: i for i, c in enumerate(alphabet)}
    data = np.array([numbers[c] for c in text])
    cut = len(data) * 9 // 10
    return alphabet, data[:cut], data[cut:]


def nearness(back: lt.Tensor) -> lt.Tensor:
    """What attention adds to its products, (HEADS, ...): the further back a key is, the less; nothing for later ones.

    Linear biases (Press, Smith and Lewis, "Train short, test long", 2022) in place of a table of positions.
    """
    slopes = lt.exp2(-2 * lt.arange(HEADS, dtype=lt.float32) - 1).reshape(HEADS, 1, 1)
    return lt.where(back < 0, -lt.inf, -slopes * back)


class Block(nn.Module):
    """Attention, then two dense layers, each added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: lt.Tensor, cache: lt.Tensor | None = None, position: int = 0) -> lt.Tensor:
        """(N, T, WIDTH) -> the same; with a cache, x is the one character at `position`."""
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
        places = lt.arange(t if cache is None else CONTEXT)
        if cache is None:
            back = lt.expand_dims(places, 1) - places
        else:
            # The cache is a ring: the oldest character makes room. What is not written yet counts as later.
            cache[0, :, :, position % CONTEXT] = k[:, :, 0]
            cache[1, :, :, position % CONTEXT] = v[:, :, 0]
            k, v = cache
            back = (position - places) % CONTEXT
            back = lt.where(back <= position, back, -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=nearness(back))
        x = x + self.out(y.swapaxes(1, 2).reshape(n, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharGPT(nn.Module):
    """Characters (N, T) -> the logits of the character after each (N, T, letters)."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letter = nn.Embedding(letters, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters)

    def forward(self, x: lt.Tensor, caches: list[lt.Tensor] | None = None, position: int = 0) -> lt.Tensor:
        """All of x at once; or, with the blocks' caches, the one character at `position`."""
        y = self.letter(x)
        for i, block in enumerate(self.blocks):
            y = block(y, None if caches is None else caches[i], position)
        return self.head(self.norm(y))


def windows(data: np.ndarray, count: int, rng: np.random.Generator) -> tuple[lt.Tensor, lt.Tensor]:
    """`count` random windows of the text, and the same moved on by one: what to predict."""
    at = rng.integers(0, len(data) - CONTEXT, count)[:, None] + np.arange(CONTEXT)
    return lt.asarray(data[at]), lt.asarray(data[at + 1])


def loss_of(model: nn.Module, x: lt.Tensor, y: lt.Tensor) -> lt.Tensor:
    """The mean cross-entropy in nats a character."""
    logits = model(x)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def validate(model: nn.Module, data: np.ndarray, count: int = 64) -> float:
    """The loss on the same `count` windows of unseen text each time."""
    model.eval()
    rng = np.random.default_rng(1)
    with lt.no_grad():
        losses = [loss_of(model, *windows(data, 16, rng)).item() for _ in range(count // 16)]
    model.train()
    return float(np.mean(losses))


def write(model: nn.Module, alphabet: str, prompt: str, length: int) -> tuple[str, int]:
    """`prompt` continued by `length` characters, and how many plans that took."""
    model.eval()
    rng = np.random.default_rng(0)
    text, plans = list(prompt), 0
    with lt.no_grad():
        caches = [lt.zeros((2, 1, HEADS, CONTEXT, WIDTH // HEADS)) for _ in range(LAYERS)]
        for position in range(len(prompt) + length - 1):
            x = lt.asarray([[alphabet.index(text[position])]])
            logits = model(x, caches, position)[0, 0]
            odds = lt.softmax(logits / 0.7).numpy().astype(np.float64)
            plans += lt.last_sync().plans
            if position + 1 == len(text):
                text.append(alphabet[rng.choice(len(alphabet), p=odds / odds.sum())])
    return "".join(text), plans


def main() -> float:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=500)
    args.add_argument("--batch", type=int, default=16)
    args.add_argument("--parts", type=int, default=2, help="of a batch, whose gradients are added up")
    args.add_argument("--quick", action="store_true", help="30 steps")
    args.add_argument("--amp", choices=("bfloat16", "float16"), help="the lower precision of products")
    options = args.parse_args()
    steps = 30 if options.quick else options.steps
    every = 10 if options.quick else 50

    lt.random.seed(0)
    rng = np.random.default_rng(0)
    alphabet, train, test = load()
    model = CharGPT(len(alphabet))
    optimizer = optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    mixed = lt.autocast("cpu", dtype=options.amp or "bfloat16", enabled=options.amp is not None)
    scaler = lt.amp.GradScaler("cpu", enabled=options.amp == "float16")
    size = sum(p.size for p in model.parameters())
    print(f"{len(train):,} characters to learn, {len(test):,} to test, {len(alphabet)} letters, {size:,} parameters")

    start = time.perf_counter()
    plans = compiles = 0
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(step / 50, 1.0) * 0.5 * (1 + np.cos(np.pi * step / steps))
        loss = 0.0
        for part in range(options.parts):
            if part:
                lt.sync()  # what a part keeps for its gradients is free before the next one begins
                report = lt.last_sync()
                plans, compiles = plans + report.plans, compiles + report.compiles
            with mixed:
                share = loss_of(model, *windows(train, options.batch // options.parts, rng)) / options.parts
            scaler.scale(share).backward()
            loss = loss + share.detach()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        lt.sync()
        report = lt.last_sync()
        plans, compiles = plans + report.plans, compiles + report.compiles
        if step % every == 0 or step == steps:
            unseen = validate(model, test)
            seconds = time.perf_counter() - start
            print(
                f"step {step:4}  loss {loss.item():.3f}  validation {unseen:.3f} nats/char  {seconds:5.1f} s",
                flush=True,
            )

    print(f"\n{steps} training steps, {plans} plans, {compiles} compiles. The last step:\n{report}\n")
    text, plans = write(model, alphabet, "The ", 200 if options.quick else 400)
    print(f"A sample, written one character at a time ({plans} plans):\n{text}")
    return unseen


if __name__ == "__main__":
    main()
