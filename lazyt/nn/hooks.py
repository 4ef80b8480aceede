"""Hooks of modules: around forward and backward, of one module or of all, and around its state."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Self

from lazyt.autograd.custom_rules import custom_vjp
from lazyt.errors import LazytError, NotSupportedError
from lazyt.functions.joining import concat
from lazyt.functions.manipulation import reshape
from lazyt.tracing.call_guards import CountedDict
from lazyt.tracing.inplace import requires_grad
from lazyt.tracing.lanes import note_impure
from lazyt.tracing.record import is_grad_enabled
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]

# What a module may have hooks for: its attribute -> how PyTorch calls them.
KINDS = (
    "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks", "_state_dict_pre_hooks",
    "_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
# The hooks of all modules, of the first four kinds. `ANY` has one element if there are some.
EVERYWHERE: dict[str, dict[int, Any]] = CountedDict((kind, CountedDict()) for kind in KINDS[:4])
ANY: list[bool] = []


class Removable:
    """A hook that was registered; `remove()` takes it away, and so does the end of a `with` block."""

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Any], hook: Any, prepend: bool = False) -> None:
        self.id = next(self._ids)
        self._hooks = hooks
        hooks[self.id] = hook
        if prepend:
            rest = {k: v for k, v in hooks.items() if k != self.id}
            hooks.clear()
            hooks.update({self.id: hook, **rest})

    def remove(self) -> None:
        """Call the hook no more."""
        self._hooks.pop(self.id, None)
        ANY[:] = [True] * any(EVERYWHERE.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class ForwardHook:
    """A hook of forward with PyTorch's options; those of all modules come first."""

    __slots__ = ("always", "hook", "with_kwargs")

    def __init__(self, hook: Callable[..., Any], with_kwargs: bool = False, always: bool = False) -> None:
        self.hook, self.with_kwargs, self.always = hook, with_kwargs, always


