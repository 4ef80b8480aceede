"""`GradScaler`: losses are scaled so that small gradients of float16 do not vanish; overflow skips a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lazyt.errors import AutocastError
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import multiply
from lazyt.functions.manipulation import astype
from lazyt.ir import dtypes
from lazyt.ops.grad_scaler import UNSCALE, UPDATE_SCALE
from lazyt.optim.optimizer import Optimizer
from lazyt.runtime.device import Device
from lazyt.tracing.batched_writes import record_update
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inplace import assign
from lazyt.tracing.tensor_state import Handle

__all__ = ["GradScaler"]


class ScalerAssertion(AutocastError, AssertionError):
    """What PyTorch asserts."""


class ScalerValueError(AutocastError, ValueError):
    """A value that cannot be unscaled, or be a loss."""


# The largest scale.
MOST = float(np.finfo(np.float32).max)
# What was done with an optimizer since the last update.
READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"


class _OptimizerState:
    """How far an optimizer is, and by device whether its gradients overflowed (a 0-d tensor, 0 or 1)."""

    def __init__(self) -> None:
        self.stage = READY
        self.found: dict[str, Any] = {}


class GradScaler:
    """Scale losses, unscale gradients, skip steps whose gradients overflow, and adapt the scale.

    Nothing of that is decided on the host: a step of `lazyt`'s optimizers takes or leaves the new values where they are
    computed, and the scale is a value of the program. So a scaled training step is one plan, without a sync, and the
    same one whatever the scale is. A skipped step changes neither parameters nor state; to skip its count too, the
    entry `step` of the state becomes a tensor. The optimizers ASGD, Adafactor, LBFGS, Muon, NAdam, RAdam and Rprop, and
    those with a `step` of their own, are asked on the host: `step` syncs for them.

    `init_scale` is the first factor; it is multiplied by `growth_factor` (above 1) after `growth_interval` steps in a
    row without infinities and NaNs, and by `backoff_factor` (below 1) after each step with one. With `enabled=False`
    every method passes through. Raises AutocastError for calls out of turn, a ValueError for float16 gradients. As
    `torch.amp.GradScaler`.

    >>> import lazyt as lt
    >>> w = lt.tensor([1.0], requires_grad=True)
    >>> opt, scaler = lt.optim.SGD([w], lr=0.25), lt.amp.GradScaler("cpu", init_scale=8.0)
    >>> scaler.scale((w * w).sum()).backward()
    >>> scaler.step(opt)
    >>> scaler.update()
    >>> w.tolist(), scaler.get_scale()
    ([0.5], 8.0)
    """

    def __init__(
        self,
        device: str = "",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device, self._enabled = Device.check(device or None), bool(enabled)
        if self._enabled:
            _factors(growth_factor, backoff_factor)
        self._init_scale, self._growth_factor = float(init_scale), float(growth_factor)
        self._backoff_factor, self._growth_interval = float(backoff_factor), int(growth_interval)
        self._init_growth_tracker = 0
        self._scale: Any = None
        self._growth_tracker: Any = None
        self._states: dict[int, tuple[Any, _OptimizerState]] = {}

    def _state_of(self, optimizer: Any) -> _OptimizerState:
        # NOTE: with the optimizer, so that its id stays its own.
        return self._states.setdefault(id(optimizer), (optimizer, _OptimizerState()))[1]

    def values(self) -> tuple[Any, Any]:
        """The scale and the count of good steps, as values of the program from now on."""
        if self._scale is None:
            beside = tensor(np.zeros((), np.float32)).to(self._device)
            self._scale = tensor(np.asarray(self._init_scale, np.float32), beside)
            self._growth_tracker = tensor(np.asarray(self._init_growth_tracker, np.int32), beside)
        return self._scale, self._growth_tracker

    def _known(self, name: str) -> tuple[Any, Any]:
        if self._scale is None:
            raise ScalerAssertion(
                f"Attempted {name} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale, self._growth_tracker

    def scale(self, outputs: Any) -> Any:
        """`outputs` (a tensor, or nested iterables of them) times the scale; gradients pass through."""
        if not self._enabled:
            return outputs
        scale, _ = self.values()
        return _scaled(outputs, {scale.device: scale})

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place, as to clip them before `step`.

        Once between two calls of `update`, and not after `step`: AutocastError otherwise. ValueError for gradients of
        float16: parameters that are trained are wider.
        """
        if not self._enabled:
            return
        scale, _ = self._known("unscale_")
        state = self._state_of(optimizer)
        if state.stage == UNSCALED:
            raise AutocastError("unscale_() has already been called on this optimizer since the last update().")
        if state.stage == STEPPED:
            raise AutocastError("unscale_() is being called after step().")
        state.found = _unscaled(optimizer, scale)
        state.stage = UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)` on unscaled gradients, skipped if one of them was not finite.

        Once between two calls of `update`: AutocastError otherwise, and for a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise AutocastError("Closure use is not currently supported if GradScaler is enabled.")
        self._known("step")
        state = self._state_of(optimizer)
        if state.stage == STEPPED:
            raise AutocastError("step() has already been called since the last update().")
        if state.stage == READY:
            self.unscale_(optimizer)
        if not state.found:
            raise ScalerAssertion("No inf checks were recorded for this optimizer.")
        out = step_unless(state.found, optimizer, optimizer.step, **kwargs)
        state.stage = STEPPED
        return out

    def update(self, new_scale: Any = None) -> None:
        """The scale for the next step: grown, shrunk or kept by what was found since the last call, or `new_scale`.

        `new_scale` is a number or a tensor of one float32. AssertionError if no optimizer was unscaled.
        """
        if not self._enabled:
            return
        scale, _ = self._known("update")
        if new_scale is not None:
            if isinstance(new_scale, Handle):
                x: Any = new_scale
                if x.dtype != dtypes.float32 or x.size != 1 or x.requires_grad:
                    raise ScalerAssertion(
                        "new_scale should be a float or a 1-element float32 tensor with requires_grad=False, got "
                        f"{x.dtype} of shape {x.shape}"
                    )
                new_scale = x.reshape(())
            elif isinstance(new_scale, bool) or not isinstance(new_scale, int | float):
                raise ScalerAssertion(f"new_scale should be a float or a 1-element float32 tensor, got {new_scale!r}")
            without_gradients(assign, scale, new_scale)
        else:
            flags = [flag for _, state in self._states.values() for flag in state.found.values()]
            if not flags:
                raise ScalerAssertion("No inf checks were recorded prior to update.")
            self.adapt(flags)
        self._states = {}

    def adapt(self, flags: Sequence[Any], least: float = 0.0, most: float = MOST) -> None:
        """The scale for the next step, within bounds, by whether one of these 0-d tensors is not 0."""
        scale, tracker = self.values()
        flags = [f if f.device == scale.device else f.to(scale.device) for f in flags]
        factors = (self._growth_factor, self._backoff_factor, self._growth_interval, least, most)
        without_gradients(record_update, UPDATE_SCALE, (scale, tracker, *flags, *factors), (), [scale, tracker])

    def get_scale(self) -> float:
        """The scale; a sync once it is a value of the program. 1.0 if disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows."""
        self._growth_factor = float(new_factor)

    def get_backoff_factor(self) -> float:
        """The factor by which the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale shrinks."""
        self._backoff_factor = float(new_factor)

    def get_growth_interval(self) -> int:
        """After how many good steps in a row the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many good steps in a row the scale grows."""
        self._growth_interval = int(new_interval)

    def is_enabled(self) -> bool:
        """Whether this scaler does anything."""
        return self._enabled

    def _tracked(self) -> int:
        if self._growth_tracker is None:
            return self._init_growth_tracker
        return int(self._growth_tracker.item())

    def state_dict(self) -> dict[str, Any]:
        """The scale, the factors and the count of good steps, as PyTorch's; empty if disabled. A sync."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._tracked(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, lazyt's or PyTorch's. AutocastError for that of a disabled scaler."""
        if not self._enabled:
            return
        if not state_dict:
            raise AutocastError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        missing = [k for k in self.state_dict() if k not in state_dict]
        if missing:
            raise AutocastError(f"GradScaler.load_state_dict: {missing} missing; the keys are {sorted(state_dict)}")
        self._init_scale, self._growth_factor = float(state_dict["scale"]), float(state_dict["growth_factor"])
        self._backoff_factor = float(state_dict["backoff_factor"])
        self._growth_interval = int(state_dict["growth_interval"])
        self._init_growth_tracker = int(state_dict["_growth_tracker"])
        if self._scale is not None:
            without_gradients(assign, self._scale, self._init_scale)
            without_gradients(assign, self._growth_tracker, self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        if self._states:
            raise ScalerAssertion(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                "scaler.update()."
            )
        state = {**self.__dict__, "_scale": None, "_growth_tracker": None}
        return {**state, "_init_scale": self.get_scale(), "_init_growth_tracker": self._tracked()}

    def __repr__(self) -> str:
        if not self._enabled:
            return "GradScaler(enabled=False)"
        return (
            f"GradScaler({str(self._device)!r}, growth_factor={self._growth_factor}, "
            f"backoff_factor={self._backoff_factor}, growth_interval={self._growth_interval})"
        )


def _factors(growth: float, backoff: float) -> None:
    if not growth > 1:
        raise ScalerAssertion(f"The growth factor must be > 1.0, got {growth}.")
    if not backoff < 1:
        raise ScalerAssertion(f"The backoff factor must be < 1.0, got {backoff}.")


def without_gradients(f: Any, *args: Any) -> None:
    before = set_grad_mode(False)
    try:
        f(*args)
    finally:
        restore_grad_mode(before)


def step_unless(found: Mapping[str, Any], optimizer: Any, step: Any, **kwargs: Any) -> Any:
    """An optimizer's step, skipped where one of the flags `found`, by device, is not 0: by the plan if that can."""
    if not (isinstance(optimizer, Optimizer) and optimizer.skippable and type(optimizer).step is Optimizer.step):
        return None if any(flag.item() for flag in found.values()) else step(**kwargs)
    optimizer.skipped = found
    try:
        return step(**kwargs)
    finally:
        optimizer.skipped = None


def _scaled(x: Any, scales: dict[str, Any]) -> Any:
    if isinstance(x, Handle):
        t: Any = x
        if t.device not in scales:
            scales[t.device] = next(iter(scales.values())).to(t.device)
        y = multiply(t, scales[t.device])
        # As PyTorch's, a scale without dimensions does not widen an array.
        return astype(y, t.dtype) if t.ndim and dtypes.kind(t.dtype) in "fc" and y.dtype != t.dtype else y
    if isinstance(x, Iterable) and not isinstance(x, str):
        found = (_scaled(v, scales) for v in x)
        return type(x)(found) if isinstance(x, list | tuple) else found
    raise ScalerValueError(f"outputs must be a Tensor or an iterable of Tensors, got {type(x).__name__!r}")


def _unscaled(optimizer: Any, scale: Any) -> dict[str, Any]:
    """Unscale the gradients of an optimizer's parameters; by device, whether one of them was not finite."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    grads = [p.grad for p in params if p.grad is not None]
    if any(g.dtype == dtypes.float16 for g in grads):
        raise ScalerValueError("Attempting to unscale FP16 gradients.")
    return unscale_all(grads, scale)


def unscale_all(grads: Sequence[Any], scale: Any) -> dict[str, Any]:
    """Divide tensors by the scale in place, one step a device; by device, whether one of them was not finite."""
    by_device: dict[str, list[Any]] = {}
    for g in grads:
        by_device.setdefault(g.device, []).append(g)
    found: dict[str, Any] = {}
    for device, there in by_device.items():
        own = scale if scale.device == device else scale.to(device)
        flag = found[device] = tensor(np.zeros((), np.float32), there[0])
        without_gradients(record_update, UNSCALE, (*there, flag, own), (), [*there, flag])
    return found
