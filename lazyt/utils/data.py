"""PyTorch's place of `lazyt.data`: `from lazyt.utils.data import DataLoader`."""

from lazyt.data import *  # noqa: F403 - its names, under another
from lazyt.data import __all__ as __all__