class Hooked:
    """What registers the hooks of one module."""

    _forward_pre_hooks: dict[int, ForwardHook]
    _forward_hooks: dict[int, ForwardHook]
    _backward_pre_hooks: dict[int, Any]
    _backward_hooks: dict[int, Any]
    _state_dict_pre_hooks: dict[int, Any]
    _state_dict_hooks: dict[int, Any]
    _load_state_dict_pre_hooks: dict[int, Any]
    _load_state_dict_post_hooks: dict[int, Any]

    if TYPE_CHECKING:
        # The attributes of a module, without word of it to `jit`: see `Module.__dict__`.
        _attributes_of: staticmethod[[Any], dict[str, Any]]

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Removable:
        """Call `hook(module, args, output)` after `forward`; what it returns replaces the output.

        With `with_kwargs` it is hook(module, args, kwargs, output); `always_call` calls it after an error too.
        """
        return Removable(self._forward_hooks, ForwardHook(hook, with_kwargs, always_call), prepend)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Removable:
        """Call `hook(module, args)` before `forward`; what it returns replaces the arguments.

        With `with_kwargs` it is hook(module, args, kwargs), which returns None or (args, kwargs).
        """
        return Removable(self._forward_pre_hooks, ForwardHook(hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Removable:
        """Call `hook(module, grad_input, grad_output)` in each backward; what it returns replaces grad_input.

        Both are tuples, one gradient for each argument given by position and each output, None for what has none.
        """
        return Removable(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Removable:
        """Call `hook(module, grad_output)` in each backward, before the module's; what it returns replaces it."""
        return Removable(self._backward_pre_hooks, hook, prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Removable:
        """Call `hook(module, prefix, keep_vars)` before this module's state is collected."""
        return Removable(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> Removable:
        """Call `hook(module, state_dict, prefix, local_metadata)` after this module's state was collected."""
        return Removable(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Removable:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)` before loading.

        It may change the dict, which is a copy, and add to the lists.
        """
        return Removable(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Removable:
        """Call `hook(module, keys)` after loading, with the missing and unexpected keys."""
        return Removable(self._load_state_dict_post_hooks, hook)


Hooked._attributes_of = staticmethod(vars(Hooked)["__dict__"].__get__)


def _everywhere(kind: str, hook: Any) -> Removable:
    handle = Removable(EVERYWHERE[kind], hook)
    ANY[:] = [True]
    return handle


def register_module_forward_pre_hook(hook: Callable[[Any, Any], Any]) -> Removable:
    """Call `hook(module, args)` before the forward of every module. Returns what removes it.

    As `torch.nn.modules.module.register_module_forward_pre_hook`.

    >>> import lazyt as lt
    >>> with lt.nn.register_module_forward_pre_hook(lambda m, args: print(type(m).__name__)):
    ...     y = lt.nn.ReLU()(lt.ones(1))
    ReLU
    """
    return _everywhere("_forward_pre_hooks", ForwardHook(hook))


def register_module_forward_hook(
    hook: Callable[[Any, Any, Any], Any], *, with_kwargs: bool = False, always_call: bool = False
) -> Removable:
    """Call `hook(module, args, output)` after the forward of every module. Returns what removes it.

    As `torch.nn.modules.module.register_module_forward_hook`.

    >>> import lazyt as lt
    >>> with lt.nn.register_module_forward_hook(lambda m, args, out: print(type(m).__name__)):
    ...     y = lt.nn.ReLU()(lt.ones(1))
    ReLU
    """
    return _everywhere("_forward_hooks", ForwardHook(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[[Any, Any], Any]) -> Removable:
    """Call `hook(module, grad_output)` before the backward of every module. Returns what removes it.

    As `torch.nn.modules.module.register_module_full_backward_pre_hook`.

    >>> import lazyt as lt
    >>> with lt.nn.register_module_full_backward_pre_hook(lambda m, out: print(type(m).__name__)):
    ...     y = lt.nn.ReLU()(lt.ones(1).requires_grad_()).sum().backward()
    ReLU
    """
    return _everywhere("_backward_pre_hooks", hook)


def register_module_full_backward_hook(hook: Callable[[Any, Any, Any], Any]) -> Removable:
    """Call `hook(module, grad_input, grad_output)` after the backward of every module. Returns what removes it.

    As `torch.nn.modules.module.register_module_full_backward_hook`.

    >>> import lazyt as lt
    >>> with lt.nn.register_module_full_backward_hook(lambda m, given, out: print(type(m).__name__)):
    ...     y = lt.nn.ReLU()(lt.ones(1).requires_grad_()).sum().backward()
    ReLU
    """
    return _everywhere("_backward_hooks", hook)


def _of(module: Any, kind: str) -> list[Any]:
    return [*EVERYWHERE[kind].values(), *Hooked._attributes_of(module)[kind].values()]


def call_with_hooks(module: Any, args: Any, kwargs: Any) -> Any:
    """`module.forward(*args, **kwargs)` with all hooks around it."""
    called: set[int] = set()
    out = None
    forward = (*_of(module, "_forward_pre_hooks"), *_of(module, "_forward_hooks"))
    if any(not str(getattr(h.hook, "__module__", "")).startswith("lazyt.nn.") for h in forward):
        note_impure("it runs hooks of a module")
    try:
        for hook in _of(module, "_forward_pre_hooks"):
            args, kwargs = _before(hook, module, args, kwargs)
        rounds = _Backward.of(module)
        if rounds is not None:
            args = rounds.inputs(args)
        out = module.forward(*args, **kwargs)
        for hook in _of(module, "_forward_hooks"):
            called.add(id(hook))
            out = _after(hook, module, args, kwargs, out)
        return out if rounds is None else rounds.outputs(out)
    except Exception:
        for hook in _of(module, "_forward_hooks"):
            if hook.always and id(hook) not in called:
                _after(hook, module, args, kwargs, out)
        raise


def _before(hook: ForwardHook, module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    if not hook.with_kwargs:
        changed = hook.hook(module, args)
        return (args if changed is None else changed if isinstance(changed, tuple) else (changed,)), kwargs
    changed = hook.hook(module, args, kwargs)
    if changed is None:
        return args, kwargs
    if not (isinstance(changed, tuple) and len(changed) == 2):
        raise LazytError(
            f"{type(module).__name__}: a forward pre-hook with kwargs returns None or (args, kwargs), got {changed!r}"
        )
    return changed


def _after(hook: ForwardHook, module: Any, args: Any, kwargs: Any, out: Any) -> Any:
    changed = hook.hook(module, args, kwargs, out) if hook.with_kwargs else hook.hook(module, args, out)
    return out if changed is None else changed


class _Backward:
    """The backward hooks of one call: the tensors of its arguments, and of its output, pass one function each."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.grad_output: tuple[Any, ...] = ()
        self.passed: list[bool] = []  # which arguments have gradients

    @staticmethod
    def of(module: Any) -> _Backward | None:
        if not is_grad_enabled():
            return None
        return _Backward(module) if _of(module, "_backward_hooks") or _of(module, "_backward_pre_hooks") else None

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.passed = [isinstance(x, Handle) and requires_grad(x) for x in args]
        chosen = [x for x, p in zip(args, self.passed, strict=True) if p]
        if not chosen:
            return args
        made = iter(_through(self.module, chosen, self._at_inputs))
        return tuple(next(made) if p else x for x, p in zip(args, self.passed, strict=True))

    def outputs(self, out: Any) -> Any:
        many = out if isinstance(out, tuple | list) else (out,)
        tracked = [isinstance(x, Handle) and requires_grad(x) for x in many]
        chosen = [x for x, p in zip(many, tracked, strict=True) if p]
        if not chosen:
            return out
        made = iter(_through(self.module, chosen, lambda cts: self._at_outputs(cts, tracked)))
        new = [next(made) if p else x for x, p in zip(many, tracked, strict=True)]
        return new[0] if many is not out else type(out)(new) if type(out) in (tuple, list) else type(out)(*new)

    def _at_outputs(self, cts: list[Any], tracked: list[bool]) -> list[Any]:
        given = iter(cts)
        grads = tuple(next(given) if p else None for p in tracked)
        for hook in _of(self.module, "_backward_pre_hooks"):
            grads = _replaced(self.module, "backward pre-hook", hook(self.module, grads), grads)
        self.grad_output = grads
        if not any(self.passed):
            for hook in _of(self.module, "_backward_hooks"):
                if hook(self.module, tuple(None for _ in self.passed), grads) is not None:
                    raise LazytError(
                        f"{type(self.module).__name__}: a full backward hook replaced the gradients of inputs, of which"
                        " none requires grad"
                    )
        return [g for g, p in zip(grads, tracked, strict=True) if p]

    def _at_inputs(self, cts: list[Any]) -> list[Any]:
        given = iter(cts)
        grads = tuple(next(given) if p else None for p in self.passed)
        for hook in _of(self.module, "_backward_hooks"):
            grads = _replaced(self.module, "full backward hook", hook(self.module, grads, self.grad_output), grads)
        return [g for g, p in zip(grads, self.passed, strict=True) if p]


def _replaced(module: Any, what: str, changed: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    if changed is None:
        return grads
    new = changed if isinstance(changed, tuple) else (changed,)
    if len(new) != len(grads):
        raise LazytError(f"{type(module).__name__}: a {what} returns {len(grads)} gradients or None, got {len(new)}")
    return tuple(g if n is None else n for n, g in zip(new, grads, strict=True))


def _through(module: Any, xs: list[Any], rule: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """The same tensors, whose cotangents pass through `rule` together."""
    if len(xs) == 1:
        return [_passed(xs[0], lambda ct: rule([ct])[0])]
    if len({(x.dtype, x.device) for x in xs}) > 1:
        raise NotSupportedError(
            f"{type(module).__name__}: not supported: full backward hooks of tensors of several dtypes or devices, "
            f"because their gradients pass as one vector; got {', '.join(f'{x.dtype} on {x.device}' for x in xs)}"
        )
    shapes = [x.shape for x in xs]
    flat = _passed(
        concat([reshape(x, (-1,)) for x in xs]),
        lambda ct: concat([reshape(c, (-1,)) for c in rule(_parts(ct, shapes))]),
    )
    return _parts(flat, shapes)


def _parts(flat: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    out, at = [], 0
    for shape in shapes:
        n = math.prod(shape)
        out.append(reshape(flat[at : at + n], shape))
        at += n
    return out


def _passed(x: Any, rule: Callable[[Any], Any]) -> Any:
    f = custom_vjp(lambda v: v * 1)
    f.defvjp(lambda v: (v * 1, ()), lambda _, ct: (rule(ct),))
    return f(x)
