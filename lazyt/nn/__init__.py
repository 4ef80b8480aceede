"""Neural networks: modules, their initial values, and the functions they are made of. Names as in `torch.nn`."""

from lazyt.nn import activations, containers, functional, init, layers, losses, norms, utils
from lazyt.nn.activations import *
from lazyt.nn.attention import MultiheadAttention
from lazyt.nn.containers import *
from lazyt.nn.layers import *
from lazyt.nn.losses import *
from lazyt.nn.module import Module, Parameter
from lazyt.nn.norms import *

MultiHeadAttention = MultiheadAttention

__all__ = [
    *activations.__all__,
    *containers.__all__,
    *layers.__all__,
    *losses.__all__,
    *norms.__all__,
    "Module",
    "MultiHeadAttention",
    "MultiheadAttention",
    "Parameter",
    "functional",
    "init",
    "utils",
]


def __dir__() -> list[str]:
    return sorted(__all__)
