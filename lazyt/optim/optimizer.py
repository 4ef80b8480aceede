"""The base of optimizers: parameter groups, state, and a step that is one recorded operation."""

from __future__ import annotations

from itertools import chain
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyt.autograd.replacement import replaced
from lazyt.errors import ArgumentError, DTypeError, InvalidKey, NotSupportedError
from lazyt.functions.arguments import tensor
from lazyt.functions.arithmetic import add
from lazyt.functions.logic import not_equal, where
from lazyt.ir.dtypes import kind
from lazyt.ops.optim import RULES, SKIPPABLE
from lazyt.optim.hooks import NONE, HookHandle, Hooks, called_around, hooks_of
from lazyt.optim.parameters import clear_gradient
from lazyt.optim.states import States, filled, loaded, named, saved
from lazyt.tracing.batched_writes import record_update
from lazyt.tracing.commit import carry_out, prepared
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.inplace import Item, set_items
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyt.ops.definition import OpDef

    Group = dict[str, Any]
    State = dict[str, Any]


# The options that are numbers, of all optimizers, or tuples of them.
_NUMBERS = frozenset({
    "alpha", "beta2_decay", "betas", "d", "dampening", "eps", "etas", "initial_accumulator_value", "lambd", "lr",
    "lr_decay", "momentum", "momentum_decay", "ns_coefficients", "rho", "step_sizes", "t0", "weight_decay",
})  # fmt: skip


def decay_scalar(group: Group) -> float:
    """The scalar `weight_decay` of an update: the parameter's factor if it is decoupled, else the gradient's share."""
    decay: float = group["weight_decay"]
    return 1 - group["lr"] * decay if group["decoupled_weight_decay"] else decay


def _counted(counts: dict[Any, tuple[Any, Any]], count: Any, p: Any, skipped: Mapping[str, Any] | None) -> Any:
    """The number of the next step and the count after it, as 0-d tensors; parameters with one count share them."""
    key = id(count) if isinstance(count, Handle) else count, p.device
    found = counts.get(key)
    if found is None:
        before: Any = count if isinstance(count, Handle) else tensor(np.asarray(count, np.float64), p)
        after = add(before, 1.0)
        found = counts[key] = after, after if skipped is None else where(not_equal(skipped[p.device], 0), before, after)
    return found


class _Bucket:
    """Parameters that share scalars: with their gradients and state, and what of that is written."""

    __slots__ = ("flags", "items", "members", "names", "scalars", "targets", "tensors")

    def __init__(self, flags: Mapping[str, int], names: tuple[str, ...], scalars: Mapping[str, float]) -> None:
        self.flags, self.names, self.scalars = flags, names, scalars
        self.members = 0
        self.tensors: list[Any] = []
        self.targets: list[Any] = []
        # What of the optimizer's own state changes with the update, and not before.
        self.items: list[Item] = []


