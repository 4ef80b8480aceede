"""Learn a bilateral filter: a kernel of ten lines (`lt.kernel`), whose two widths are fitted by gradient descent.

    python examples/denoise.py              # some seconds
    python examples/denoise.py --quick      # a short form, for checking that all is well

The filter takes the mean of the elements around, weighted by how near and how alike they are, so noise goes and edges
stay. As a Python function it says the value at one place; lazyt makes kernels of it, and the gradient by both widths.
"""

from __future__ import annotations

import argparse

import numpy as np

import lazyt as lt
from lazyt import Tensor


@lt.kernel(bounds="clamp")
def bilateral(i, j, /, x, near, alike):
    """The filtered image at row i, column j."""
    total, weight = 0.0, 0.0
    for di in range(-2, 3):
        for dj in range(-2, 3):
            y = x[i + di, j + dj]
            w = np.exp(-near * (di * di + dj * dj) - alike * (y - x[i, j]) ** 2)
            total += w * y
            weight += w
    return total / weight


def picture(size: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Bright rectangles on a slope, without and with noise."""
    clean = np.linspace(0, 0.3, size)[:, None] * np.ones(size)
    for _ in range(6):
        top, left, height, width = rng.integers(0, size // 2, 4)
        clean[top : top + height + 4, left : left + width + 4] = rng.uniform(0.3, 1)
    noisy = clean + 0.1 * rng.normal(size=clean.shape)
    return lt.asarray(clean, dtype=lt.float32), lt.asarray(noisy, dtype=lt.float32)


def error(x: Tensor, clean: Tensor) -> Tensor:
    """The mean square of the difference."""
    return ((x - clean) ** 2).mean()


def main() -> None:
    """Fit the widths on one picture, and try them on another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rng = np.random.default_rng(1)
    size, steps = (32, 25) if quick else (128, 80)
    clean, noisy = picture(size, rng)
    # Logarithms, so that the widths stay positive.
    near, alike = (lt.tensor(v, requires_grad=True) for v in (0.0, 0.0))
    optimizer = lt.optim.Adam([near, alike], lr=0.2)
    print(f"error of the noisy picture     {error(noisy, clean).item():.5f}")
    for step in range(steps):
        loss = error(bilateral(noisy, lt.exp(near), lt.exp(alike)), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step:2}  filtered             {loss.item():.5f}")
    widths = [lt.exp(v.detach()) for v in (near, alike)]
    print(f"near {widths[0].item():.3f}, alike {widths[1].item():.2f}")
    clean, noisy = picture(size, rng)
    filtered = bilateral(noisy, *widths)
    print(f"another picture: noisy {error(noisy, clean).item():.5f}, filtered {error(filtered, clean).item():.5f}")


if __name__ == "__main__":
    main()
