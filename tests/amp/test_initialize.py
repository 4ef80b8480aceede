"""apex's levels: dtypes of parameters and master weights, scaled losses, and options that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyt as lt

F = lt.nn.functional
INF = float("inf")


def _model() -> Any:
    lt.random.seed(0)
    return lt.nn.Sequential(lt.nn.Linear(3, 4), lt.nn.BatchNorm1d(4), lt.nn.Linear(4, 2))


def _dtypes(tensors: Any) -> list[str]:
    return [str(x.dtype) for x in tensors]


HALF, WIDE = ["float16"] * 2, ["float32"] * 2
# level -> dtypes of the model's parameters, those of the optimizer, the scale of the loss
LEVELS = {
    "O0": (WIDE * 3, WIDE * 3, 1.0),
    "O1": (WIDE * 3, WIDE * 3, 65536.0),
    "O2": (HALF + WIDE + HALF, WIDE * 3, 65536.0),
    "O3": (HALF * 3, HALF * 3, 1.0),
}


@pytest.mark.parametrize("level", LEVELS)
def test_dtypes_and_training_by_level(level: str) -> None:
    model = _model()
    opt = lt.optim.SGD(model.parameters(), lr=0.1)
    model, opt = lt.amp.initialize(model, opt, opt_level=level)
    of_model, of_optimizer, scale = LEVELS[level]
    assert _dtypes(model.parameters()) == of_model
    assert _dtypes(lt.amp.master_params(opt)) == of_optimizer
    assert lt.amp.loss_scalers(opt)[0].get_scale() == scale
    x = lt.asarray(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    losses = []
    for _ in range(4):
        opt.zero_grad()
        with lt.expect(syncs=0):
            y = model(x)
            loss = F.mse_loss(y, lt.ones((4, 2)))
            with lt.amp.scale_loss(loss, opt) as scaled:
                scaled.backward()
            opt.step()
        assert y.dtype == lt.float32
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    for own, p in zip(lt.amp.master_params(opt), model.parameters(), strict=True):
        np.testing.assert_array_equal(own.detach().astype(p.dtype).numpy(), p.detach().numpy())


def test_updates_are_those_of_float32() -> None:
    # A model of exact halves, so that only the order of work differs.
    def trained(level: str | None) -> np.ndarray:
        layer = lt.nn.Linear(2, 1, bias=False)
        layer.weight = lt.nn.Parameter(lt.asarray(np.array([[0.5, -1.0]], np.float32)))
        opt = lt.optim.SGD(layer.parameters(), lr=0.25)
        if level is not None:
            layer, opt = lt.amp.initialize(layer, opt, opt_level=level, loss_scale=128.0)
        with lt.amp.scale_loss(layer(lt.ones((2, 2))).sum(), opt) as loss:
            loss.backward()
        opt.step()
        return next(lt.amp.master_params(opt)).detach().numpy()

    for level in LEVELS:
        np.testing.assert_array_equal(trained(level), trained(None))


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_an_overflow_skips_a_step_and_halves_the_scale(level: str) -> None:
    model = lt.nn.Linear(2, 1)
    opt = lt.optim.Adam(model.parameters(), lr=0.1)
    model, opt = lt.amp.initialize(model, opt, opt_level=level, min_loss_scale=2.0**15)
    before = [p.detach().numpy() for p in lt.amp.master_params(opt)]
    for _ in range(2):
        with lt.amp.scale_loss((model(lt.ones((1, 2))) * INF).sum(), opt) as loss:
            loss.backward()
        opt.step()
        opt.zero_grad()
    for old, p in zip(before, lt.amp.master_params(opt), strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), old)
    assert lt.amp.loss_scalers(opt)[0].get_scale() == 2.0**15
    assert int(opt.state[next(lt.amp.master_params(opt))]["step"]) == 0


def test_backward_passes_accumulate() -> None:
    def gradient(delay: bool) -> np.ndarray:
        model = lt.nn.Linear(2, 1)
        opt = lt.optim.SGD(model.parameters(), lr=1.0)
        model, opt = lt.amp.initialize(model, opt, opt_level="O2", loss_scale=4.0)
        for i in range(2):
            with lt.amp.scale_loss(model(lt.full((1, 2), i + 1.0)).sum(), opt, delay_unscale=delay and not i) as loss:
                loss.backward()
        return next(lt.amp.master_params(opt)).grad.numpy()

    np.testing.assert_array_equal(gradient(False), [[3.0, 3.0]])
    np.testing.assert_array_equal(gradient(True), [[3.0, 3.0]])


def test_an_error_in_a_block_leaves_the_gradients() -> None:
    model = lt.nn.Linear(2, 1)
    model, opt = lt.amp.initialize(model, lt.optim.SGD(model.parameters(), lr=1.0), opt_level="O1", loss_scale=4.0)
    with lt.amp.scale_loss(model(lt.ones((1, 2))).sum(), opt) as loss:
        loss.backward()
    with pytest.raises(lt.ShapeError), lt.amp.scale_loss(model(lt.ones((1, 2))), opt) as loss:
        loss.backward(lt.ones(3))
    assert model.bias.grad.tolist() == [1.0]


def test_several_losses_have_scales_of_their_own() -> None:
    a, b = lt.nn.Linear(1, 1), lt.nn.Linear(1, 1)
    opts = [lt.optim.SGD(m.parameters(), lr=1.0) for m in (a, b)]
    [a, b], opts = lt.amp.initialize([a, b], opts, opt_level="O1", num_losses=2)
    with lt.amp.scale_loss((a(lt.ones((1, 1))) * INF).sum(), opts[0], loss_id=0) as loss:
        loss.backward()
    with lt.amp.scale_loss(b(lt.ones((1, 1))).sum() / 4, opts[1], loss_id=1) as loss:
        loss.backward()
    assert [s.get_scale() for s in lt.amp.loss_scalers(opts[0])] == [2.0**15, 2.0**16]
    with (
        pytest.raises(lt.AutocastError, match="loss_id is below num_losses=2, got 2"),
        lt.amp.scale_loss(a(lt.ones((1, 1))).sum(), opts[0], loss_id=2),
    ):
        pass


def test_options_replace_those_of_a_level() -> None:
    model = _model()
    opt = lt.optim.SGD(model.parameters(), lr=0.1)
    options: dict[str, Any] = {"cast_model_type": "bfloat16", "keep_batchnorm_fp32": "False", "loss_scale": 8}
    model, opt = lt.amp.initialize(model, opt, opt_level="O2", cast_model_outputs="bfloat16", **options)
    assert {*_dtypes(model.parameters())} == {"bfloat16"}
    assert model(lt.ones((2, 3))).dtype == lt.bfloat16
    assert lt.amp.loss_scalers(opt)[0].get_scale() == 8.0


def test_disabled() -> None:
    model = lt.nn.Linear(2, 1)
    opt = lt.optim.SGD(model.parameters(), lr=1.0)
    assert lt.amp.initialize(model, opt, enabled=False, opt_level="O2") == (model, opt)
    loss = model(lt.ones((1, 2))).sum()
    with lt.amp.scale_loss(loss, opt) as scaled:
        assert scaled is loss
    assert model.weight.dtype == lt.float32
    with pytest.raises(lt.AutocastError, match="loss_scalers: the optimizer was not given to initialize"):
        lt.amp.loss_scalers(opt)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"opt_level": "02"}, "Unexpected optimization level 02.*letter O, not the number zero"),
        ({"opt_level": "O1", "master_weights": True}, "'O1' takes no master_weights, because the weights themselves"),
        ({"opt_level": "O1", "keep_batchnorm_fp32": True}, "'O1' takes no keep_batchnorm_fp32"),
        ({"opt_level": "O1", "cast_model_type": "float16"}, "'O1' takes no cast_model_type"),
        ({"opt_level": "O1", "patch_torch_functions": False}, "'O1' is patch_torch_functions, got False"),
        ({"opt_level": "O2", "patch_torch_functions": True}, "patch_torch_functions is for opt_level 'O1', not 'O2'"),
        ({"opt_level": "O0", "master_weights": True}, "master_weights are for a model that is cast"),
        ({"opt_level": "O2", "cast_model_type": "float64"}, "cast_model_type is float16, bfloat16 or float32, got"),
        ({"opt_level": "O2", "keep_batchnorm_fp32": "no"}, "keep_batchnorm_fp32 is True or False, got 'no'"),
        ({"opt_level": "O2", "loss_scale": "big"}, "loss_scale is a positive number or 'dynamic', got 'big'"),
        ({"opt_level": "O2", "loss_scale": 0}, "loss_scale is a positive number or 'dynamic', got 0"),
        ({"opt_level": "O2", "num_losses": 0}, "num_losses is a positive integer, got 0"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], match: str) -> None:
    model = lt.nn.Linear(2, 1)
    opt = lt.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(lt.AutocastError, match=match):
        lt.amp.initialize(model, opt, **options)
    assert (model.weight.dtype, hasattr(opt, "_precision")) == (lt.float32, False)


def test_what_cannot_be_initialized() -> None:
    half = lt.nn.Linear(2, 1).half()
    with pytest.raises(lt.AutocastError, match="parameter 'weight' is float16; a model of float32 is required"):
        lt.amp.initialize(half, opt_level="O2")
    with pytest.raises(lt.AutocastError, match=r"a model is an nn\.Module, got 'function'"):
        lt.amp.initialize(_model, opt_level="O2")
    with pytest.raises(lt.AutocastError, match=r"an optimizer of lt\.optim is required, got 'Linear'"):
        lt.amp.initialize(lt.nn.Linear(2, 1), lt.nn.Linear(2, 1))
    model = lt.nn.Linear(2, 1)
    opt = lt.optim.SGD(model.parameters(), lr=1.0)
    lt.amp.initialize(model, opt)
    with pytest.raises(lt.AutocastError, match="the optimizer was initialized before"):
        lt.amp.initialize(lt.nn.Linear(2, 1), opt)
    with pytest.raises(lt.AutocastError, match="the model was initialized before"):
        lt.amp.initialize(model)
    with pytest.raises(lt.AutocastError, match="not supported: a closure with initialize"):
        opt.step(lambda: 0)
    other = lt.optim.SGD(lt.nn.Linear(2, 1).parameters(), lr=1.0)
    several = lt.amp.scale_loss(lt.ones(()), [opt, other])
    with pytest.raises(lt.AutocastError, match="some optimizers were given to initialize and others were not"):
        several.__enter__()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parameters_that_are_added_are_unscaled_too(dtype: str) -> None:
    model = _model()
    model, opt = lt.amp.initialize(model, lt.optim.SGD(model.parameters(), lr=0.25), opt_level="O2", loss_scale=64.0)
    added = lt.nn.Parameter(lt.ones(3, dtype=dtype))
    opt.add_param_group({"params": [added]})
    for _ in range(2):
        loss = model(lt.ones((4, 3))).sum() * 0 + added.astype("float32").sum()
        opt.zero_grad()
        with lt.amp.scale_loss(loss, opt) as scaled:
            scaled.backward()
        opt.step()
    *_, master = lt.amp.master_params(opt)
    assert (added.dtype, master.dtype) == (dtype, lt.float32)
    assert added.tolist() == master.tolist() == [0.5] * 3
    assert (6 in opt.state_dict()["master_weights"]) == (dtype == "float16")
