"""The tree of modules: parameters, buffers, hooks and state, with PyTorch's names and semantics."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Never

from lazyt.backends.registry import is_kind
from lazyt.config import HOST
from lazyt.errors import ArgumentError, DTypeError, InvalidKey, LazytError, NotSupportedError, UninitializedModule
from lazyt.nn import conversion, state
from lazyt.nn.hooks import ANY, EVERYWHERE, KINDS, Hooked, call_with_hooks
from lazyt.nn.parameter import Buffer, Parameter, Parameters, buffer_of, is_parameter_here
from lazyt.nn.state import Keys, joined
from lazyt.optim.parameters import clear_gradient
from lazyt.tracing.call_guards import CountedDict, count_change
from lazyt.tracing.tensor_state import Handle
from lazyt.tracing.tracebacks import filter_traceback, filters_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lazyt.runtime.tensor import Tensor

__all__ = ["Buffer", "Module", "Parameter"]


_attributes_of = Hooked._attributes_of
_set_attributes = vars(Hooked)["__dict__"].__set__


class Module(Hooked):
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
    # What a subclass may set: the version of its state, for `load_state_dict` pre-hooks.
    _version: int | None = None
    # A function under `jit` looks through a module only where one has changed since; and through these.
    counts_changes = (EVERYWHERE,)
    # These are set nowhere else than where a change is counted.
    counted = frozenset(("training", "_parameters", "_buffers", "_modules", *KINDS))
    # No call reads these.
    unwatched = frozenset(("_not_saved",))

    def __init__(self) -> None:
        fields = _attributes_of(self)
        fields["training"] = True
        for name in ("_parameters", "_buffers", "_modules", *KINDS):
            fields[name] = Parameters() if name == "_parameters" else CountedDict()
        fields["_not_saved"] = set()

    # Attributes

    @property
    def __dict__(self) -> dict[str, Any]:
        """The attributes: they count as changed, because one may be set there."""
        count_change()
        return _attributes_of(self)

    @__dict__.setter
    def __dict__(self, value: dict[str, Any]) -> None:
        count_change()
        _set_attributes(self, value)

    def __setattr__(self, name: str, value: Any) -> None:
        count_change()
        fields = _attributes_of(self)
        parameters = fields.get("_parameters")
        if parameters is None:
            if isinstance(value, Handle | Module):
                raise UninitializedModule(f"{type(self).__name__}: call super().__init__() before assigning {name!r}")
            object.__setattr__(self, name, value)
            return
        modules, buffers = fields["_modules"], fields["_buffers"]
        if isinstance(value, Module):
            _forget(name, parameters, buffers, fields)
            modules[name] = value
        elif name in buffers and (value is None or isinstance(value, Handle)):
            buffers[name] = value
        elif is_parameter_here(value):
            _forget(name, modules, buffers, fields)
            parameters[name] = value
        elif (persistent := buffer_of(value)) is not None:
            _forget(name, parameters, modules, fields)
            self.register_buffer(name, value, persistent)
        elif name in parameters and (value is None or value is parameters[name]):
            parameters[name] = value
        elif name in modules and value is None:
            modules[name] = None
        elif name in modules or name in buffers:
            what, wanted = ("a submodule", "Module") if name in modules else ("a buffer", "a tensor")
            raise DTypeError(
                f"{type(self).__name__}: cannot assign {type(value).__name__!r} to {name!r}, which is {what} "
                f"({wanted} or None expected): del it first, to have another attribute there"
            )
        elif name in parameters:
            what = "a tensor that would not be trained" if isinstance(value, Handle) else repr(type(value).__name__)
            raise DTypeError(
                f"{type(self).__name__}: cannot assign {what} as parameter {name!r} (Parameter or None "
                f"expected): wrap it in nn.Parameter, or register_parameter({name!r}, ...) one that stays frozen"
            )
        else:
            _forget(name, parameters, modules, buffers)
            object.__setattr__(self, name, value)

    @filters_itself
    def __getattr__(self, name: str) -> Any:
        get = _attributes_of(self).get
        found = get("_parameters")
        if found is not None:
            if name in found:
                return found[name]
            for table in ("_modules", "_buffers"):
                found = get(table, ())
                if name in found:
                    return found[name]
        if not name.startswith("_") and is_kind(name):
            return partial(_move, self, name)
        try:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        except AttributeError as error:
            filter_traceback(error)
            raise

    def __delattr__(self, name: str) -> None:
        count_change()
        for table in (self._parameters, self._modules, self._buffers):
            if name in table:
                del table[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return [*{*super().__dir__(), *self._parameters, *self._modules, *self._buffers}]

    def register_parameter(self, name: str, param: Any) -> None:
        """Make a tensor (or None) a parameter, even one that requires no grad."""
        _check_name(self, name, self._parameters)
        if not (param is None or (isinstance(param, Handle) and param.is_leaf)):
            what = "no leaf" if isinstance(param, Handle) else f"a {type(param).__name__}"
            raise DTypeError(f"{type(self).__name__}: parameter {name!r} is a leaf tensor or None, got {what}")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Add a tensor (or None) that is state but no parameter; `persistent` says whether it is saved."""
        _check_name(self, name, self._buffers)
        if not (tensor is None or isinstance(tensor, Handle)):
            raise DTypeError(
                f"{type(self).__name__}: buffer {name!r} is a tensor or None, got a {type(tensor).__name__}"
            )
        self._buffers[name] = tensor
        self._not_saved.discard(name)
        if not persistent:
            self._not_saved.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a child under any name that is not taken by anything else."""
        _check_name(self, name, self._modules)
        if not (module is None or isinstance(module, Module)):
            raise DTypeError(
                f"{type(self).__name__}: child {name!r} is a Module or None, got a {type(module).__name__}"
            )
        self._modules[name] = module

    add_module = register_module

    # Calls

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes: for subclasses to say."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    @filters_itself
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            fields = _attributes_of(self)
            if not (
                fields["_forward_pre_hooks"]
                or fields["_forward_hooks"]
                or fields["_backward_hooks"]
                or fields["_backward_pre_hooks"]
                or ANY
            ):
                return self.forward(*args, **kwargs)
            return call_with_hooks(self, args, kwargs)
        except Exception as error:
            if isinstance(error, LazytError):
                _note_place(error, self)
            filter_traceback(error, True)
            raise

    def compile(self, *args: Any, **kwargs: Any) -> Never:
        """Refused: lazyt records and compiles whatever runs, so there is nothing to ask for."""
        raise NotSupportedError(
            "compile: not needed: lazyt records and compiles what runs; lt.jit(module) skips its Python too"
        )

    # The tree

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, each once (or once a path), with their paths."""
        seen = set() if memo is None else memo
        if self in seen:
            return
        if remove_duplicate:
            seen.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(seen, joined(prefix, name), remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules right below, each once, with their names."""
        seen: set[Module] = set()
        for name, m in self._modules.items():
            if m is not None and m not in seen:
                seen.add(m)
                yield name, m

    def children(self) -> Iterator[Module]:
        """The modules right below, each once."""
        return (m for _, m in self.named_children())

    def _named(self, table: str, prefix: str, recurse: bool, once: bool) -> Iterator[tuple[str, Tensor]]:
        seen = set()
        tree = self.named_modules(prefix=prefix, remove_duplicate=once) if recurse else ((prefix, self),)
        for path, m in tree:
            for name, x in getattr(m, table).items():
                if x is not None and id(x) not in seen:
                    if once:
                        seen.add(id(x))
                    yield joined(path, name), x

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The parameters with their paths, shared ones once (or under each path)."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """The parameters, shared ones once."""
        return (x for _, x in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers with their paths, shared ones once (or under each path)."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, shared ones once."""
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

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path such as 'norm.running_mean'; AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        x = self.get_submodule(path)._buffers.get(name)
        if x is None:
            raise AttributeError(f"no buffer {target!r}")
        return x  # type: ignore[no-any-return]

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a path such as 'encoder.0'; AttributeError if its parent (`strict`: it) is not there."""
        if not isinstance(module, Module):
            raise DTypeError(f"set_submodule: a Module is required, got a {type(module).__name__}")
        path, _, name = target.rpartition(".")
        if not name:
            raise ArgumentError(f"set_submodule: a path is required, got {target!r}")
        parent = self.get_submodule(path)
        if strict and name not in parent._modules:
            raise AttributeError(f"{type(parent).__name__!r} has no submodule {name!r} (of {target!r})")
        parent.register_module(name, module)

    def apply(self, fn: Callable[[Module], None]) -> Module:
        """Call `fn` on every module below, then on this one."""
        for m in self.children():
            m.apply(fn)
        fn(self)
        return self

    # Modes

    def train(self, mode: bool = True) -> Module:
        """Set `training` here and below: dropout and batch norm look at it."""
        if not isinstance(mode, bool):
            raise DTypeError(f"train: mode is True or False, got {mode!r}")
        for m in self.modules():
            m.training = mode
        return self

    def eval(self) -> Module:
        """`train(False)`."""
        return self.train(False)

    def share_memory(self) -> Module:
        """Move parameters and buffers to shared memory (`Tensor.share_memory_`). As `torch.nn.Module.share_memory`."""
        for x in (*self.parameters(), *self.buffers()):
            x.share_memory_()
        return self

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

    def state_dict(
        self, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by path: detached, so they change when the module's do; or themselves.

        They are added to `destination` if there is one; `prefix` stands before each path.
        """
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # type: ignore[attr-defined]
        return state.collect(self, destination, prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Keys:
        """Copy a state (tensors or arrays) into the parameters and buffers, in place; with `assign`, take them as ours.

        Raises StateError, a RuntimeError, before anything is written if keys are missing or unexpected (with `strict`),
        or of another shape: it lists all of them.
        """
        return state.load(self, state_dict, strict, assign)

    def get_extra_state(self) -> Any:
        """State of a subclass that is no tensor, for `state_dict`: for subclasses to say."""
        raise NotImplementedError(f"{type(self).__name__} has no extra state")

    def set_extra_state(self, state: Any) -> None:
        """Take what `get_extra_state` gave: for subclasses to say."""
        raise NotImplementedError(f"{type(self).__name__} has no extra state")

    # Conversions

    def to(
        self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Module:  # fmt: skip
        """Cast floating parameters and buffers, or move all to a device: all of them, or none if that fails.

        Given by position or by name, or as a tensor that has both. Parameters stay the tensors that they are, so an
        optimizer made before trains them; their gradients go with them. Buffers are new ones. `memory_format` changes
        nothing: values are always contiguous. As `torch.nn.Module.to`.
        """
        conversion.convert(self, args, dtype, device)
        return self

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """Move to a device without the values: parameters and buffers are to be filled. As `torch.nn.Module.to_empty`.

        `recurse=False` leaves the modules below as they are.
        """
        conversion.empty_on(self, device, recurse)
        return self

    def type(self, dst_type: Any) -> Module:
        """Cast all parameters and buffers, of whatever dtype."""
        conversion.cast_all(self, dst_type)
        return self

    def half(self) -> Module:
        """`to(float16)`."""
        return self.to("float16")

    def bfloat16(self) -> Module:
        """`to(bfloat16)`."""
        return self.to("bfloat16")

    def float(self) -> Module:
        """`to(float32)`."""
        return self.to("float32")

    def double(self) -> Module:
        """`to(float64)`."""
        return self.to("float64")

    def cpu(self) -> Module:
        """`to("cpu")`."""
        return self.to(device=HOST)

    def cuda(self, device: int = 0) -> Module:
        """`to("cuda:0")`, or another GPU; DeviceError where there is none."""
        return self.to(device=f"cuda:{device}")

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


def _move(module: Module, kind: str, device: int | None = None) -> Module:
    """`module.npu()`, `module.npu(1)`: to a device of a backend that is registered, or of a plugin."""
    return module.to(device=kind if device is None else f"{kind}:{device}")


def _note_place(error: LazytError, module: Module) -> None:
    """Add to an error of a forward which module it is of, by its path from the outermost module that was called."""
    inner, path, note = getattr(error, "_module", (module, "", ""))
    if inner is not module:
        named = (name for name, m in module.named_modules() if m is inner)
        found = next(named, type(inner).__name__)
        path = f"{found}.{path}" if path else found
    if note:
        error.__notes__.remove(note)
    head = f"{type(module).__name__}.{path}" if path else type(module).__name__
    leaf = getattr(error, "_layer", module)
    note = f"in the forward of {head}, which is {leaf!r}" if not leaf._modules else f"in the forward of {head}"
    error._module, error._layer = (module, path, note), leaf  # type: ignore[attr-defined]
    error.add_note(note)


def _forget(name: str, *tables: dict[str, Any]) -> None:
    for t in tables:
        t.pop(name, None)


def _has_own(m: Module, name: str) -> bool:
    """As `hasattr`, but for the names of devices: which plugins there are takes longer to find than a layer to make."""
    try:
        object.__getattribute__(m, name)
    except AttributeError:
        return False
    return True


def _check_name(m: Module, name: str, own: Mapping[str, Any]) -> None:
    """InvalidKey for a name that cannot be added to `own`: another entry there is replaced, elsewhere in the way."""
    if not name or "." in name:
        raise InvalidKey(f"{type(m).__name__}: a name without dots is required, got {name!r}")
    if name not in own and (name in m._parameters or name in m._buffers or name in m._modules or _has_own(m, name)):
        raise InvalidKey(f"{type(m).__name__}: attribute {name!r} is there already")
