"""The state of a tree of modules: what `state_dict` gives and `load_state_dict` takes."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.errors import DTypeError, StateError
from lazyt.functions.arguments import tensor
from lazyt.functions.manipulation import astype
from lazyt.nn.parameter import Parameter
from lazyt.nn.uninitialized import is_uninitialized
from lazyt.optim.parameters import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXTRA = "_extra_state"


class Keys(NamedTuple):
    """What `load_state_dict` did not find, and what it had no use for."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not (self.missing_keys or self.unexpected_keys):
            return "<All keys matched successfully>"
        return f"Keys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def joined(path: str, name: str) -> str:
    """`name` behind a path of modules."""
    return f"{path}.{name}" if path else name


def saved(module: Any) -> Iterator[tuple[str, Any]]:
    """The parameters and persistent buffers of one module."""
    for name, x in (*module._parameters.items(), *module._buffers.items()):
        if x is not None and name not in module._not_saved:
            yield name, x


def has_extra(module: Any) -> bool:
    """Whether a subclass has state of its own that is no tensor."""
    return type(module).get_extra_state is not _base(module).get_extra_state


def _base(module: Any) -> Any:
    return next(c for c in type(module).__mro__ if "get_extra_state" in vars(c) and c.__module__ == "lazyt.nn.module")


def collect(module: Any, destination: dict[str, Any], prefix: str, keep_vars: bool) -> dict[str, Any]:
    """Add a module's state to a dict, and that of the modules below it, with hooks. `prefix` ends with a dot."""
    for hook in module._state_dict_pre_hooks.values():
        hook(module, prefix, keep_vars)
    metadata = {"version": module._version}
    of_all = getattr(destination, "_metadata", None)
    if of_all is not None:
        of_all[prefix[:-1]] = metadata
    for name, x in saved(module):
        destination[prefix + name] = x if keep_vars else x.detach()
    if has_extra(module):
        destination[prefix + EXTRA] = module.get_extra_state()
    for name, child in module._modules.items():
        if child is not None:
            collect(child, destination, f"{prefix}{name}.", keep_vars)
    for hook in module._state_dict_hooks.values():
        changed = hook(module, destination, prefix, metadata)
        if changed is not None:
            destination = changed
    return destination


class _Found(NamedTuple):
    """What fits: (module, name, its tensor, key) for tensors and (module, key) for extra state, and what does not."""

    targets: list[tuple[Any, str, Any, str]]
    extras: list[tuple[Any, str]]
    missing: list[str]
    known: set[str]
    errors: list[str]


def _walk(module: Any, state: dict[str, Any], prefix: str, strict: bool, found: _Found) -> None:
    for hook in module._load_state_dict_pre_hooks.values():
        unexpected: list[str] = []
        hook(module, state, prefix, {}, strict, found.missing, unexpected, found.errors)
        found.errors.extend(_unfit("Unexpected", unexpected))
    for name, x in saved(module):
        key = prefix + name
        found.known.add(key)
        if key in state and is_uninitialized(x) and is_uninitialized(state[key]):
            continue
        if key in state:
            found.targets.append((module, name, x, key))
        else:
            found.missing.append(key)
    if has_extra(module) or prefix + EXTRA in state:
        found.known.add(prefix + EXTRA)
        if prefix + EXTRA in state:
            found.extras.append((module, prefix + EXTRA))
        else:
            found.missing.append(prefix + EXTRA)
    for name, child in module._modules.items():
        if child is not None:
            _walk(child, state, f"{prefix}{name}.", strict, found)


def _unfit(what: str, keys: list[str]) -> list[str]:
    """The problem of keys, if there are any."""
    listed = ", ".join(f'"{k}"' for k in keys)
    return [f"{what} key(s) in state_dict: {listed}"] if keys else []


def load(module: Any, given: Mapping[str, Any], strict: bool, assign: bool) -> Keys:
    """Put a state into a module and those below it, all of it or nothing."""
    name = f"load_state_dict of {type(module).__name__}"
    if not hasattr(given, "keys"):
        raise DTypeError(f"{name}: a dict of tensors is required, got {type(given).__name__}")
    state = OrderedDict(given)
    found = _Found([], [], [], set(), [])
    _walk(module, state, "", strict, found)
    keys = Keys(found.missing, [k for k in state if k not in found.known])
    # NOTE: in PyTorch's words, which programs look for.
    problems = [*_unfit("Missing", keys.missing_keys), *_unfit("Unexpected", keys.unexpected_keys)] if strict else []
    values = {key: _value(name, key, state[key]) for _, _, _, key in found.targets}
    for _, _, x, key in found.targets:
        if is_uninitialized(values[key]):
            problems.append(f"{key} has no shape yet where {x.shape} is required: call the saved module once")
        elif not is_uninitialized(x) and values[key].shape != x.shape:
            problems.append(
                f"size mismatch for {key}: copying a param with shape {values[key].shape} from checkpoint, "
                f"the shape in current model is {x.shape}"
            )
    problems += found.errors
    if problems:
        raise StateError(f"{name}: {'; '.join(problems)}")
    for _, _, x, key in found.targets:
        if is_uninitialized(x) and not assign:
            x.materialize(values[key].shape)
    _put(found, values, assign)
    for owner, key in found.extras:
        owner.set_extra_state(state[key])
    _notify(module, keys)
    return keys


def _value(name: str, key: str, given: Any) -> Any:
    try:
        return tensor(given)
    except (DTypeError, ValueError, TypeError) as e:
        raise DTypeError(f"{name}: {key} is a tensor or an array, got a {type(given).__name__}") from e


def _put(found: _Found, values: dict[str, Any], assign: bool) -> None:
    if assign:
        for module, name, x, key in found.targets:
            v = values[key]
            if name not in module._parameters:
                module._buffers[name] = v
                continue
            fits = v.is_leaf and v.requires_grad == x.requires_grad
            module._parameters[name] = v if fits else Parameter(v.detach(), x.requires_grad)
        return
    writes = []
    for _, _, x, key in found.targets:
        v = values[key].detach().to(x.device)
        writes.append((x, v if v.dtype == x.dtype else astype(v, x.dtype)))
    write_all(writes)


def _notify(module: Any, keys: Keys) -> None:
    for child in module._modules.values():
        if child is not None:
            _notify(child, keys)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, keys) is not None:
            raise DTypeError(
                f"{type(module).__name__}: a load_state_dict post-hook changes the keys in place and returns None"
            )
