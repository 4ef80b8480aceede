"""Layers without state: `lazyt.functions.nn` and the activations that are array functions."""

from lazyt.functions import nn as _nn
from lazyt.functions.attention import multi_head_attention_forward
from lazyt.functions.creation import one_hot
from lazyt.functions.elementwise import sigmoid, tanh
from lazyt.functions.nn import *

__all__ = [*_nn.__all__, "multi_head_attention_forward", "one_hot", "sigmoid", "tanh"]


def __dir__() -> list[str]:
    return sorted(__all__)
