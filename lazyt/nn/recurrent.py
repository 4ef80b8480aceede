"""Recurrent layers and their cells: a loop over time whose every iteration is recorded.

The input's share of all iterations is one product before the loop; an iteration is the state's product and one kernel.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

from lazyt.errors import LazytWarning, NotSupportedError, ShapeError
from lazyt.functions import nn as functional
from lazyt.functions.arguments import record, record_many
from lazyt.functions.arithmetic import add
from lazyt.functions.creation import zeros
from lazyt.functions.indexing import take
from lazyt.functions.joining import concat, stack
from lazyt.functions.logic import where
from lazyt.functions.manipulation import expand_dims, squeeze, swapaxes, unstack
from lazyt.nn import init
from lazyt.nn.module import Module
from lazyt.nn.new_parameters import new_parameter
from lazyt.nn.utils.rnn import PackedSequence, packed_rows, padded_rows
from lazyt.ops.recurrent import GRU_TURN, LSTM_TURN, RNN_TURN, TIME_STEPS
from lazyt.tracing.autocast import autocasts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

State = tuple[Any, ...]


@autocasts("mkldnn_rnn_layer")
def _lstm_states(states: list[Any]) -> list[Any]:
    """The states that an LSTM begins with: in the lower precision in an autocast region on the CPU, as in PyTorch."""
    return states


def _draw(module: Module, hidden_size: int) -> None:
    """PyTorch's default: all parameters uniform within 1 / sqrt(hidden_size)."""
    bound = 1 / math.sqrt(hidden_size)
    for p in module.parameters():
        init.uniform_(p, -bound, bound)


# Each layer has parameters of its own, so more layers do not end.
MOST_LAYERS = 2**16


def _sizes(name: str, **sizes: int) -> None:
    for what, n in sizes.items():
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise ShapeError(f"{name}: {what} is a positive integer, got {n!r}")


