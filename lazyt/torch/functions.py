"""PyTorch's functions that lazyt spells otherwise, with PyTorch's arguments, defaults and results."""

from lazyt.torch import creation, elements, reductions, shapes
from lazyt.torch.creation import *
from lazyt.torch.elements import *
from lazyt.torch.reductions import *
from lazyt.torch.shapes import *

__all__ = [*creation.__all__, *elements.__all__, *reductions.__all__, *shapes.__all__]
