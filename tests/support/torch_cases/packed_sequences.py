"""Sequences of several lengths: packed, padded, and what recurrent layers make of them."""

from typing import Any

from tests.support.torch_golden import Case


def _packed(kind: str, lengths: list[int], **options: Any) -> Any:
    """A layer over a packed batch: its outputs padded again, and its final states."""
    sort = options.pop("enforce_sorted", False)

    def build(t: Any) -> Any:
        class Packed(t.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layer = getattr(t.nn, kind)(3, 4, **options)

            def forward(self, x: Any, *states: Any) -> Any:
                rnn, first = t.nn.utils.rnn, options.get("batch_first", False)
                packed = rnn.pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=sort)
                hx = None if not states else states if len(states) > 1 else states[0]
                out, final = self.layer(packed, hx)
                return out, rnn.pad_packed_sequence(out, batch_first=first), final

        return Packed()

    return build


def _rnn(f: Any) -> Any:
    return lambda t: lambda *xs: f(t.nn.utils.rnn, *xs)


def _there_and_back(rnn: Any, x: Any) -> Any:
    packed = rnn.pack_padded_sequence(x, [2, 4, 1], batch_first=True, enforce_sorted=False)
    return packed, rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=6)


X, FEW, SEVERAL = (5, 3, 3), 0, ((3, 2), (2, 2), (1, 2))
CASES = [
    Case("packed rnn", _packed("RNN", [3, 5, 2]), (X,), steps=FEW),
    Case("packed lstm sorted", _packed("LSTM", [5, 3, 1], enforce_sorted=True), (X,), steps=FEW),
    Case("packed lstm states", _packed("LSTM", [3, 5, 2]), (X, (1, 3, 4), (1, 3, 4)), steps=FEW),
    Case("packed lstm projected", _packed("LSTM", [2, 5, 3], proj_size=2, bidirectional=True), (X,), steps=FEW),
    Case("packed lstm deep", _packed("LSTM", [3, 4, 5], num_layers=2, bidirectional=True, batch_first=True),
         ((3, 5, 3),), steps=FEW),
    Case("packed gru", _packed("GRU", [1, 4, 4], bidirectional=True), (X, (2, 3, 4)), steps=FEW),
    Case("pack_padded_sequence", _rnn(lambda rnn, x: rnn.pack_padded_sequence(x, [4, 2, 1])), ((4, 3, 2),)),
    Case("there and back", _rnn(_there_and_back), ((3, 4, 2),)),
    Case("pack_sequence", _rnn(lambda rnn, *xs: rnn.pack_sequence(xs)), SEVERAL),
    Case("pack_sequence unsorted", _rnn(lambda rnn, *xs: rnn.pack_sequence(xs, enforce_sorted=False)), SEVERAL[::-1]),
    Case("pad_sequence", _rnn(lambda rnn, *xs: rnn.pad_sequence(xs, padding_value=2.0)), SEVERAL[::-1]),
    Case("pad_sequence left", _rnn(lambda rnn, *xs: rnn.pad_sequence(xs, batch_first=True, padding_side="left")),
         SEVERAL),
    Case("unpad_sequence", lambda t: lambda x: t.nn.utils.rnn.unpad_sequence(x * 1.0, t.tensor([2, 3])), ((3, 2, 2),)),
    Case("unpack_sequence", _rnn(lambda rnn, *xs: rnn.unpack_sequence(rnn.pack_sequence(xs))), SEVERAL),
]  # fmt: skip
