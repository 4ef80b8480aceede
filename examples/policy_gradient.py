"""Learn to balance a pole on a cart from rewards alone: REINFORCE with a baseline.

    python examples/policy_gradient.py              # half a minute on two cores
    python examples/policy_gradient.py --quick      # a short form, for checking that all is well

The environment is NumPy, below; eight carts run side by side. Choosing an action reads a value, so it is a sync of its
own; learning from all steps of an episode is one plan more, whatever the episode's length.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import lazyt as lt
from lazyt import nn, optim
from lazyt.distributions import Categorical

CARTS, LONGEST = 8, 200


class Carts:
    """Poles on carts (Barto, Sutton, Anderson, 1983): place, speed, angle, angular speed of each."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def reset(self) -> np.ndarray:
        self.state = self.rng.uniform(-0.05, 0.05, (CARTS, 4))
        self.up = np.ones(CARTS, bool)
        return self.state.astype(np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Push each cart to the left (0) or right (1): what is seen then, and 1 for each pole that still stands."""
        x, v, angle, turn = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        sin, cos = np.sin(angle), np.cos(angle)
        push = (force + 0.05 * turn**2 * sin) / 1.1
        spin = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = push - 0.05 * spin * cos / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * spin], axis=1)
        self.up &= (np.abs(self.state[:, 0]) < 2.4) & (np.abs(self.state[:, 2]) < 0.21)
        return self.state.astype(np.float32), self.up.astype(np.float32)


def returns(rewards: np.ndarray, discount: float = 0.99) -> np.ndarray:
    """What each step still brought: (steps, carts)."""
    out = np.zeros_like(rewards)
    total = np.zeros(rewards.shape[1])
    for k in reversed(range(len(rewards))):
        total = rewards[k] + discount * total
        out[k] = total
    return out


def episode(policy: nn.Module, carts: Carts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What was seen, done and gained, in LONGEST steps or until all poles have fallen."""
    seen, done, gained = [carts.reset()], [], []
    with lt.no_grad():
        while len(done) < LONGEST and carts.up.any():
            action = Categorical(logits=policy(lt.asarray(seen[-1]))).sample().numpy()
            state, reward = carts.step(action)
            done.append(action)
            gained.append(reward)
            seen.append(state)
    return np.stack(seen[:-1]), np.stack(done), np.stack(gained)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short form")
    episodes = 24 if parser.parse_args().quick else 150
    lt.random.seed(0)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = optim.Adam(policy.parameters(), lr=0.01)
    carts, start, stood, plans = Carts(np.random.default_rng(0)), time.perf_counter(), [], 0
    for k in range(1, episodes + 1):
        seen, done, gained = episode(policy, carts)
        value = returns(gained)
        alive = np.concatenate([np.ones((1, CARTS), np.float32), gained[:-1]])
        advantage = (value - value[alive > 0].mean()) / (value[alive > 0].std() + 1e-6) * alive
        optimizer.zero_grad()
        log_prob = Categorical(logits=policy(lt.asarray(seen))).log_prob(lt.asarray(done))
        loss = -(log_prob * lt.asarray(advantage.astype(np.float32))).sum() / float(alive.sum())
        loss.backward()
        optimizer.step()
        lt.sync()
        plans += k > 10 and lt.last_sync().reason != ""
        stood.append(gained.sum(0).mean())
        if k % 10 == 0:
            seconds = time.perf_counter() - start
            print(f"episode {k:4}: poles stood {np.mean(stood[-10:]):6.1f} steps, {seconds:.1f} s", flush=True)
    print(f"learning steps that were planned anew after the tenth: {plans}")
    low, high = np.mean(stood[:10]), np.mean(stood[-10:])
    for name, x in (("at first", low), ("at last", high)):
        print(f"{name:>8} {'#' * round(x / 4)} {x:.1f} of {LONGEST} steps")


if __name__ == "__main__":
    main()