class Optimizer:
    """Base of the optimizers. `param_groups` are dictionaries of options and their 'params', as in PyTorch.

    `state[p]` holds a parameter's step count and tensors: of that tensor, wherever it stands in the groups, which may
    be edited; `state_dict` counts positions. A step records one operation over all parameters that have a gradient and
    writes their new values, or nothing if it is interrupted. No value is computed by it, and other values of options
    (learning rate, betas, weight decay) are no new program.

    The updates of all parameters are always one launch a device: `foreach`, `fused` and `capturable` are accepted and
    kept, and change nothing. `differentiable=True` raises NotSupportedError. As `torch.optim.Optimizer`; a subclass
    with a `step` of its own, written in operations of tensors, works as there.
    """

    op: OpDef
    # Whether parameters of a group that have made as many steps share their scalars and variant.
    uniform = True
    # Whether a step may be skipped by a value that is not known when it is recorded (see `_record`).
    skippable = False
    # By device, a 0-d tensor that is not 0 where the step is to change nothing; a gradient scaler sets it for a step.
    skipped: Mapping[str, Any] | None = None

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Handle):
            raise DTypeError(f"{type(self).__name__}: params is an iterable of tensors or of groups, not a tensor")
        if hasattr(params, "parameters"):
            raise DTypeError(f"{type(self).__name__}: params is an iterable of tensors: pass model.parameters()")
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self._states = States()
        self._devices: set[Any] = set()
        self._seen = -1, -1
        given = list(params)
        if not given:
            raise ArgumentError(f"{type(self).__name__}: no parameters were given")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    @property
    def state(self) -> States:
        """What is kept of each parameter: a mapping from parameters."""
        return self._states

    @state.setter
    def state(self, known: Mapping[Any, Any]) -> None:
        self._states = known if isinstance(known, States) else States(known)

    # None, until the first is registered: also of a wrapper that calls no `super().__init__()`.
    _before_step: Hooks = NONE
    _after_step: Hooks = NONE
    _before_saving: Hooks = NONE
    _after_saving: Hooks = NONE
    _before_loading: Hooks = NONE
    _after_loading: Hooks = NONE

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "step" in vars(cls):
            cls.step = called_around(cls.step)  # type: ignore[method-assign]

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with options of their own; what is not given is as for the others."""
        owner = type(self).__name__
        if not isinstance(group, dict):
            raise DTypeError(f"{owner}: a group of parameters is a dict, got {type(group).__name__!r}")
        if "params" not in group:
            raise InvalidKey(f"{owner}: a group of parameters has a key 'params'; this one has {sorted(group)}")
        given = group["params"]
        if isinstance(given, set | frozenset):
            raise DTypeError(f"{owner}: parameters come in an order, so not as a {type(given).__name__}")
        params, names = named(owner, [given] if isinstance(given, Handle) else given)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        for p in params:
            if not isinstance(p, Handle):
                raise DTypeError(f"{owner}: parameters are tensors, got {type(p).__name__!r}")
            if id(p) in known:
                raise ArgumentError(f"{owner}: a parameter is in two places")
            if not p.is_leaf:
                raise ArgumentError(f"{owner}: only leaf tensors can be optimized")
            known.add(id(p))
        if self.param_groups and ("param_names" in self.param_groups[0]) != (names is not None):
            raise ArgumentError(f"{owner}: all groups are given with names, or none is")
        merged = {**self.defaults, **group, "params": params}
        if names is not None:
            merged["param_names"] = names
        self.check(merged)
        self.param_groups.append(merged)

    def check(self, group: Group) -> None:
        """Raise ArgumentError for options that make no sense."""
        owner = type(self).__name__
        for name in sorted(_NUMBERS & group.keys()):
            for value in group[name] if isinstance(group[name], tuple | list) else (group[name],):
                if not isinstance(value, Real | np.ndarray | Handle):
                    raise DTypeError(f"{owner}: a number is required for {name}, got {value!r}")
        for name in (
            "lr",
            "eps",
            "weight_decay",
            "momentum",
            "momentum_decay",
            "lr_decay",
            "initial_accumulator_value",
        ):
            value = group.get(name, 0)
            if not isinstance(value, tuple) and value < 0:
                raise ArgumentError(f"{owner}: {name} is at least 0, got {value}")
        if "betas" in group and not (len(group["betas"]) == 2 and all(0 <= beta < 1 for beta in group["betas"])):
            raise ArgumentError(f"{owner}: betas are in [0, 1), two of them, got {group['betas']}")
        if group.get("differentiable"):
            raise NotSupportedError(
                f"{owner}: not supported: differentiable=True, because a step is one operation outside the graph; "
                "write the update in operations of tensors and use lazyt.grad"
            )

    def flags(self, group: Group) -> dict[str, int]:
        """The variant of the rule."""
        return {"maximize": group["maximize"], "decays": group["weight_decay"] != 0}

    def flags_of(self, flags: dict[str, int], p: Any) -> dict[str, int]:
        """The variant for one parameter, where not all of a group share it (`uniform` is False)."""
        return flags

    def scalars(self, group: Group, step: int, state: State, first: bool, p: Any) -> dict[str, float]:
        """The hyperparameters of step number `step` (from 1); `first`: the state is new."""
        raise NotImplementedError

    def shared(self, group: Group, step: int, state: State, first: bool, p: Any) -> Any:
        """Parameters of a group for which this is equal share their scalars and flags."""
        return None

    def numbers(self, group: Group, step: int, state: State) -> Mapping[str, float]:
        """Numbers of the state after this step, besides the count of steps."""
        return {}

    def new_state(self, group: Group, p: Any, names: Iterable[str]) -> State:
        """The state before the first step."""
        return {"step": 0, **{name: filled(p, 0) for name in names}}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to 0."""
        for group in self.param_groups:
            for p in group["params"]:
                clear_gradient(p, set_to_none)

    @called_around
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Record one update of every parameter that has a gradient; `closure()` is called first, and returned."""
        loss = None
        if closure is not None:
            before = set_grad_mode(True)
            try:
                loss = closure()
            finally:
                restore_grad_mode(before)
        before = set_grad_mode(False)
        try:
            self._record(self.skipped)
        finally:
            restore_grad_mode(before)
        return loss

    def _record(self, skipped: Mapping[str, Any] | None) -> None:
        # NOTE: of what may be skipped, the count of steps is a value of the program: a tensor, as PyTorch's, and so are
        # the scalars that it is in.
        buckets: dict[Any, _Bucket] = {}
        states, rule = self.state, RULES[self.op]
        seen = replaced[0], states.edits
        if self._seen != seen:
            self._seen, self._devices = seen, {p.device for g in self.param_groups for p in g["params"]}
        if not rule.by_element:
            self._refuse_complex()
        counts: dict[Any, tuple[Any, Any]] = {}
        kept = states.kept
        several, uniform = len(self._devices) > 1, self.uniform
        for g, group in enumerate(self.param_groups):
            common = flags = self.flags(group)
            names = rule.slots(flags)
            needed = {"step", *names}
            bucket: _Bucket | None = None  # mostly all parameters of a group have made as many steps
            made = 0
            for p in group["params"]:
                gradient = p.grad
                if gradient is None:
                    continue
                if not uniform:
                    flags = self.flags_of(common, p)
                    names = rule.slots(flags)
                    needed = {"step", *names}
                entry = kept.get(id(p))
                known: State | None = None if entry is None else entry[1]
                if known is not None and needed <= known.keys():
                    state = known
                elif known and known.keys() >= {*names}:
                    # As `loaded`: PyTorch's SGD counts no steps.
                    state = known
                    state["step"] = 1
                elif p.device not in self._devices:  # it came to the group without a word
                    self._devices.add(p.device)
                    self._record(skipped)
                    return
                else:  # an option that was turned on later needs what the first steps did not
                    state = {**self.new_state(group, p, names), **(known or {})}
                first = state is not known
                count = state["step"]
                if skipped is None and type(count) is int:
                    step = number = made_then = count + 1
                    other = step != made
                else:
                    step, made_then = _counted(counts, count, p, skipped)
                    other, number = step is not made, id(step)
                if bucket is None or other or first or several or not uniform:
                    key = p.device if several else None, g, self.shared(group, number, state, first, p)
                    bucket, made = buckets.get(key), step
                    if bucket is None:
                        scalars = self.scalars(group, step, state, first, p)
                        bucket = buckets[key] = _Bucket(flags, names, scalars)
                tensors, targets = bucket.tensors, bucket.targets
                bucket.members += 1
                bucket.items.append((state, "step", made_then))
                if not uniform:
                    bucket.items += [(state, k, v) for k, v in self.numbers(group, step, state).items()]
                if first:
                    bucket.items.append((kept, id(p), (p, state)))
                tensors += p, gradient
                targets.append(p)
                for name in names:
                    x = state[name]
                    tensors.append(x)
                    targets.append(x)
        # An operation is of one device.
        for device in dict.fromkeys(device for device, *_ in buckets):
            found = None if skipped is None else skipped[device or next(iter(self._devices))]
            self._update([bucket for key, bucket in buckets.items() if key[0] == device], found)

    def _refuse_complex(self) -> None:
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            if kind(p.dtype) == "c":
                raise NotSupportedError(
                    f"{type(self).__name__}: not supported: a parameter of {p.dtype}, because its rule is one of real "
                    "numbers: keep the real and the imaginary part as parameters of their own"
                )

    def _update(self, buckets: Iterable[_Bucket], skipped: Any) -> None:
        rule = RULES[self.op]
        tensors: list[Any] = []
        targets: list[Any] = []
        scalars: list[Any] = []
        layout: list[tuple[Any, ...]] = []
        items: list[Item] = []
        for bucket in buckets:
            given = [bucket.scalars[name] for name in rule.scalars]
            scalars += [x if isinstance(x, Handle) and not x.ndim else float(x) for x in given]
            layout.append((bucket.members, *(int(bucket.flags[name]) for name in rule.flags)))
            tensors += bucket.tensors
            targets += bucket.targets
            items += bucket.items
        if skipped is None:
            record_update(self.op, (*tensors, *scalars), (tuple(layout),), targets, items)
        else:
            record_update(SKIPPABLE[self.op], (*tensors, *scalars, skipped), (tuple(layout),), targets, items)

    def state_dict(self) -> dict[str, Any]:
        """The state of every parameter by its position, and the groups' options, as in PyTorch."""
        for hook in tuple(self._before_saving.values()):
            hook(self)
        groups, at = [], 0
        for group in self.param_groups:
            n = len(group["params"])
            groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": list(range(at, at + n))})
            at += n
        states = saved(type(self).__name__, self.state, self.param_groups, self._saved)
        found = {"state": states, "param_groups": groups}
        for hook in tuple(self._after_saving.values()):
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def _saved(self, state: State) -> State:
        """A parameter's state as PyTorch keeps it."""
        return dict(state)

    def _restored(self, state: State) -> State:
        """A parameter's state from what PyTorch keeps."""
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over copies of a state that `state_dict` gave, lazyt's or PyTorch's: training goes on where it was.

        StateError, a RuntimeError, unless the groups have the same sizes and the tensors fit; then nothing has changed.
        """
        for hook in tuple(self._before_loading.values()):
            changed = hook(self, dict(state_dict))
            state_dict = state_dict if changed is None else changed
        found = loaded(type(self).__name__, state_dict, self.param_groups)
        states = States((key, self._restored(s) if isinstance(key, Handle) else s) for key, s in found)
        groups = state_dict["param_groups"]
        items = [
            (mine, k, v)
            for mine, theirs in zip(self.param_groups, groups, strict=True)
            for k, v in theirs.items()
            if k != "params" and (k != "param_names" or k in mine)
        ]
        carry_out(chain(set_items(items), prepared([(self, "_states", states)])))
        for hook in tuple(self._after_loading.values()):
            hook(self)

    # Hooks

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return other (args, kwargs)."""
        return HookHandle(hooks_of(self, "_before_step"), hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return HookHandle(hooks_of(self, "_after_step"), hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(optimizer)` before `state_dict`."""
        return HookHandle(hooks_of(self, "_before_saving"), hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(optimizer, state_dict)` after `state_dict`; what it returns, if anything, is given instead."""
        return HookHandle(hooks_of(self, "_after_saving"), hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(optimizer, state_dict)` before a state is loaded; it may return another one."""
        return HookHandle(hooks_of(self, "_before_loading"), hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(optimizer)` after a state was loaded."""
        return HookHandle(hooks_of(self, "_after_loading"), hook, prepend)

    def __getstate__(self) -> dict[str, Any]:
        hooks = {
            "_before_step", "_after_step", "_before_saving", "_after_saving", "_before_loading", "_after_loading",
        }  # fmt: skip
        return {"state" if k == "_states" else k: v for k, v in self.__dict__.items() if k not in hooks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({k: v for k, v in state.items() if k != "state"})
        if "state" in state:
            self.state = state["state"]

    def __repr__(self) -> str:
        lines = [
            f"  group {i}: " + ", ".join(f"{k}={v}" for k, v in g.items() if k not in ("params", "param_names"))
            for i, g in enumerate(self.param_groups)
        ]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])
