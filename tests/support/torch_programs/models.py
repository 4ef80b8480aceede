"""Models as they are written for PyTorch, trained for some steps: losses, norms of gradients, all of their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.torch_programs import array


class Data:
    """Random inputs of a library, equal in both."""

    def __init__(self, lib: Any, dtype: str, seed: int) -> None:
        self.lib, self.dtype, self.rng = lib, dtype, np.random.default_rng(seed)

    def normal(self, *shape: int) -> Any:
        return self.lib.tensor(self.rng.standard_normal(shape).astype(self.dtype))

    def integers(self, low: int, high: int, *shape: int) -> Any:
        return self.lib.tensor(self.rng.integers(low, high, shape))


def joined(lib: Any, parts: Any, axis: int) -> Any:
    return lib.concatenate(parts, axis)


def filled(module: Any, lib: Any, dtype: str) -> Any:
    """The module in this dtype with weights that are the same in both libraries."""
    rng = np.random.default_rng(5)
    module = module.to(getattr(lib, dtype))
    state = module.state_dict()
    new = {k: rng.uniform(-0.4, 0.4, tuple(x.shape)) + (0.5 if "var" in k else 0.0) for k, x in state.items()}
    module.load_state_dict({k: lib.tensor(np.asarray(new[k]).astype(str(array(x).dtype))) for k, x in state.items()})
    return module


def state(found: dict[str, Any], module: Any) -> dict[str, Any]:
    return found | {f"state {k}": v for k, v in module.state_dict().items()}


def translation(lib: Any, dtype: str) -> dict[str, Any]:
    """Packed sequences through a bidirectional LSTM, attention, and a decoder that is fed its own words at times."""
    nn, rnn = lib.nn, lib.nn.utils.rnn

    class Translator(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target = nn.Embedding(9, 4, padding_idx=0), nn.Embedding(8, 4, padding_idx=0)
            self.encoder = nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True)
            self.bridge = nn.Linear(10, 6)
            self.score = nn.Bilinear(6, 10, 1)
            self.decoder = nn.LSTMCell(14, 6)
            self.out = nn.Linear(6, 8)

        def forward(self, words: Any, lengths: Any, target: Any) -> Any:
            packed = rnn.pack_padded_sequence(self.source(words), lengths, batch_first=True, enforce_sorted=False)
            run, (h, c) = self.encoder(packed)
            seen, counts = rnn.pad_packed_sequence(run, batch_first=True)
            state = tuple(lib.tanh(self.bridge(joined(lib, (s[-2], s[-1]), 1))) for s in (h, c))
            mask = lib.arange(seen.shape[1])[None, :] < counts[:, None]
            word, found = target[:, 0], []
            for i in range(1, target.shape[1]):
                query = state[0][:, None].expand(-1, seen.shape[1], -1).reshape(-1, 6)
                scores = self.score(query, seen.reshape(-1, 10)).reshape(mask.shape)
                weights = nn.functional.softmax(lib.where(mask, scores, float("-inf")), 1)
                context = (weights[:, None] @ seen)[:, 0]
                state = self.decoder(joined(lib, (self.target(word), context), 1), state)
                found.append(self.out(state[0]))
                word = target[:, i] if i % 3 else found[-1].argmax(1)
            return lib.stack(found, 1)

    data, model = Data(lib, dtype, 1), filled(Translator(), lib, dtype)
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-2)
    schedule = lib.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    loss_of, kept = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1), {}
    for k in range(4):
        lengths = data.rng.integers(2, 7, 4)
        words = rnn.pad_sequence([data.integers(1, 9, int(n)) for n in lengths], batch_first=True)
        target = rnn.pad_sequence([data.integers(1, 8, int(n)) for n in lengths[::-1]], batch_first=True)
        optimizer.zero_grad()
        found = model(words, lib.tensor(lengths), target)
        loss = loss_of(found.reshape(-1, 8), target[:, 1:].reshape(-1))
        loss.backward()
        kept[f"norm {k}"] = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        kept[f"loss {k}"] = loss
    return state(kept, model)


def adversaries(lib: Any, dtype: str) -> dict[str, Any]:
    """A critic whose loss has the norm of its own gradient in it, so that backward goes through a backward."""
    nn = lib.nn
    maker = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(True), nn.ConvTranspose2d(6, 1, 4, 2, 1),
        nn.Tanh(),
    )  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(4, 6, 2, bias=False),
        nn.InstanceNorm2d(6, affine=True), nn.LeakyReLU(0.2, True), nn.Flatten(), nn.Linear(24, 1),
    )  # fmt: skip
    data, kept = Data(lib, dtype, 2), {}
    maker, critic = filled(maker, lib, dtype), filled(critic, lib, dtype)
    making = lib.optim.RMSprop(maker.parameters(), lr=1e-3)
    judging = lib.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for k in range(4):
        real = data.normal(3, 1, 6, 6)
        with lib.no_grad():
            fake = maker(data.normal(3, 4, 1, 1))
        share = lib.tensor(data.rng.random((3, 1, 1, 1)).astype(dtype))
        between = (share * real + (1 - share) * fake).requires_grad_(True)
        judged = critic(between)
        (slope,) = lib.autograd.grad(
            outputs=judged, inputs=between, grad_outputs=lib.ones_like(judged), create_graph=True, retain_graph=True,
            only_inputs=True,
        )  # fmt: skip
        penalty = ((lib.linalg.norm(lib.flatten(slope, 1), 2, 1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        critic.zero_grad()
        loss.backward()
        judging.step()
        for p in critic.parameters():
            p.requires_grad_(False)
        made = -critic(maker(data.normal(3, 4, 1, 1))).mean()
        maker.zero_grad()
        made.backward()
        making.step()
        for p in critic.parameters():
            p.requires_grad_(True)
        kept |= {f"critic {k}": loss, f"penalty {k}": penalty, f"maker {k}": made}
    return state(kept, nn.ModuleDict({"maker": maker, "critic": critic}))


def codebook(lib: Any, dtype: str) -> dict[str, Any]:
    """A quantizing autoencoder: a custom Function whose gradient goes straight through."""
    nn = lib.nn

    class Nearest(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, codes: Any) -> Any:
            distances = (codes**2).sum(1) + (x**2).sum(-1)[:, None] - 2 * x @ codes.T
            index = distances.argmin(1)
            ctx.mark_non_differentiable(index)
            ctx.save_for_backward(index, codes)
            return codes[index], index

        @staticmethod
        def backward(ctx: Any, g: Any, _: Any) -> Any:
            index, codes = ctx.saved_tensors
            chosen = nn.functional.one_hot(index, num_classes=codes.shape[0]).to(g)
            return g.clone(), chosen.T @ g if ctx.needs_input_grad[1] else None

    model = nn.ModuleDict(
        {
            "encoder": nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)),
            "codes": nn.Embedding(7, 3),
            "decoder": nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 6)),
        }
    )
    data, kept, mse = Data(lib, dtype, 3), {}, nn.functional.mse_loss
    model = filled(model, lib, dtype)
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
    for k in range(5):
        x = data.normal(10, 6)
        z = model["encoder"](x)
        quantized, index = Nearest.apply(z, model["codes"].weight.detach())
        chosen = model["codes"](index)
        loss = mse(model["decoder"](quantized), x) + mse(chosen, z.detach()) + 0.25 * mse(z, chosen.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept |= {f"loss {k}": loss, f"index {k}": index}
    return state(kept, model)


def decoder(lib: Any, dtype: str) -> dict[str, Any]:
    """A language model of today: rotary positions, grouped queries, RMSNorm, gated units, tied weights."""
    nn, F = lib.nn, lib.nn.functional  # noqa: N806 - as everybody calls it

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.RMSNorm(8, eps=1e-6), nn.RMSNorm(8, eps=1e-6)
            self.q, self.k, self.v = nn.Linear(8, 8, bias=False), nn.Linear(8, 4, bias=False), nn.Linear(8, 4)
            self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((8, 12), (8, 12), (12, 8)))
            self.register_buffer("speeds", 1.0 / 100.0 ** (lib.arange(0, 2, dtype=lib.float64) / 2), persistent=False)

        def turned(self, x: Any) -> Any:
            angle = lib.outer(lib.arange(x.shape[2], dtype=self.speeds.dtype), self.speeds)
            angle = joined(lib, (angle, angle), -1)
            a, b = x[..., :2], x[..., 2:]
            return x * angle.cos() + joined(lib, (-b, a), -1) * angle.sin()

        def forward(self, x: Any) -> Any:
            n, t, _ = x.shape
            h = self.before(x)
            q, k, v = (f(h).view(n, t, -1, 4).swapaxes(1, 2) for f in (self.q, self.k, self.v))
            mixed = F.scaled_dot_product_attention(
                self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=True
            ).swapaxes(1, 2).reshape(n, t, 8)  # fmt: skip
            x = x + mixed
            h = self.between(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(11, 8)
            self.blocks = nn.ModuleList([Block() for _ in range(2)])
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.words.weight

        def forward(self, x: Any) -> Any:
            h = self.words(x)
            for block in self.blocks:
                h = block(h)
            return self.head(h)

    data, kept, model = Data(lib, dtype, 4), {}, filled(Decoder(), lib, dtype)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = lib.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    schedules = lib.optim.lr_scheduler
    schedule = schedules.SequentialLR(
        optimizer, [schedules.LinearLR(optimizer, 0.1, total_iters=2), schedules.CosineAnnealingLR(optimizer, 4)], [2]
    )
    for k in range(8):
        words = data.integers(0, 11, 2, 7)
        loss = F.cross_entropy(model(words[:, :-1]).reshape(-1, 11), words[:, 1:].reshape(-1)) / 2
        loss.backward()
        if k % 2:
            kept[f"norm {k}"] = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
        kept[f"loss {k}"] = loss
    return state(kept | {"rates": [g["lr"] for g in optimizer.param_groups]}, model)


PROGRAMS: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "codebook": codebook,
    "translation": translation,
    "adversaries": adversaries,
    "decoder": decoder,
}
