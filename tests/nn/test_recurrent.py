"""Recurrent layers: errors, plans, initialisation, gradients twice; what they compute is in test_torch_golden.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import DTypeError, LazytWarning, NotSupportedError, ShapeError
from lazyt.nn.utils import rnn

RNG = np.random.default_rng(0)


def _drawn(*shape: int) -> Any:
    return lt.asarray(RNG.standard_normal(shape).astype("f4"))


def test_parameters_have_pytorch_s_names_and_range() -> None:
    m = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2)
    names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"]
    assert list(m.state_dict()) == [f"{n}_l{k}{s}" for k in (0, 1) for s in ("", "_reverse") for n in names]
    assert m.weight_ih_l1_reverse.shape == (16, 4) and m.weight_hh_l0.shape == (16, 2)
    assert [len(ws) for ws in m.all_weights] == [5] * 4
    assert all(float(lt.abs(p).max()) <= 0.5 for p in m.parameters())
    assert repr(m) == "LSTM(3, 4, proj_size=2, num_layers=2, bidirectional=True)"
    assert repr(nn.GRUCell(3, 4, bias=False)) == "GRUCell(3, 4, bias=False)"
    m.flatten_parameters()


BAD = {
    "input": (lambda: nn.LSTM(3, 4)(_drawn(5, 2, 2)), r"LSTM: an input \(length, batch, 3\).*got shape \(5, 2, 2\)"),
    "batch first": (lambda: nn.GRU(3, 4, batch_first=True)(_drawn(3)), r"GRU: an input \(batch, length, 3\)"),
    "state": (lambda: nn.RNN(3, 4)(_drawn(5, 2, 3), _drawn(1, 3, 4)), r"RNN: an initial state of shape \(1, 2, 4\)"),
    "pair": (lambda: nn.LSTM(3, 4)(_drawn(5, 2, 3), (_drawn(1, 2, 4),)), r"LSTM: hx is a pair .* got 1 arrays"),
    "empty": (lambda: nn.LSTM(3, 4)(_drawn(0, 2, 3)), "LSTM: a sequence has at least one step"),
    "packed": (lambda: nn.LSTM(3, 4)(rnn.pack_sequence([_drawn(2, 5)])), r"LSTM: packed data \(rows, 3\)"),
    "cell": (lambda: nn.LSTMCell(3, 4)(_drawn(2, 4)), r"LSTMCell: an input \(N, 3\) or \(3,\) is required"),
    "cell state": (lambda: nn.RNNCell(3, 4)(_drawn(2, 3), _drawn(2, 3)), r"RNNCell: a state of shape \(2, 4\)"),
    "cell pair": (lambda: nn.LSTMCell(3, 4)(_drawn(2, 3), [_drawn(2, 4)]), "LSTMCell: hx is a pair"),
    "size": (lambda: nn.GRU(3, 0), "GRU: hidden_size is a positive integer, got 0"),
    "projection": (lambda: nn.LSTM(3, 4, proj_size=4), "LSTM: 0 <= proj_size < hidden_size = 4 is required, got 4"),
    "dropout": (lambda: nn.RNN(3, 4, dropout=1.5), r"RNN: dropout is a probability in \[0, 1\], got 1.5"),
    "rising": (lambda: rnn.pack_padded_sequence(_drawn(3, 2), [1, 3]), r"lengths that do not rise .* got \[1, 3\]"),
    "no step": (lambda: rnn.pack_padded_sequence(_drawn(3, 2), [2, 0]), r"lengths between 1 and 3 .* got \[2, 0\]"),
    "too long": (lambda: rnn.pack_padded_sequence(_drawn(3, 2), [4, 1]), "lengths between 1 and 3"),
    "lengths": (lambda: rnn.pack_padded_sequence(_drawn(3, 2), [2]), "2 lengths are required, one a sequence, got 1"),
    "vector": (lambda: rnn.pack_padded_sequence(_drawn(3), [3]), r"an input \(length, N, ...\) is required"),
    "total": (lambda: rnn.pad_packed_sequence(rnn.pack_sequence([_drawn(3)]), total_length=2),
              "total_length is at least the longest sequence's 3, got 2"),
    "shapes": (lambda: rnn.pad_sequence([_drawn(3, 2), _drawn(3)]), r"pad_sequence: sequences .* got shapes"),
    "side": (lambda: rnn.pad_sequence([_drawn(3)], padding_side="up"), "padding_side is 'left' or 'right', got 'up'"),
    "unpad": (lambda: rnn.unpad_sequence(_drawn(3), [3]), "unpad_sequence: a batch"),
    "sizes": (lambda: rnn.pad_packed_sequence(rnn.PackedSequence(_drawn(3), lt.asarray([1, 1]))),
              r"PackedSequence: batch sizes .* add up to 3 rows are required, got \[1, 1\]"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ShapeError, match=message):
        call()


def test_other_bad_arguments() -> None:
    with pytest.raises(NotSupportedError, match="RNN: nonlinearity is 'tanh' or 'relu', got 'sigmoid'"):
        nn.RNN(3, 4, nonlinearity="sigmoid")
    with pytest.raises(NotSupportedError, match="RNNCell: nonlinearity is"):
        nn.RNNCell(3, 4, nonlinearity="sigmoid")
    with pytest.raises(DTypeError, match="lengths are a list of integers, got float64"):
        rnn.pack_padded_sequence(_drawn(3, 2), [1.0, 2.0])
    with pytest.warns(LazytWarning, match=r"GRU: dropout=0.5 does nothing"):
        nn.GRU(3, 4, dropout=0.5)


def test_dropout_stands_between_layers() -> None:
    m = nn.GRU(3, 4, num_layers=2, dropout=1.0)
    x = _drawn(5, 2, 3)
    out, _ = m(x)
    # The second layer sees zeros, so all of a batch are equal.
    np.testing.assert_array_equal(out[:, 0].detach().numpy(), out[:, 1].detach().numpy())
    m.eval()
    assert not np.array_equal(*(m(x)[0][:, k].detach().numpy() for k in (0, 1)))


def test_a_packed_sequence_moves_and_changes_its_dtype() -> None:
    packed = rnn.pack_sequence([_drawn(1), _drawn(2)], enforce_sorted=False)
    assert packed.double().data.dtype == lt.float64 and packed.double().float().data.dtype == lt.float32
    assert packed.to("cpu").unsorted_indices.tolist() == [1, 0]
    again = rnn.PackedSequence(packed.data, packed.batch_sizes, packed.sorted_indices)
    assert again.unsorted_indices.tolist() == [1, 0]


def test_nothing_syncs_and_other_batches_and_lengths_make_no_plan() -> None:
    m = nn.LSTM(3, 4, bidirectional=True)

    def step(n: int, lengths: list[int]) -> int:
        x = _drawn(4, n, 3)
        lt.sync()
        with lt.no_sync():
            packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            out, (h, _) = m(packed)
            padded, _ = rnn.pad_packed_sequence(out)
            (padded.sum() + h.sum()).backward()
        lt.sync()
        plans = lt.last_sync().plans
        m.zero_grad()
        return plans

    step(2, [4, 2])
    step(2, [3, 4])
    assert step(2, [1, 4]) == 0
    step(3, [4, 2, 1])
    assert step(4, [4, 2, 1, 3]) == 0


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_second_derivatives(kind: str) -> None:
    """The gradient of a gradient's sum of squares, by central differences."""
    m = getattr(nn, kind)(2, 3, dtype=lt.float64).requires_grad_(False)
    x, direction = RNG.standard_normal((2, 3, 2, 2))

    def squared(at: Any) -> Any:
        d = lt.grad(lambda z: (m(z)[0] ** 2).sum())(at)
        return (d * d).sum()

    second = lt.grad(squared)(lt.asarray(x)).detach().numpy()
    e = 1e-5
    ends = [squared(lt.asarray(x + s * e * direction)).item() for s in (1, -1)]
    np.testing.assert_allclose((second * direction).sum(), (ends[0] - ends[1]) / (2 * e), rtol=1e-6)


def test_halves() -> None:
    m = nn.LSTM(3, 4, dtype=lt.float16)
    x = _drawn(4, 2, 3).astype(lt.float16)
    out, (h, c) = m(x)
    assert {out.dtype, h.dtype, c.dtype} == {np.dtype("float16")}
    wide = nn.LSTM(3, 4)
    wide.load_state_dict({k: v.astype(lt.float32) for k, v in m.state_dict().items()})
    want = wide(x.astype(lt.float32))[0].detach().numpy()
    np.testing.assert_allclose(out.detach().numpy(), want, atol=2e-3)