def _nonlinearity(name: str, nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise NotSupportedError(f"{name}: nonlinearity is 'tanh' or 'relu', got {nonlinearity!r}")
    return nonlinearity


class RNNBase(Module):
    """What `RNN`, `LSTM` and `GRU` share: parameters, layers, directions and packed sequences."""

    gates = 1
    states = 1

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        _sizes(name, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if num_layers > MOST_LAYERS:
            raise ShapeError(f"{name}: num_layers is at most {MOST_LAYERS}, got {num_layers}")
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ShapeError(f"{name}: dropout is a probability in [0, 1], got {dropout!r}")
        if dropout and num_layers == 1:
            why = (
                f"{name}: dropout={dropout} does nothing, because it follows all layers but the last, and there is one"
            )
            warnings.warn(why, LazytWarning, stacklevel=3)
        if not 0 <= proj_size < hidden_size:
            raise ShapeError(f"{name}: 0 <= proj_size < hidden_size = {hidden_size} is required, got {proj_size}")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._names: list[list[str]] = []
        rows, out = self.gates * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            inputs = out * (1 + bidirectional) if layer else input_size
            for direction in range(1 + bidirectional):
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs), "weight_hh": (rows, out)}
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
                shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
                suffix = f"_l{layer}" + "_reverse" * direction
                self._names.append([what + suffix for what in shapes])
                for what, shape in shapes.items():
                    setattr(self, what + suffix, new_parameter(*shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        _draw(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Nothing: where parameters lie is the planner's. As `torch.nn.RNNBase.flatten_parameters`."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._names]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for what, usual in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0),
            ("bidirectional", False),
        ):  # fmt: skip
            value = getattr(self, what)
            text += f", {what}={value}" if value != usual else ""
        return text

    def forward(self, input: Any, hx: Any = None) -> Any:  # PyTorch's name
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        name, rank = type(self).__name__, len(input.shape)
        if rank not in (2, 3) or input.shape[-1] != self.input_size:
            first = "batch, length" if self.batch_first else "length, batch"
            raise ShapeError(
                f"{name}: an input ({first}, {self.input_size}) or (length, {self.input_size}) is required, got shape "
                f"{tuple(input.shape)}"
            )
        lone = rank == 2
        x = expand_dims(input, 1) if lone else swapaxes(input, 0, 1) if self.batch_first else input
        initial = self._initial(x, hx, lone)
        out, final = self._layers(x, initial if self.states == 1 else _lstm_states(initial), ())
        out = squeeze(out, 1) if lone else swapaxes(out, 0, 1) if self.batch_first else out
        return out, self._given_back([squeeze(s, 1) for s in final] if lone else final)

    def _given_back(self, final: Sequence[Any]) -> Any:
        return tuple(final) if self.states > 1 else final[0]

    def _packed(self, packed: PackedSequence, hx: Any) -> Any:
        name = type(self).__name__
        if len(packed.data.shape) != 2 or packed.data.shape[1] != self.input_size:
            raise ShapeError(
                f"{name}: packed data (rows, {self.input_size}) are required, got shape {tuple(packed.data.shape)}"
            )
        # NOTE: lengths are data: sequences of other lengths run the same plan, if the longest one and the batch are
        # as long as before.
        rows, shown = padded_rows(packed)
        x = take(packed.data, rows, axis=0)
        initial = self._initial(x, hx, False)
        if packed.sorted_indices is not None and hx is not None:
            initial = [take(s, packed.sorted_indices, axis=1) for s in initial]
        initial = initial if self.states == 1 else _lstm_states(initial)
        out, final = self._layers(x, initial, record_many(TIME_STEPS, (shown,), (shown.shape[0],)))
        if packed.unsorted_indices is not None:
            final = [take(s, packed.unsorted_indices, axis=1) for s in final]
        return packed._replace(data=packed_rows(out, packed)), self._given_back(final)

    def _initial(self, x: Any, hx: Any, lone: bool) -> list[Any]:
        """The states to begin with, (layers * directions, N, features) each; zeros where there are none."""
        name = type(self).__name__
        count, n = self.num_layers * (1 + self.bidirectional), x.shape[1]
        widths = [self.proj_size or self.hidden_size, self.hidden_size][: self.states]
        if hx is None:
            return [zeros((count, n, width), dtype=x.dtype, device=x.device) for width in widths]
        given = (hx,) if self.states == 1 else tuple(hx)
        if len(given) != self.states:
            raise ShapeError(f"{name}: hx is a pair (h_0, c_0), got {len(given)} arrays")
        for s, width in zip(given, widths, strict=True):
            required = (count, width) if lone else (count, n, width)
            if tuple(s.shape) != required:
                raise ShapeError(f"{name}: an initial state of shape {required} is required, got {tuple(s.shape)}")
        return [expand_dims(s, 1) for s in given] if lone else list(given)

    def _layers(self, x: Any, initial: Sequence[Any], shown: Sequence[Any]) -> tuple[Any, list[Any]]:
        """All layers over x (length, N, features): the last one's outputs, and the final state of each."""
        if not x.shape[0]:
            raise ShapeError(f"{type(self).__name__}: a sequence has at least one step, got shape {tuple(x.shape)}")
        states = list(zip(*(unstack(s) for s in initial), strict=True))
        final: list[State] = []
        for layer in range(self.num_layers):
            outs = []
            for direction in range(1 + self.bidirectional):
                suffix = f"_l{layer}" + "_reverse" * direction
                out, state = self._direction(x, states[len(final)], suffix, shown)
                outs.append(out)
                final.append(state)
            x = outs[0] if len(outs) == 1 else concat(outs, axis=-1)
            if self.dropout and layer < self.num_layers - 1:
                x = functional.dropout(x, self.dropout, self.training)
        return x, [stack(parts) for parts in zip(*final, strict=True)]

    def _direction(self, x: Any, state: State, suffix: str, shown: Sequence[Any]) -> tuple[Any, State]:
        """One layer in one direction, over x (length, N, features)."""
        length = x.shape[0]
        times = range(length)[:: -1 if suffix.endswith("_reverse") else 1]
        shares = record_many(TIME_STEPS, (self._shares(x, suffix),), (length,)) if length > 1 else None
        outs: list[Any] = [None] * length
        for t in times:
            share = squeeze(self._shares(x, suffix), 0) if shares is None else shares[t]
            state = self._step(share, state, suffix, (shown[t],) if shown else ())
            outs[t] = state[0]
        return stack(outs), state

    def _shares(self, x: Any, suffix: str) -> Any:
        """What the input adds to the gates of every iteration, with both biases, as one product."""
        w = getattr(self, "weight_ih" + suffix)
        if not self.bias:
            return functional.linear(x, w)
        return functional.linear(x, w, add(getattr(self, "bias_ih" + suffix), getattr(self, "bias_hh" + suffix)))

    def _step(self, share: Any, state: State, suffix: str, shown: State) -> State:
        """The next state, from the input's share and the last state, which is kept where `shown` is False."""
        raise NotSupportedError(f"{type(self).__name__}: not supported: a recurrent layer without a `_step` of its own")


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it, at every step. As `torch.nn.RNN`.

    Input (length, batch, input_size), (batch, length, input_size) if `batch_first`, (length, input_size), or a
    `PackedSequence`, and h_0 of (layers * directions, batch, hidden_size), else zeros. Returns the outputs of the last
    layer, (length, batch, directions * hidden_size), and the final states. Raises ShapeError if the shapes do not fit.

    >>> import lazyt as lt
    >>> out, h = lt.nn.RNN(3, 4, num_layers=2, bidirectional=True)(lt.ones((5, 2, 3)))
    >>> out.shape, h.shape
    ((5, 2, 8), (4, 2, 4))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        mode = f"RNN_{_nonlinearity('RNN', nonlinearity).upper()}"
        super().__init__(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         device=device, dtype=dtype)  # fmt: skip
        self.nonlinearity = nonlinearity

    def _step(self, share: Any, state: State, suffix: str, shown: State) -> State:
        (h,) = state
        more = functional.linear(h, getattr(self, "weight_hh" + suffix))
        return (record(RNN_TURN, (share, more, h, *shown), (self.nonlinearity,)),)


class LSTM(RNNBase):
    """Long short-term memory over sequences; with `proj_size`, h is a projection of that size. As `torch.nn.LSTM`.

    Input (length, batch, input_size), (batch, length, input_size) if `batch_first`, (length, input_size), or a
    `PackedSequence`, and (h_0, c_0) of (layers * directions, batch, hidden_size), else zeros. Returns the outputs of
    the last layer, (length, batch, directions * hidden_size), and the final (h_n, c_n). Raises ShapeError if the shapes
    do not fit.

    >>> import lazyt as lt
    >>> out, (h, c) = lt.nn.LSTM(3, 4, batch_first=True, proj_size=2)(lt.ones((2, 5, 3)))
    >>> out.shape, h.shape, c.shape
    ((2, 5, 2), (1, 2, 2), (1, 2, 4))
    """

    gates, states = 4, 2

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         proj_size, device=device, dtype=dtype)  # fmt: skip

    def _step(self, share: Any, state: State, suffix: str, shown: State) -> State:
        h, c = state
        more = functional.linear(h, getattr(self, "weight_hh" + suffix))
        if not self.proj_size:
            return record_many(LSTM_TURN, (share, more, c, *((h, *shown) if shown else ())))
        whole, new = record_many(LSTM_TURN, (share, more, c))
        y = functional.linear(whole, getattr(self, "weight_hr" + suffix))
        if shown:
            there = expand_dims(shown[0], 1)
            y, new = where(there, y, h), where(there, new, c)
        return y, new


class GRU(RNNBase):
    """Gated recurrent units over sequences. As `torch.nn.GRU`.

    Input (length, batch, input_size), (batch, length, input_size) if `batch_first`, (length, input_size), or a
    `PackedSequence`, and h_0 of (layers * directions, batch, hidden_size), else zeros. Returns the outputs of the last
    layer, (length, batch, directions * hidden_size), and the final states. Raises ShapeError if the shapes do not fit.

    >>> import lazyt as lt
    >>> out, h = lt.nn.GRU(3, 4)(lt.ones((5, 3)))
    >>> out.shape, h.shape
    ((5, 4), (1, 4))
    """

    gates = 3

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         device=device, dtype=dtype)  # fmt: skip

    def _shares(self, x: Any, suffix: str) -> Any:
        return functional.linear(x, getattr(self, "weight_ih" + suffix), getattr(self, "bias_ih" + suffix, None))

    def _step(self, share: Any, state: State, suffix: str, shown: State) -> State:
        (h,) = state
        more = functional.linear(h, getattr(self, "weight_hh" + suffix), getattr(self, "bias_hh" + suffix, None))
        return (record(GRU_TURN, (share, more, h, *shown)),)


