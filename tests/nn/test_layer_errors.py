"""What users get wrong: the error names the layer, what was given and what is required, at the user's line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

import lazyt as lt
from lazyt import nn

CALLS: list[tuple[Callable[[], Any], str]] = [
    (lambda: nn.Linear("3", 2), "Linear: in_features must be an integer, got '3'"),
    (lambda: nn.Linear(3, 2.5), r"Linear: out_features must be an integer, got 2\.5"),
    (lambda: nn.Linear(-3, 2), "Linear: in_features is an integer from 0 on, got -3"),
    (lambda: nn.Linear(3, 2, dtype="int32"), "dtype: parameters are floating or complex numbers, not int32"),
    (lambda: nn.LayerNorm(3, dtype="int32"), "dtype: parameters are floating or complex numbers, not int32"),
    (lambda: nn.Linear(3, 2, device="gpu"), "device 'gpu': no such device"),
    (lambda: nn.Linear(3, 2)(lt.ones((4, 5))), r"linear: .* got shapes \(4, 5\) and \(2, 3\)"),
    (lambda: nn.Conv2d(3, -8, 3), "Conv2d: out_channels is an integer from 0 on, got -8"),
    (lambda: nn.Conv2d(3, 8, (3, 3, 3)), r"Conv2d: kernel_size is one or 2 integers, at least 1, got \(3, 3, 3\)"),
    (lambda: nn.Embedding(True, 4), "Embedding: num_embeddings is an integer from 0 on, got True"),
    (lambda: nn.Embedding(3, 4)(lt.ones(2)), "embedding: integer indices are required, got float32"),
    (lambda: nn.BatchNorm1d(-1), "BatchNorm1d: num_features is an integer from 0 on, got -1"),
    (lambda: nn.BatchNorm2d(3)(lt.ones((2, 4, 5, 5))), r"BatchNorm2d: 3 channels are required, got shape \(2, 4, 5, 5"),
    (lambda: nn.BatchNorm2d(3)(lt.ones((2, 3))), r"BatchNorm2d: an input of 4 dimensions is required, got shape \(2,"),
    (lambda: nn.BatchNorm1d(3)(lt.ones(3)), r"BatchNorm1d: an input of 2 or 3 dimensions is required, got shape \(3,"),
    (lambda: nn.GroupNorm(2.0, 4), r"GroupNorm: num_groups must be an integer, got 2\.0"),
    (lambda: nn.Dropout("a"), r"Dropout: a probability in \[0, 1\] is required, got 'a'"),
    (lambda: nn.Dropout2d(1.5), r"Dropout2d: a probability in \[0, 1\] is required, got 1\.5"),
    (lambda: nn.PReLU(3)(lt.ones((2, 4))), r"prelu: one weight for all or one a channel .* \(2, 4\) and \(3,\)"),
    (lambda: nn.Flatten(2, 1)(lt.ones((2, 3, 4))), r"Flatten: start_dim 2 comes after end_dim 1 in \(2, 3, 4\)"),
    (lambda: nn.Unflatten(1, (2, 2))(lt.ones((2, 3))), r"Unflatten: \(2, 2\) has 4 elements where axis 1 of shape"),
    (lambda: nn.Unflatten(3, (2, 2))(lt.ones((2, 3))), r"Unflatten: dim 3 is out of range for shape \(2, 3\)"),
    (lambda: nn.Linear(2, 2).load_state_dict({"weight": "a", "bias": lt.ones(2)}),
     "load_state_dict of Linear: weight is a tensor or an array, got a str"),
    (lambda: lt.optim.Adam(nn.Linear(2, 2)), r"Adam: params is an iterable of tensors: pass model\.parameters\(\)"),
    (lambda: nn.utils.rnn.pack_padded_sequence(lt.ones((3, 2, 1)), [1, 3]), "lengths that do not rise are required"),
    (lambda: nn.LSTM(3, 4)(lt.ones((5, 2, 4))), r"LSTM: an input \(length, batch, 3\) or \(length, 3\) is required"),
    (lambda: nn.Sequential(nn.ReLU(), abs), "Sequential: child '1' is a Module or None, got a builtin_function"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "match"), CALLS, ids=[m[:40] for _, m in CALLS])
def test_errors_name_the_layer_and_end_at_the_users_line(call: Callable[[], Any], match: str) -> None:
    with pytest.raises(lt.LazytError, match=match) as error:
        call()
    assert traceback.extract_tb(error.value.__traceback__)[-1].filename == __file__
