"""Two networks that train each other: a generator learns a ring of eight spots from noise alone.

    python examples/gan.py              # half a minute on two cores
    python examples/gan.py --quick      # a short form, for checking that all is well

The optimizers and `step` are listing 2 of the PyTorch paper (Paszke et al., 2019) as it stands there, but for the
import and a parenthesis that the paper forgot; the loop clears the gradients. Nothing in it reads a value, so a step is
one program: the line before the picture says how many plans the last steps needed.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import lazyt as lt
from lazyt import nn, optim

NOISE, BATCH = 8, 128


def create_discriminator():
    return nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))


def create_generator():
    return nn.Sequential(nn.Linear(NOISE, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def get_noise():
    return lt.random.standard_normal((BATCH, NOISE))


loss = nn.BCEWithLogitsLoss()
real_label, fake_label = lt.ones((BATCH, 1)), lt.zeros((BATCH, 1))

lt.random.seed(0)
discriminator = create_discriminator()
generator = create_generator()
optimD = optim.Adam(discriminator.parameters())  # noqa: N816 - the paper's name
optimG = optim.Adam(generator.parameters())  # noqa: N816


def step(real_sample):
    # (1) Update Discriminator
    errD_real = loss(discriminator(real_sample), real_label)  # noqa: N806 - the paper's names
    errD_real.backward()
    fake = generator(get_noise())
    errD_fake = loss(discriminator(fake.detach()), fake_label)  # noqa: N806
    errD_fake.backward()
    optimD.step()
    # (2) Update Generator
    errG = loss(discriminator(fake), real_label)  # noqa: N806
    errG.backward()
    optimG.step()


SPOTS = np.exp(2j * np.pi * np.arange(8) / 8)


def draw(rng: np.random.Generator, n: int = BATCH) -> np.ndarray:
    """Points near the eight spots of the ring."""
    spot = SPOTS[rng.integers(0, 8, n)]
    points = np.stack([spot.real, spot.imag], axis=1) + 0.05 * rng.standard_normal((n, 2))
    return points.astype(np.float32)


def made(n: int = 10) -> np.ndarray:
    """What the generator makes now, of n batches."""
    with lt.no_grad():
        return np.concatenate([generator(get_noise()).numpy() for _ in range(n)])


def distance(points: np.ndarray) -> float:
    """From a point to its nearest spot, on average."""
    z = points[:, 0] + 1j * points[:, 1]
    return float(np.abs(z[:, None] - SPOTS).min(1).mean())


def picture(points: np.ndarray, size: int = 21) -> str:
    """Points of [-1.4, 1.4] x [-1.4, 1.4] as text, darker where there are more."""
    counts, *_ = np.histogram2d(points[:, 1], points[:, 0], bins=(size, 2 * size), range=[[-1.4, 1.4]] * 2)
    level = np.ceil(4 * counts / max(counts.max(), 1)).astype(int)
    return "\n".join("".join(" .:*#"[k] for k in row) for row in level[::-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short form")
    steps = 300 if parser.parse_args().quick else 6000
    rng, start, plans = np.random.default_rng(0), time.perf_counter(), []
    print(f"before: {distance(made()):.3f} from a spot")
    for k in range(1, steps + 1):
        optimD.zero_grad()
        optimG.zero_grad()
        step(lt.asarray(draw(rng)))
        lt.sync()
        if k > steps - 50:
            plans.append(lt.last_sync().reason)
        if k % (steps // 5) == 0:
            rate = k / (time.perf_counter() - start)
            print(f"step {k:5}: {distance(made(2)):.3f} from a spot, {rate:.0f} steps/s", flush=True)
    made_now = sum(p != "" for p in plans)
    print(f"the last {len(plans)} steps: {made_now} plans made, {len(plans) - made_now} times a known one run")
    points = made()
    print(picture(points))
    print(f"after: {distance(points):.3f} from a spot")


if __name__ == "__main__":
    main()
