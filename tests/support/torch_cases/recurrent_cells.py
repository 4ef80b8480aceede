"""Single steps of recurrent layers, and a loop over one, as users write it."""

from typing import Any

from tests.support.torch_cases.recurrent import FEW, layer, with_state
from tests.support.torch_golden import Case


def _loop(t: Any) -> Any:
    class Loop(t.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cell = t.nn.LSTMCell(3, 4)

        def forward(self, x: Any) -> Any:
            state, outs = None, []
            for k in range(x.shape[0]):
                state = self.cell(x[k], state)
                outs.append(state[0])
            return t.stack(outs), state

    return Loop()


CASES = [
    Case("rnn cell", layer("RNNCell"), ((2, 3),), steps=FEW),
    Case("rnn cell relu", layer("RNNCell", nonlinearity="relu", bias=False), ((2, 3), (2, 4)), steps=FEW),
    Case("lstm cell", layer("LSTMCell"), ((2, 3),), steps=FEW),
    Case("lstm cell states", with_state("LSTMCell", bias=False), ((2, 3), (2, 4), (2, 4)), steps=FEW),
    Case("lstm cell without batch", layer("LSTMCell"), ((3,),), steps=FEW),
    Case("gru cell", layer("GRUCell"), ((2, 3), (2, 4)), steps=FEW),
    Case("gru cell without batch", layer("GRUCell", bias=False), ((3,), (4,)), steps=FEW),
    Case("lstm cell loop", _loop, ((6, 2, 3),), steps=FEW),
]
