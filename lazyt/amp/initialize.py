"""`initialize` and `scale_loss`: mixed precision in two lines, by the levels of NVIDIA's apex."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lazyt.amp.autocast import autocast
from lazyt.amp.grad_scaler import MOST, GradScaler
from lazyt.amp.levels import Options, options_of
from lazyt.amp.precision import Precision
from lazyt.errors import AutocastError
from lazyt.functions.arithmetic import multiply
from lazyt.functions.manipulation import astype
from lazyt.ir import dtypes
from lazyt.nn.batch_norms import _BatchNorm
from lazyt.nn.conversion import replace
from lazyt.nn.module import Module, Parameter
from lazyt.optim.optimizer import Optimizer
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyt.runtime.tensor import Tensor

__all__ = ["initialize", "loss_scalers", "master_params", "scale_loss"]


class CastForward:
    """The forward pass of a model that was initialized."""

    def __init__(self, model: Any, options: Options, outputs: Any) -> None:
        self.forward, self.options = model.forward, options
        self.outputs = dtypes.float32 if outputs is None else dtypes.as_dtype(outputs)
        self.device = next((p.device.partition(":")[0] for p in model.parameters()), None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs, region = self.options.cast_model_type, self.options.patch_functions
        if inputs is not None:
            args, kwargs = _cast(args, inputs), _cast(kwargs, inputs)
        if region is None or self.device is None or region == dtypes.float32:
            return _cast(self.forward(*args, **kwargs), self.outputs)
        with autocast(self.device, dtype=region):
            out = self.forward(*args, **kwargs)
        return _cast(out, self.outputs)


def _cast(x: Any, dtype: Any) -> Any:
    """The real floats among nested values as `dtype`."""
    if isinstance(x, Handle):
        t: Any = x
        return astype(t, dtype, copy=False) if dtypes.kind(t.dtype) == "f" else t
    if isinstance(x, dict):
        return {k: _cast(v, dtype) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_cast(v, dtype) for v in x))
    return type(x)(_cast(v, dtype) for v in x) if isinstance(x, list | tuple) else x


def _converted(model: Any, options: Options) -> None:
    """Cast a model's parameters and buffers; its parameters stay the tensors that they are."""
    kept = [
        x
        for m in model.modules()
        if options.keep_batchnorm_fp32 and isinstance(m, _BatchNorm)
        for x in (*m.parameters(recurse=False), *m.buffers(recurse=False))
    ]
    known = {id(x) for x in (*kept, *(x.grad for x in kept if x.grad is not None))}
    dtype = options.cast_model_type

    def cast(x: Any) -> Any:
        narrow = id(x) not in known and dtypes.kind(x.dtype) == "f" and x.dtype != dtype
        return astype(x.detach(), dtype) if narrow else x

    replace(model, cast)


def _check(models: Sequence[Any], optimizers: Sequence[Any], options: Options) -> None:
    """AutocastError for what cannot be prepared."""
    for model in models:
        if not isinstance(model, Module):
            raise AutocastError(f"initialize: a model is an nn.Module, got {type(model).__name__!r}")
        if isinstance(vars(model).get("forward"), CastForward):
            raise AutocastError("initialize: the model was initialized before")
        for name, p in model.named_parameters():
            if options.opt_level != "O0" and p.dtype in dtypes.HALVES:
                raise AutocastError(f"initialize: parameter {name!r} is {p.dtype}; a model of float32 is required")
    for optimizer in optimizers:
        if not isinstance(optimizer, Optimizer):
            raise AutocastError(f"initialize: an optimizer of lt.optim is required, got {type(optimizer).__name__!r}")
        if hasattr(optimizer, "_precision"):
            raise AutocastError("initialize: the optimizer was initialized before")


