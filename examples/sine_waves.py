"""Predict sine waves with two LSTM cells and L-BFGS: a program as it is written for PyTorch, but for its imports.

    python examples/sine_waves.py              # some ten seconds
    python examples/sine_waves.py --quick      # a short form, for checking that all is well

The loop over time is a Python loop over cells, as users write it; after three turns of the optimizer nothing is planned
any more. With PyTorch installed, `sed 's/lazyt.torch/torch/'` gives the program that it was before.
"""

from __future__ import annotations

import argparse
import math

import lazyt.torch as torch
from lazyt.torch import nn, optim

WIDTH = 24
HEIGHT = 9


class Sequence(nn.Module):
    """Two cells, one behind the other, and a line that reads the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTMCell(1, WIDTH)
        self.second = nn.LSTMCell(WIDTH, WIDTH)
        self.read = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor, future: int = 0) -> torch.Tensor:
        """The next value after each of (waves, steps), and `future` values more, each from the one before."""
        state = [torch.zeros(x.size(0), WIDTH) for _ in range(4)]
        found = [self.step(now, state) for now in x.split(1, dim=1)]
        while len(found) < x.size(1) + future:
            found.append(self.step(found[-1], state))
        return torch.cat(found, dim=1)

    def step(self, now: torch.Tensor, state: list[torch.Tensor]) -> torch.Tensor:
        """One step of time; `state` is written."""
        state[0], state[1] = self.first(now, (state[0], state[1]))
        state[2], state[3] = self.second(state[0], (state[2], state[3]))
        return self.read(state[2])


def draw(known: list[float], predicted: list[float]) -> str:
    """A wave as lines of text: `o` what the model has seen, `*` what it says follows."""
    rows = [[" "] * (len(known) + len(predicted)) for _ in range(HEIGHT)]
    for i, value in enumerate([*known, *predicted]):
        row = round((1.2 - value) / 2.4 * (HEIGHT - 1))
        rows[min(max(row, 0), HEIGHT - 1)][i] = "o" if i < len(known) else "*"
    return "\n".join("".join(row).rstrip() for row in rows)


def main() -> None:
    """Train, and let the model go on by itself."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short waves and few evaluations")
    quick = parser.parse_args().quick
    waves, steps, turns, future = (8, 24, 2, 12) if quick else (48, 60, 8, 40)

    torch.manual_seed(0)
    shift = torch.rand(waves, 1) * 2 * math.pi
    data = torch.sin(torch.arange(steps + 1).float() / 5 + shift)
    x, target = data[:, :-1], data[:, 1:]

    model, criterion = Sequence(), nn.MSELoss()
    optimizer = optim.LBFGS(model.parameters(), lr=0.8, max_iter=5)
    for turn in range(turns):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = criterion(model(x), target)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        print(f"turn {turn + 1}  loss {loss.item():.6f}", flush=True)

    with torch.no_grad():
        predicted = model(x[:1], future=future)
        wave = torch.sin(torch.arange(steps + 1, steps + 1 + future).float() / 5 + shift[:1])
        error = (predicted[:, -future:] - wave).abs().mean()
    print(f"mean error of {future} steps ahead {error.item():.3f}")
    print(draw(x[0].tolist()[-40:], predicted[0, -future - 1 :].tolist()))


if __name__ == "__main__":
    main()
