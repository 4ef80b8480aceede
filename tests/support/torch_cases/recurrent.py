"""Recurrent layers: layers, directions, biases, initial states, inputs without a batch."""

from typing import Any

from tests.support.torch_golden import Case


def layer(kind: str, **options: Any) -> Any:
    return lambda t: getattr(t.nn, kind)(3, 4, **options)


def with_state(kind: str, **options: Any) -> Any:
    """The layer takes (x, h) or (x, h, c)."""

    def build(t: Any) -> Any:
        class WithState(t.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layer = getattr(t.nn, kind)(3, 4, **options)

            def forward(self, x: Any, *states: Any) -> Any:
                return self.layer(x, states if len(states) > 1 else states[0])

        return WithState()

    return build


X, FEW = (5, 2, 3), 0
CASES = [
    Case("rnn", layer("RNN"), (X,)),
    Case("rnn relu", layer("RNN", nonlinearity="relu", num_layers=2), (X,), steps=FEW),
    Case("rnn both ways", layer("RNN", bidirectional=True, bias=False), (X,), steps=FEW),
    Case("lstm", layer("LSTM"), (X,)),
    Case("lstm batch first", layer("LSTM", batch_first=True), ((2, 5, 3),), steps=FEW),
    Case("lstm without batch", layer("LSTM", num_layers=2), ((5, 3),), steps=FEW),
    Case("lstm without bias", layer("LSTM", bias=False), (X,), steps=FEW),
    Case("lstm deep both ways", layer("LSTM", num_layers=2, bidirectional=True), (X,), steps=FEW),
    Case("lstm projected", layer("LSTM", proj_size=2, num_layers=2, bidirectional=True), (X,), steps=FEW),
    Case("lstm one step", layer("LSTM"), ((1, 2, 3),), steps=FEW),
    Case("lstm states", with_state("LSTM"), (X, (1, 2, 4), (1, 2, 4)), steps=FEW),
    Case("lstm projected states", with_state("LSTM", proj_size=2), (X, (1, 2, 2), (1, 2, 4)), steps=FEW),
    Case("lstm states without batch", with_state("LSTM"), ((5, 3), (1, 4), (1, 4)), steps=FEW),
    Case("gru", layer("GRU"), (X,)),
    Case("gru deep both ways", layer("GRU", num_layers=2, bidirectional=True, batch_first=True), (X,), steps=FEW),
    Case("gru without bias", layer("GRU", bias=False), (X,), steps=FEW),
    Case("gru state", with_state("GRU"), (X, (1, 2, 4)), steps=FEW),
    Case("rnn state without batch", with_state("RNN"), ((5, 3), (1, 4)), steps=FEW),
]