def _masters(optimizer: Any, options: Options) -> list[Any]:
    """The parameters of an optimizer as it will update them, before the model is cast."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    if not options.master_weights:
        return params
    return [Parameter(p.detach().__copy__()) if dtypes.kind(p.dtype) == "f" else p for p in params]


def _attached(optimizer: Any, options: Options, masters: Sequence[Any], scalers: list[Any]) -> None:
    of_model = [p for group in optimizer.param_groups for p in group["params"]]
    # What was not cast is updated itself.
    pairs = [(p if own.dtype == p.dtype else own, p) for own, p in zip(masters, of_model, strict=True)]
    own = iter(pairs)
    for group in optimizer.param_groups:
        group["params"] = [next(own)[0] for _ in group["params"]]
    for master, p in pairs:
        if master is not p and p in optimizer.state:
            optimizer.state[master] = optimizer.state.pop(p)
    precision = Precision(optimizer, options, pairs, scalers)
    optimizer._precision, optimizer.step, optimizer.zero_grad = precision, precision.step, precision.zero_grad
    optimizer.state_dict, optimizer.load_state_dict = precision.state_dict, precision.load_state_dict
    optimizer.add_param_group = precision.add_param_group


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: Any = None,
    patch_torch_functions: Any = None,
    keep_batchnorm_fp32: Any = None,
    master_weights: Any = None,
    loss_scale: Any = None,
    cast_model_outputs: Any = None,
    num_losses: int = 1,
    verbosity: int = 1,
    min_loss_scale: float | None = None,
    max_loss_scale: float = 2.0**24,
) -> Any:
    """Prepare models and optimizers for mixed precision, in place, and return them; losses go through `scale_loss`.

    | level | the model's parameters | products | the optimizer's parameters | loss scale |
    | --- | --- | --- | --- | --- |
    | "O0" | float32 | float32 | the model's | 1 |
    | "O1" | float32 | float16, in an autocast region around each forward pass | the model's | dynamic |
    | "O2" | float16, but batch normalization's | float16 | float32 copies (master weights) | dynamic |
    | "O3" | float16 | float16 | the model's | 1 |

    The other options replace one of a level: `cast_model_type` (or `patch_torch_functions` for O1) may be bfloat16,
    `loss_scale` a number or "dynamic", which is halved when gradients overflow and doubled after 2000 steps that do
    not, between `min_loss_scale` and `max_loss_scale`. A model casts its floating inputs to the dtype of its parameters
    and its outputs to float32 (or `cast_model_outputs`). `num_losses` losses have scales of their own. `verbosity` is
    accepted; nothing is printed. With `enabled=False` nothing is done. A skipped step is decided by the plan, as in
    `GradScaler`.

    The optimizer's `state_dict` has the float32 copies too. With those of the model and of `loss_scalers` it continues
    a training bit for bit, in whichever order they are loaded. What is written into a parameter of the model, the
    optimizer's copy follows at the next step.

    Raises AutocastError for an unknown level, options that do not fit it, and parameters that are no float32. As
    `apex.amp.initialize`, where O1 changes functions everywhere.

    >>> import lazyt as lt
    >>> model = lt.nn.Linear(2, 1)
    >>> opt = lt.optim.SGD(model.parameters(), lr=0.5)
    >>> model, opt = lt.amp.initialize(model, opt, opt_level="O2")
    >>> with lt.amp.scale_loss(model(lt.ones((3, 2))).sum(), opt) as loss:
    ...     loss.backward()
    >>> opt.step()
    >>> model.weight.dtype, next(lt.amp.master_params(opt)).dtype
    (dtype('float16'), dtype('float32'))
    """
    options = options_of(
        opt_level, cast_model_type, patch_torch_functions, keep_batchnorm_fp32, master_weights, loss_scale
    )
    given = models if isinstance(models, list) else [models]
    stepped = [] if optimizers is None else optimizers if isinstance(optimizers, list) else [optimizers]
    if not isinstance(num_losses, int) or num_losses < 1:
        raise AutocastError(f"initialize: num_losses is a positive integer, got {num_losses!r}")
    if not enabled:
        return models if optimizers is None else (models, optimizers)
    _check(given, stepped, options)
    masters = [_masters(optimizer, options) for optimizer in stepped]
    for model in given:
        if options.cast_model_type is not None:
            _converted(model, options)
        model.forward = CastForward(model, options, cast_model_outputs)
    first = 2.0**16 if options.loss_scale is None else options.loss_scale
    bounds = (0.0 if min_loss_scale is None else float(min_loss_scale), min(float(max_loss_scale), MOST))
    scalers = [_Scaler(min(first, bounds[1]), options.loss_scale is None, bounds) for _ in range(num_losses)]
    for optimizer, own in zip(stepped, masters, strict=True):
        _attached(optimizer, options, own, scalers)
    return models if optimizers is None else (models, optimizers)


class _Scaler(GradScaler):
    """The scale of one loss: dynamic within bounds, or a number."""

    def __init__(self, scale: float, dynamic: bool, bounds: tuple[float, float]) -> None:
        super().__init__("", init_scale=scale)
        self.dynamic, self.bounds = dynamic, bounds


@contextmanager
def scale_loss(
    loss: Any, optimizers: Any, loss_id: int = 0, model: Any = None, delay_unscale: bool = False
) -> Iterator[Tensor]:
    """The loss times its scale, for a backward pass in the block; then the gradients are unscaled.

    They are added to those that the optimizers' parameters had, so passes may be accumulated; with `delay_unscale` that
    waits for the next block. If a gradient overflowed, the next step of the optimizers is skipped, and a dynamic scale
    is halved. `model` is accepted as in apex. Raises AutocastError for an optimizer that `initialize` has not seen
    among others that it has, and for an unknown `loss_id`. As `apex.amp.scale_loss`; see `initialize` for an example.
    """
    given = optimizers if isinstance(optimizers, list) else [optimizers]
    known: list[Precision] = [getattr(o, "_precision", None) for o in given]  # type: ignore[misc]
    if all(p is None for p in known):  # initialized with enabled=False, or not at all
        yield loss
        return
    if any(p is None for p in known):
        raise AutocastError("scale_loss: some optimizers were given to initialize and others were not")
    scalers = known[0].scalers
    if not (isinstance(loss_id, int) and 0 <= loss_id < len(scalers)):
        raise AutocastError(f"scale_loss: loss_id is below num_losses={len(scalers)}, got {loss_id!r}")
    scaler = scalers[loss_id]
    for p in known:
        p.stash()
    try:
        yield multiply(astype(loss, dtypes.float32, copy=False), scaler.values()[0])
    except BaseException:
        for p in known:
            p.put_back()
        raise
    if delay_unscale:
        for p in known:
            p.scaled = True
        return
    flags: list[Any] = []
    for p in known:
        found = p.collect(scaler)
        flags += found.values()
        if scaler.dynamic:
            p.overflowed(found)
    if scaler.dynamic and flags:
        scaler.adapt(flags, *scaler.bounds)


def master_params(optimizer: Any) -> Iterator[Tensor]:
    """The parameters that an optimizer updates: float32 copies of the model's with master weights.

    As `apex.amp.master_params`.

    >>> import lazyt as lt
    >>> model = lt.nn.Linear(2, 1)
    >>> model, opt = lt.amp.initialize(model, lt.optim.SGD(model.parameters(), lr=1.0), opt_level="O2")
    >>> [str(p.dtype) for p in lt.amp.master_params(opt)]
    ['float32', 'float32']
    """
    for group in optimizer.param_groups:
        yield from group["params"]


def loss_scalers(optimizer: Any) -> Sequence[GradScaler]:
    """The scalers of the losses of an optimizer that `initialize` prepared; their `state_dict` is to be saved with it.

    Raises AutocastError for another optimizer.

    >>> import lazyt as lt
    >>> model = lt.nn.Linear(2, 1)
    >>> model, opt = lt.amp.initialize(model, lt.optim.SGD(model.parameters(), lr=1.0), opt_level="O1")
    >>> [scaler.get_scale() for scaler in lt.amp.loss_scalers(opt)]
    [65536.0]
    """
    if not hasattr(optimizer, "_precision"):
        raise AutocastError("loss_scalers: the optimizer was not given to initialize")
    return tuple(optimizer._precision.scalers)
