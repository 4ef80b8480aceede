"""A training in mixed precision that is saved in the middle and loaded into fresh objects goes on bit for bit."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyt as lt

F = lt.nn.functional
X = np.random.default_rng(0).normal(size=(4, 8, 3)).astype(np.float32)
X[1, 0, 0] = 1e30  # overflows float16: that step is skipped
MAKE: dict[str, Callable[[Any], Any]] = {
    "adam": lambda params: lt.optim.Adam(params, lr=0.03),
    "momentum": lambda params: lt.optim.SGD(params, lr=0.1, momentum=0.9),
}


class Levels:
    """A model and an optimizer that `initialize` prepared."""

    def __init__(self, level: str, make: Callable[[Any], Any], seed: int, **options: Any) -> None:
        lt.random.seed(seed)
        model = lt.nn.Sequential(lt.nn.Linear(3, 4), lt.nn.BatchNorm1d(4), lt.nn.Tanh(), lt.nn.Linear(4, 2))
        self.model, self.opt = lt.amp.initialize(model, make(model.parameters()), opt_level=level, **options)

    def step(self, x: np.ndarray) -> None:
        loss = F.mse_loss(self.model(lt.asarray(x)), lt.ones((8, 2)))
        self.opt.zero_grad()
        with lt.amp.scale_loss(loss, self.opt) as scaled:
            scaled.backward()
        self.opt.step()

    def parts(self) -> list[Any]:
        return [self.model, self.opt, *lt.amp.loss_scalers(self.opt)]


class Scaled(Levels):
    """An autocast region and a GradScaler."""

    def __init__(self, dtype: str, make: Callable[[Any], Any], seed: int) -> None:
        super().__init__("O0", make, seed)
        self.dtype, self.scaler = dtype, lt.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)

    def step(self, x: np.ndarray) -> None:
        with lt.autocast("cpu", dtype=self.dtype):
            loss = F.mse_loss(self.model(lt.asarray(x)), lt.ones((8, 2)))
        self.opt.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.opt)
        lt.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.opt)
        self.scaler.update()

    def parts(self) -> list[Any]:
        return [*super().parts(), self.scaler]


WAYS: dict[str, Callable[[Callable[[Any], Any], int], Levels]] = {
    "O1": lambda make, seed: Levels("O1", make, seed, loss_scale=None),
    "O2": lambda make, seed: Levels("O2", make, seed),
    "O2 bfloat16": lambda make, seed: Levels("O2", make, seed, cast_model_type="bfloat16", keep_batchnorm_fp32=False),
    "O3": lambda make, seed: Levels("O3", make, seed, loss_scale=128.0),
    "scaler": lambda make, seed: Scaled("float16", make, seed),
}


def bits(training: Levels) -> list[bytes]:
    values = [*training.model.state_dict().values(), *lt.amp.master_params(training.opt)]
    states = [s[k] for s in training.opt.state_dict()["state"].values() for k in sorted(s)]
    scales = [s.state_dict() for s in training.parts()[2:]]
    return [np.asarray(getattr(v, "detach", lambda v=v: v)()).astype("float32").tobytes() for v in values + states] + [
        repr(s).encode() for s in scales
    ]


@pytest.mark.parametrize(
    ("way", "optimizer"),
    [
        ("O2", "adam"),
        ("scaler", "adam"),
        *(pytest.param(way, "momentum", marks=pytest.mark.slow) for way in ("O1", "O2 bfloat16", "O3")),
    ],
)
def test_training_goes_on_bit_for_bit(way: str, optimizer: str) -> None:
    make = MAKE[optimizer]
    first = WAYS[way](make, 0)
    for x in X[:2]:
        first.step(x)
    saved = pickle.dumps([part.state_dict() for part in first.parts()])
    for x in X[2:]:
        first.step(x)
    second = WAYS[way](make, 1)  # of other weights
    second.step(X[0])
    # In another order than they were saved in: the optimizer before the model.
    for part, state in reversed(list(zip(second.parts(), pickle.loads(saved), strict=True))):
        part.load_state_dict(state)
    for x in X[2:]:
        second.step(x)
    assert bits(second) == bits(first)


def test_what_is_saved_has_the_float32_copies() -> None:
    training = WAYS["O2"](MAKE["momentum"], 0)
    training.step(X[0])
    found = training.opt.state_dict()
    assert list(found) == ["state", "param_groups", "master_weights"]
    # The parameters of the batch normalization are float32, and have none.
    assert list(found["master_weights"]) == [0, 1, 4, 5]
    assert {x.dtype for x in found["master_weights"].values()} == {lt.float32}
    assert not any(x.requires_grad for x in found["master_weights"].values())
    assert "master_weights" not in WAYS["O1"](MAKE["momentum"], 0).opt.state_dict()


@pytest.mark.parametrize("model_first", [True, False])
def test_a_checkpoint_of_float32_gives_the_copies(model_first: bool) -> None:
    """It has no copies: they are made of the model, whichever of both is loaded first."""
    lt.random.seed(3)
    plain = lt.nn.Sequential(lt.nn.Linear(3, 4), lt.nn.BatchNorm1d(4), lt.nn.Tanh(), lt.nn.Linear(4, 2))
    opt = MAKE["momentum"](plain.parameters())
    F.mse_loss(plain(lt.asarray(X[0])), lt.ones((8, 2))).backward()
    opt.step()
    training = WAYS["O2"](MAKE["momentum"], 0)
    saved = [(training.model, plain.state_dict()), (training.opt, opt.state_dict())]
    for part, state in saved if model_first else reversed(saved):
        part.load_state_dict(state)
    training.opt.state_dict()
    for master, p in zip(lt.amp.master_params(training.opt), plain.parameters(), strict=True):
        np.testing.assert_allclose(master.detach().numpy(), p.detach().numpy(), rtol=2**-10)
    before = [p.detach().numpy() for p in training.model.parameters()]
    training.opt.param_groups[0]["lr"] = 0.0
    training.step(X[0])
    for p, old in zip(training.model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), old)


def test_the_copies_follow_what_is_written_into_the_model() -> None:
    """As a clamp of weights: without a sync, and nothing is lost where nothing was written."""
    training = WAYS["O2"](MAKE["momentum"], 0)
    training.step(X[0])
    masters = [m.detach().numpy().copy() for m in lt.amp.master_params(training.opt)]
    weight, bias, *_, last, _ = training.model.parameters()
    with lt.expect(syncs=0), lt.no_grad():
        weight[0] = 0.25
        last *= 1.0
        training.opt.param_groups[0]["lr"] = 0.0
        training.opt.step()
    got = [m.detach().numpy() for m in lt.amp.master_params(training.opt)]
    assert weight.detach().numpy()[0].tolist() == got[0][0].tolist() == [0.25] * 3
    np.testing.assert_array_equal(got[0][1:], masters[0][1:])
    np.testing.assert_array_equal(got[1], masters[1])
    np.testing.assert_array_equal(got[4], masters[4])
    assert bias.dtype == lt.float16


def test_copies_that_do_not_fit() -> None:
    training = WAYS["O2"](MAKE["momentum"], 0)
    good = training.opt.state_dict()
    match = r"copies of parameters \[0, 1\] are given, and .* has copies of \[0, 1, 4, 5\]"
    with pytest.raises(lt.AutocastError, match=match):
        training.opt.load_state_dict({**good, "master_weights": {0: lt.ones((4, 3)), 1: lt.ones(4)}})
    with pytest.raises(lt.AutocastError, match=r"parameter 4 has shape \(2, 4\), its copy \(3,\)"):
        training.opt.load_state_dict({**good, "master_weights": {**good["master_weights"], 4: lt.ones(3)}})
