"""The tree of modules: parameters, buffers, hooks and state, with PyTorch's names and semantics."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyt.errors import DTypeError, LazytError, ShapeError
from lazyt.functions.arguments import tensor
from lazyt.functions.manipulation import astype
from lazyt.ir import dtypes
from lazyt.optim.parameters import clear_gradient, write_all
from lazyt.runtime.device import Device
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lazyt.runtime.tensor import Tensor


def Parameter(data: Any, requires_grad: bool = True) -> Tensor:  # noqa: N802  PyTorch's name
    """A leaf tensor that a Module takes for a parameter when it is assigned to an attribute.

    >>> import lazyt as lt
    >>> lt.nn.Parameter([1.0, 2.0]).requires_grad
    True
    """
    x = tensor(data)
    if x is data and (x.requires_grad or x._view is not None):
        x = x.detach().__copy__()
    return x.requires_grad_() if requires_grad else x


class Keys(NamedTuple):
    """What `load_state_dict` did not find."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Removable:
    """A hook that was registered; `remove()` takes it away."""

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Any]) -> None:
        self.id = next(self._ids)
        self._hooks = hooks

    def remove(self) -> None:
        """Call the hook no more."""
        self._hooks.pop(self.id, None)


class Module:
    """A layer, or a tree of them: subclass it, assign parameters and modules to attributes, and write `forward`.

    A leaf tensor that requires grad becomes a parameter when it is assigned; `register_buffer` adds other state.

    >>> import lazyt as lt
    >>> class Twice(lt.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner = lt.nn.Linear(3, 3)
    ...     def forward(self, x):
    ...         return self.inner(self.inner(x))
    >>> [name for name, _ in Twice().named_parameters()]
    ['inner.weight', 'inner.bias']
    """

    training: bool

    def __init__(self) -> None:
        fields = self.__dict__
        fields["training"] = True
        for name in ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks"):
            fields[name] = {}
        fields["_not_saved"] = set()

    # Attributes

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        parameters = fields.get("_parameters")
        if parameters is None:
            if isinstance(value, Handle | Module):
                raise LazytError(f"{type(self).__name__}: call super().__init__() before assigning {name!r}")
            object.__setattr__(self, name, value)
            return
        modules, buffers = fields["_modules"], fields["_buffers"]
        if isinstance(value, Module):
            _forget(name, parameters, buffers, fields)
            modules[name] = value
        elif name in buffers and (value is None or isinstance(value, Handle)):
            buffers[name] = value
        elif isinstance(value, Handle) and value.requires_grad and value.is_leaf:
            _forget(name, modules, buffers, fields)
            parameters[name] = value
        elif name in parameters and (value is None or value is parameters[name]):
            parameters[name] = value
        elif name in modules and value is None:
            modules[name] = None
        elif name in parameters:
            what = "a tensor that would not be trained" if isinstance(value, Handle) else repr(type(value).__name__)
            raise DTypeError(
                f"{type(self).__name__}: cannot assign {what} as parameter {name!r} (Parameter or None "
                f"expected): wrap it in nn.Parameter, or register_parameter({name!r}, ...) one that stays frozen"
            )
        else:
            _forget(name, parameters, modules, buffers)
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        get = self.__dict__.get
        found = get("_parameters")
        if found is not None:
            if name in found:
                return found[name]
            for table in ("_modules", "_buffers"):
                found = get(table, ())
                if name in found:
                    return found[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._modules, self._buffers):
            if name in table:
                del table[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._modules, *self._buffers]

    def register_parameter(self, name: str, value: Any) -> None:
        """Make a tensor (or None) a parameter, even one that requires no grad."""
        _check_name(self, name)
        self._parameters[name] = value

    def register_buffer(self, name: str, value: Any, persistent: bool = True) -> None:
        """Add a tensor (or None) that is state but no parameter; `persistent` says whether it is saved."""
        _check_name(self, name)
        self._buffers[name] = value
        self._not_saved.discard(name)
        if not persistent:
            self._not_saved.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a child under any name."""
        _check_name(self, name)
        self._modules[name] = module

    add_module = register_module

    # Calls

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes: for subclasses to say."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    @filters_itself
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            fields = self.__dict__
            if not (fields["_forward_pre_hooks"] or fields["_forward_hooks"]):
                return self.forward(*args, **kwargs)
            for hook in tuple(self._forward_pre_hooks.values()):
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
            out = self.forward(*args, **kwargs)
            for hook in tuple(self._forward_hooks.values()):
                changed = hook(self, args, out)
                if changed is not None:
                    out = changed
            return out
        except Exception as error:
            filter_traceback(error, True)
            raise

    def register_forward_hook(self, hook: Callable[[Module, Any, Any], Any]) -> Removable:
        """Call `hook(module, args, output)` after `forward`; what it returns replaces the output."""
        handle = Removable(self._forward_hooks)
        self._forward_hooks[handle.id] = hook
        return handle

    def register_forward_pre_hook(self, hook: Callable[[Module, Any], Any]) -> Removable:
        """Call `hook(module, args)` before `forward`; what it returns replaces the arguments."""
        handle = Removable(self._forward_pre_hooks)
        self._forward_pre_hooks[handle.id] = hook
        return handle

    # The tree

    def named_modules(self, prefix: str = "", *, _seen: set[int] | None = None) -> Iterator[tuple[str, Module]]:
        """This module and all below it, each once, with its path."""
        seen = set() if _seen is None else _seen
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(_joined(prefix, name), _seen=seen)

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules right below, with their names."""
        return ((name, m) for name, m in self._modules.items() if m is not None)

    def children(self) -> Iterator[Module]:
        """The modules right below."""
        return (m for _, m in self.named_children())

    def _named(self, table: str, prefix: str, recurse: bool) -> Iterator[tuple[str, Tensor]]:
        seen = set()
        for path, m in self.named_modules(prefix) if recurse else ((prefix, self),):
            for name, x in getattr(m, table).items():
                if x is not None and id(x) not in seen:
                    seen.add(id(x))
                    yield _joined(path, name), x

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The parameters with their paths, shared ones once."""
        return self._named("_parameters", prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """The parameters, shared ones once."""
        return (x for _, x in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The buffers with their paths."""
        return self._named("_buffers", prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers."""
        return (x for _, x in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module at a path such as 'encoder.0'; AttributeError if there is none."""
        found: Module = self
        for name in target.split(".") if target else ():
            child = found._modules.get(name)
            if child is None:
                raise AttributeError(f"{type(found).__name__!r} has no submodule {name!r} (of {target!r})")
            found = child
        return found

    def get_parameter(self, target: str) -> Tensor:
        """The parameter at a path such as 'encoder.0.weight'; AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        x = self.get_submodule(path)._parameters.get(name)
        if x is None:
            raise AttributeError(f"no parameter {target!r}")
        return x  # type: ignore[no-any-return]

    def apply(self, fn: Callable[[Module], None]) -> Module:
        """Call `fn` on every module below, then on this one."""
        for m in self.children():
            m.apply(fn)
        fn(self)
        return self

    # Modes

    def train(self, mode: bool = True) -> Module:
        """Set `training` here and below: dropout and batch norm look at it."""
        for m in self.modules():
            m.training = mode
        return self

    def eval(self) -> Module:
        """`train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Ask for (or stop) gradients of every parameter."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the parameters, or set them to 0."""
        for p in self.parameters():
            clear_gradient(p, set_to_none)

    # State

    def state_dict(self, *, prefix: str = "") -> dict[str, Tensor]:
        """Parameters and persistent buffers by path, detached: they change when the module's do."""
        out: dict[str, Tensor] = OrderedDict()
        for path, m in _all_paths(self, prefix):
            for name, x in (*m._parameters.items(), *m._buffers.items()):
                if x is not None and name not in m._not_saved:
                    out[_joined(path, name)] = x.detach()
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Keys:
        """Copy a state (tensors or arrays) into the parameters and buffers, in place.

        Raises ShapeError before anything is written if keys are missing or unexpected (with `strict`), or of another
        shape.
        """
        targets: dict[str, Any] = {}
        for path, m in _all_paths(self, ""):
            for name, x in (*m._parameters.items(), *m._buffers.items()):
                if x is not None and name not in m._not_saved:
                    targets[_joined(path, name)] = x
        keys = Keys([k for k in targets if k not in state_dict], [k for k in state_dict if k not in targets])
        problems = [f"missing keys {keys.missing_keys}"] * bool(strict and keys.missing_keys)
        problems += [f"unexpected keys {keys.unexpected_keys}"] * bool(strict and keys.unexpected_keys)
        values = {k: tensor(v) for k, v in state_dict.items() if k in targets}
        for k, v in values.items():
            if v.shape != targets[k].shape:
                problems.append(f"{k} has shape {v.shape} where {targets[k].shape} is required")
        if problems:
            raise ShapeError(f"load_state_dict of {type(self).__name__}: {'; '.join(problems)}")
        for k, v in values.items():
            v = v.detach().to(targets[k].device)
            values[k] = v if v.dtype == targets[k].dtype else astype(v, targets[k].dtype)
        write_all([(targets[k], v) for k, v in values.items()])
        return keys

    def to(self, *args: Any, dtype: Any = None, device: Any = None) -> Module:
        """Cast floating parameters and buffers, or move all to a device; they are replaced by new tensors.

        Make optimizers afterwards. As `torch.nn.Module.to`.
        """
        for a in args:
            if isinstance(a, str | Device) and not _is_dtype(a):
                device = a
            else:
                dtype = a
        if device is not None:
            name = Device.check(device)
            self._replace(lambda x: x if x.device == name else x.detach().to(device=name))
        if dtype is not None:
            want = dtypes.as_dtype(dtype)
            if dtypes.kind(want) not in "fc":
                raise DTypeError(f"to: a floating dtype is required, got {want}")
            self._replace(lambda x: astype(x.detach(), want) if dtypes.kind(x.dtype) in "fc" else x)
        return self

    def _replace(self, f: Callable[[Tensor], Tensor]) -> None:
        """Every parameter and buffer x by a new leaf f(x); shared ones stay shared."""
        made: dict[int, Tensor] = {}
        for m in list(self.modules()):
            for table in (m._parameters, m._buffers):
                for name, x in table.items():
                    if x is None:
                        continue
                    y = made.get(id(x))
                    if y is None:
                        y = f(x)
                        if x.requires_grad and y is not x:
                            y.requires_grad_()
                        made[id(x)] = y
                    table[name] = y

    def half(self) -> Module:
        """`to(float16)`."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Module:
        """`to(bfloat16)`."""
        return self.to(dtypes.bfloat16)

    def float(self) -> Module:
        """`to(float32)`."""
        return self.to(dtypes.float32)

    def double(self) -> Module:
        """`to(float64)`."""
        return self.to(dtypes.float64)

    # Text

    def extra_repr(self) -> str:
        """What `repr` shows between the brackets, besides the children."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {m!r}".replace("\n", "\n  ") for name, m in self._modules.items()]
        if not lines:
            return f"{type(self).__name__}({self.extra_repr()})"
        head = [self.extra_repr()] if self.extra_repr() else []
        return f"{type(self).__name__}(\n  " + "\n  ".join([*head, *lines]) + "\n)"


def _is_dtype(spec: Any) -> bool:
    try:
        dtypes.as_dtype(spec)
    except DTypeError:
        return False
    return True


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _all_paths(m: Module, path: str) -> Iterator[tuple[str, Module]]:
    """Every path to a module: a shared one has several, and is saved under each."""
    yield path, m
    for name, child in m._modules.items():
        if child is not None:
            yield from _all_paths(child, _joined(path, name))


def _forget(name: str, *tables: dict[str, Any]) -> None:
    for t in tables:
        t.pop(name, None)


def _check_name(m: Module, name: str) -> None:
    if not name or "." in name:
        raise LazytError(f"{type(m).__name__}: a name without dots is required, got {name!r}")
    if hasattr(m, name) and name not in {**m._parameters, **m._buffers, **m._modules}:
        raise LazytError(f"{type(m).__name__}: attribute {name!r} is there already")
