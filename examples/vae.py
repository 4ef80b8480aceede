"""Learn to draw handwritten digits: a variational autoencoder on scikit-learn's digits, then a page of its drawings.

    python examples/vae.py           # half a minute on two cores
    python examples/vae.py --quick   # a short form, for checking that all is well

The encoder says where in a small space an image may lie, a point is drawn there (`loc + scale * noise`, so gradients
pass), and the decoder draws the image again. A whole training step, noise included, is one plan of fused kernels.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

import lazyt as lt
from lazyt import nn, optim
from lazyt.nn import functional as F

PIXELS, HIDDEN, LATENT = 64, 256, 8
SHADES = " .:-=+*#%@"


class VAE(nn.Module):
    """Images (N, 64) in [0, 1] -> logits of the images drawn again, and the mean and log variance of where they lie."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS))

    def forward(self, x: lt.Tensor) -> tuple[lt.Tensor, lt.Tensor, lt.Tensor]:
        mean, log_variance = lt.split(self.encoder(x), 2, axis=-1)
        z = mean + lt.exp(log_variance / 2) * lt.random.standard_normal(mean.shape)
        return self.decoder(z), mean, log_variance


def loss_of(model: VAE, x: lt.Tensor) -> tuple[lt.Tensor, lt.Tensor]:
    """What the drawing misses, and how far the points are from a standard normal: both in nats an image."""
    logits, mean, log_variance = model(x)
    missed = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.shape[0]
    far = -0.5 * lt.sum(1 + log_variance - mean**2 - lt.exp(log_variance)) / x.shape[0]
    return missed, far


def pictures(images: np.ndarray) -> str:
    """A row of images as text, two characters a pixel."""
    shades = np.array(list(SHADES))[np.clip(images * len(SHADES), 0, len(SHADES) - 1).astype(int)]
    rows = shades.reshape(-1, 8, 8).transpose(1, 0, 2)
    return "\n".join("  ".join("".join(c * 2 for c in image) for image in row) for row in rows)


def main() -> float:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--epochs", type=int, default=60)
    args.add_argument("--batch", type=int, default=64)
    args.add_argument("--quick", action="store_true", help="five epochs")
    options = args.parse_args()
    epochs = 5 if options.quick else options.epochs

    lt.random.seed(0)
    rng = np.random.default_rng(0)
    images = (load_digits(return_X_y=True)[0] / 16).astype(np.float32)
    train, test = images[:1500], images[1500:]
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    start = time.perf_counter()
    steps = plans = compiles = 0
    for epoch in range(1, epochs + 1):
        for part in np.array_split(rng.permutation(len(train)), range(options.batch, len(train), options.batch)):
            missed, far = loss_of(model, lt.asarray(train[part]))
            (missed + far).backward()
            optimizer.step()
            optimizer.zero_grad()
            lt.sync()
            report = lt.last_sync()
            steps, plans, compiles = steps + 1, plans + report.plans, compiles + report.compiles
        if epoch % max(epochs // 10, 1) == 0:
            with lt.no_grad():
                missed, far = (x.item() for x in loss_of(model, lt.asarray(test)))
            seconds = time.perf_counter() - start
            print(
                f"epoch {epoch:3}  unseen: {missed + far:.2f} nats/image ({missed:.2f} missed)  {seconds:5.1f} s",
                flush=True,
            )

    print(f"\n{steps} training steps, {plans} plans, {compiles} compiles. The last step:\n{report}")
    with lt.no_grad():
        again = lt.sigmoid(model(lt.asarray(test[:6]))[0]).numpy()
        drawn = lt.sigmoid(model.decoder(lt.random.standard_normal((6, LATENT)))).numpy()
    for what, found in (("Unseen digits", test[:6]), ("Drawn again", again), ("Drawn from nothing", drawn)):
        print(f"\n{what}:\n{pictures(found)}")
    return missed + far


if __name__ == "__main__":
    main()
