"""Neural networks: modules, their initial values, and the functions they are made of. Names as in `torch.nn`."""

from lazyt.functions.protocols.signatures import boundary_of as _boundary_of
from lazyt.nn import (
    activations,
    batch_norms,
    containers,
    convolutions,
    distances,
    dropout,
    embedding,
    fractional_pooling,
    functional,
    hooks,
    init,
    lazy_layers,
    linear,
    losses,
    margin_losses,
    norms,
    output_losses,
    padding,
    parameter_containers,
    pooling,
    recurrent,
    resampling,
    shapes,
    shrinking,
    shuffling,
    transformer,
    uninitialized,
    utils,
)
from lazyt.nn.activations import *
from lazyt.nn.attention import MultiheadAttention
from lazyt.nn.batch_norms import *
from lazyt.nn.containers import *
from lazyt.nn.convolutions import *
from lazyt.nn.distances import *
from lazyt.nn.dropout import *
from lazyt.nn.embedding import *
from lazyt.nn.fractional_pooling import *
from lazyt.nn.hooks import *
from lazyt.nn.lazy_layers import *
from lazyt.nn.linear import *
from lazyt.nn.losses import *
from lazyt.nn.margin_losses import *
from lazyt.nn.module import Module
from lazyt.nn.norms import *
from lazyt.nn.output_losses import *
from lazyt.nn.padding import *
from lazyt.nn.parameter import Buffer, Parameter
from lazyt.nn.parameter_containers import *
from lazyt.nn.pooling import *
from lazyt.nn.recurrent import *
from lazyt.nn.resampling import *
from lazyt.nn.shapes import *
from lazyt.nn.shrinking import *
from lazyt.nn.shuffling import *
from lazyt.nn.transformer import *
from lazyt.nn.uninitialized import *
from lazyt.tracing import tracebacks as _tracebacks

__all__ = [
    *activations.__all__,
    *containers.__all__,
    *convolutions.__all__,
    *distances.__all__,
    *dropout.__all__,
    *embedding.__all__,
    *hooks.__all__,
    *lazy_layers.__all__,
    *linear.__all__,
    *uninitialized.__all__,
    *losses.__all__,
    *margin_losses.__all__,
    *norms.__all__,
    *output_losses.__all__,
    *parameter_containers.__all__,
    *pooling.__all__,
    *shapes.__all__,
    *shrinking.__all__,
    "Buffer",
    *padding.__all__,
    *batch_norms.__all__,
    *resampling.__all__,
    *shuffling.__all__,
    *fractional_pooling.__all__,
    *shapes.__all__,
    *recurrent.__all__,
    *transformer.__all__,
    "Module",
    "MultiheadAttention",
    "Parameter",
    "functional",
    "init",
    "utils",
]

for _space in (
    functional, init, utils, utils.parametrizations, utils.parametrize, utils.rnn, utils.stateless,
):  # fmt: skip
    _tracebacks.guard_functions(vars(_space), _space.__all__, _boundary_of)
# NOTE: the uninitialized ones are tensors, whose methods are guarded where they are, but for the quickest.
_tracebacks.guard_classes(globals(), sorted({*__all__} - {*uninitialized.__all__}))


@_tracebacks.api_boundary
def __getattr__(name: str) -> object:
    if name == "MultiHeadAttention":
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}: it is spelled MultiheadAttention, as in PyTorch"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
