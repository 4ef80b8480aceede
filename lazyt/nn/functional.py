"""Layers without state: `lazyt.functions.nn` and the activations that are array functions."""

from lazyt.functions import nn as _nn
from lazyt.functions.attention import multi_head_attention_forward
from lazyt.functions.creation import one_hot
from lazyt.functions.elementwise import relu, sigmoid, tanh
from lazyt.functions.nn import *
from lazyt.functions.statistics import log_softmax, softmax

__all__ = [*_nn.__all__, "log_softmax", "multi_head_attention_forward", "one_hot", "relu", "sigmoid", "softmax", "tanh"]


def __dir__() -> list[str]:
    return sorted(__all__)