class RNNCellBase(Module):
    """What `RNNCell`, `LSTMCell` and `GRUCell` share."""

    states = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        num_chunks: int = 1,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _sizes(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih = new_parameter(rows, input_size, device=device, dtype=dtype)
        self.weight_hh = new_parameter(rows, hidden_size, device=device, dtype=dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, new_parameter(rows, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        _draw(self, self.hidden_size)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")

    def _operands(self, x: Any, hx: Any) -> tuple[list[Any], bool]:
        """The input's and the state's share, and the states, of (N, features); whether there was no batch."""
        name, lone = type(self).__name__, len(x.shape) == 1
        if len(x.shape) not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{name}: an input (N, {self.input_size}) or ({self.input_size},) is required, got shape "
                f"{tuple(x.shape)}"
            )
        required = (*x.shape[:-1], self.hidden_size)
        if hx is None:
            states = [zeros(required, dtype=x.dtype, device=x.device)] * self.states
        else:
            states = [hx] if self.states == 1 else list(hx)
        if len(states) != self.states:
            raise ShapeError(f"{name}: hx is a pair (h_0, c_0), got {len(states)} arrays")
        for s in states:
            if tuple(s.shape) != required:
                raise ShapeError(f"{name}: a state of shape {required} is required, got {tuple(s.shape)}")
        if lone:
            x, states = expand_dims(x, 0), [expand_dims(s, 0) for s in states]
        share = functional.linear(x, self.weight_ih, self.bias_ih)
        return [share, functional.linear(states[0], self.weight_hh, self.bias_hh), *states], lone


class RNNCell(RNNCellBase):
    """One step of `RNN`: input (N, input_size) and h (N, hidden_size), else zeros, give the next h.

    Without a batch the shapes are (input_size,) and (hidden_size,). Raises ShapeError for others. As
    `torch.nn.RNNCell`.

    >>> import lazyt as lt
    >>> lt.nn.RNNCell(3, 4, nonlinearity="relu")(lt.ones((2, 3))).shape
    (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device=device, dtype=dtype)
        self.nonlinearity = _nonlinearity("RNNCell", nonlinearity)

    def forward(self, input: Any, hx: Any = None) -> Any:
        operands, lone = self._operands(input, hx)
        h = record(RNN_TURN, tuple(operands), (self.nonlinearity,))
        return squeeze(h, 0) if lone else h

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}")


class LSTMCell(RNNCellBase):
    """One step of `LSTM`: input (N, input_size) and (h, c) of (N, hidden_size), else zeros, give the next (h, c).

    Without a batch the shapes are (input_size,) and (hidden_size,). Raises ShapeError for others. As
    `torch.nn.LSTMCell`.

    >>> import lazyt as lt
    >>> h, c = lt.nn.LSTMCell(3, 4)(lt.ones((2, 3)))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    states = 2

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device=device, dtype=dtype)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        (share, more, _, c), lone = self._operands(input, hx)
        h, c = record_many(LSTM_TURN, (share, more, c))
        return (squeeze(h, 0), squeeze(c, 0)) if lone else (h, c)


class GRUCell(RNNCellBase):
    """One step of `GRU`: input (N, input_size) and h (N, hidden_size), else zeros, give the next h.

    Without a batch the shapes are (input_size,) and (hidden_size,). Raises ShapeError for others. As
    `torch.nn.GRUCell`.

    >>> import lazyt as lt
    >>> lt.nn.GRUCell(3, 4)(lt.ones((2, 3))).shape
    (2, 4)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device=device, dtype=dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        operands, lone = self._operands(input, hx)
        h = record(GRU_TURN, tuple(operands))
        return squeeze(h, 0) if lone else h
