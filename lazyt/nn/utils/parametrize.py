"""Parameters as functions of others: orthogonal, symmetric, of norm 1. As `torch.nn.utils.parametrize`."""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any, Never

from lazyt.errors import LazytError
from lazyt.nn.containers import ModuleDict, ModuleList
from lazyt.nn.module import Module
from lazyt.nn.parameter import Parameter, is_parameter
from lazyt.optim.parameters import write
from lazyt.tracing.current import restore_grad_mode, set_grad_mode
from lazyt.tracing.tensor_state import Handle

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

# The values of parametrized tensors within `cached()`, by module and name; how many blocks are open.
_cache: dict[tuple[int, str], Any] = {}
_open = 0


def __dir__() -> list[str]:
    return sorted(__all__)


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Within the block each parametrized tensor is computed once. As `torch.nn.utils.parametrize.cached`."""
    global _open
    _open += 1
    try:
        yield
    finally:
        _open -= 1
        if not _open:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor in order, and what they are computed from: `original`, or `original0`, ...

    Calling it gives the tensor. As `torch.nn.utils.parametrize.ParametrizationList`.
    """

    def __init__(self, modules: Any, original: Any, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        try:
            new = self._inverted(original)
        except NotImplementedError:  # what has no inverse begins at what it makes of the tensor
            new = original
        self.ntensors = len(new) if isinstance(new, tuple | list) else 1
        self.is_tensor = not isinstance(new, tuple | list)
        trained = is_parameter(original)
        for name, x in zip(self._names(), [new] if self.is_tensor else new, strict=True):
            if not trained:
                self.register_buffer(name, x.detach())
            elif x is original:
                self.register_parameter(name, x)
            elif self.is_tensor and x.shape == original.shape and x.dtype == original.dtype:
                write(original, x.detach())  # the parameter that an optimizer may have already
                self.register_parameter(name, original)
            else:
                self.register_parameter(name, Parameter(x.detach().clone(), original.requires_grad))

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def _inverted(self, value: Any) -> Any:
        """What the parametrizations would give `value` for; value itself where they do not say."""
        before = set_grad_mode(False)
        try:
            for m in reversed(list(self)):
                if hasattr(m, "right_inverse"):
                    value = m.right_inverse(value)
        finally:
            restore_grad_mode(before)
        return value

    def right_inverse(self, value: Any) -> None:
        """Write the originals so that the parametrized tensor is as near to `value` as they can make it."""
        new = self._inverted(value)
        parts = new if isinstance(new, tuple | list) else (new,)
        if len(parts) != self.ntensors:
            raise LazytError(f"right_inverse: {self.ntensors} tensors are required, got {len(parts)}")
        for name, x in zip(self._names(), parts, strict=True):
            write(getattr(self, name), x.detach())

    def forward(self) -> Any:
        first, *rest = self
        x = first(*(getattr(self, name) for name in self._names()))
        for m in rest:
            x = m(x)
        return x


def _getter(name: str) -> Any:
    def get(self: Any) -> Any:
        made = self._modules["parametrizations"]._modules[name]
        if not _open:
            return made()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = made()
        return _cache[key]

    return get


def _setter(name: str) -> Any:
    def put(self: Any, value: Any) -> None:
        self._modules["parametrizations"]._modules[name].right_inverse(value)

    return put


def _refuse_pickle(self: Any) -> Never:
    raise LazytError(
        f"{type(self).__name__}: not supported: pickling a parametrized module, because its class is made at run time; "
        "save its state_dict()"
    )


def _deepcopied(self: Any, memo: dict[int, Any]) -> Any:
    made = memo[id(self)] = self.__new__(type(self))
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return made


def _assigned(self: Any, name: str, value: Any) -> None:
    found = getattr(type(self), name, None)
    if isinstance(found, property) and found.fset is not None:
        found.fset(self, value)
    else:
        super(type(self), self).__setattr__(name, value)


def _begin(module: Module) -> None:
    """Give the module a class of its own, whose properties are the parametrized tensors."""
    cls = type(module)
    module.__class__ = type(
        f"Parametrized{cls.__name__}",
        (cls,),
        {
            "__module__": cls.__module__, "__deepcopy__": _deepcopied, "__setattr__": _assigned,
            "__getstate__": _refuse_pickle,
        },
    )  # fmt: skip
    module.register_module("parametrizations", ModuleDict())


def _tables(module: Any) -> list[dict[str, Any]]:
    return [module._parameters, module._buffers]


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Make a parameter or buffer the value of `parametrization`, a module, of what it was; returns the module.

    A method `right_inverse` of the parametrization says what to start from, and what an assignment writes. Further ones
    are applied to what the first give. Raises LazytError if there is no such tensor, or (unless `unsafe`) if the
    parametrization changes its shape or dtype. As `torch.nn.utils.parametrize.register_parametrization`.

    >>> import lazyt as lt
    >>> class Symmetric(lt.nn.Module):
    ...     def forward(self, x):
    ...         return lt.triu(x) + lt.triu(x, 1).mT
    >>> layer = lt.nn.utils.parametrize.register_parametrization(lt.nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.mT).all()), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    name = f"register_parametrization of {tensor_name!r}"
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain: Any = module.parametrizations[tensor_name]
        old = getattr(module, tensor_name)
        if not unsafe:
            _check(name, old, parametrization(old))
        chain.append(parametrization)
        chain.unsafe |= unsafe
        if hasattr(parametrization, "right_inverse"):
            chain.right_inverse(old)
        return module
    table = next((t for t in _tables(module) if t.get(tensor_name) is not None), None)
    if table is None:
        raise LazytError(f"{name}: {type(module).__name__} has no parameter or buffer of that name")
    original = table[tensor_name]
    made = ParametrizationList([parametrization], original, unsafe)
    if not unsafe:
        _check(name, original, made())
    if not is_parametrized(module):
        _begin(module)
    del table[tensor_name]
    module.parametrizations[tensor_name] = made
    setattr(type(module), tensor_name, property(_getter(tensor_name), _setter(tensor_name)))
    return module


def _check(name: str, old: Any, new: Any) -> None:
    if not isinstance(new, Handle) or new.shape != old.shape or new.dtype != old.dtype:
        got = f"{new.dtype} {new.shape}" if isinstance(new, Handle) else type(new).__name__
        raise LazytError(
            f"{name}: a parametrization that gives {old.dtype} {old.shape} is required, got {got}; unsafe=True takes it"
        )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrized tensors, or one of that name.

    As `torch.nn.utils.parametrize.is_parametrized`.

    >>> import lazyt as lt
    >>> lt.nn.utils.parametrize.is_parametrized(lt.nn.Linear(1, 1))
    False
    """
    made = module._modules.get("parametrizations")
    if not isinstance(made, ModuleDict) or not type(module).__name__.startswith("Parametrized"):
        return False
    return len(made) > 0 if tensor_name is None else tensor_name in made


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a parametrized tensor a plain one again: its value, or (not `leave_parametrized`) what it was made of.

    Raises LazytError if it is not parametrized, or made of several tensors that shall be left. As
    `torch.nn.utils.parametrize.remove_parametrizations`.

    >>> import lazyt as lt
    >>> layer = lt.nn.utils.parametrizations.weight_norm(lt.nn.Linear(3, 3))
    >>> layer = lt.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    >>> sorted(layer.state_dict())
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise LazytError(f"remove_parametrizations: {type(module).__name__}.{tensor_name} is not parametrized")
    chain: Any = module.parametrizations[tensor_name]
    if not leave_parametrized and not chain.is_tensor:
        raise LazytError(
            f"remove_parametrizations: {tensor_name!r} is made of {chain.ntensors} tensors, so leave_parametrized=False"
            " cannot leave one"
        )
    original = getattr(chain, chain._names()[0])
    value = getattr(module, tensor_name).detach() if leave_parametrized else original
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    last = not len(module.parametrizations)
    if last:
        del module._modules["parametrizations"]
        module.__class__ = type(module).__bases__[0]
    if not is_parameter(original):
        module.register_buffer(tensor_name, value)
    elif value is original or (value.shape, value.dtype) == (original.shape, original.dtype):
        if value is not original:
            write(original, value)
        module.register_parameter(tensor_name, original)
    else:
        module.register_parameter(tensor_name, Parameter(value.clone(), original.requires_grad))
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before it was parametrized.

    As `torch.nn.utils.parametrize.type_before_parametrizations`.

    >>> import lazyt as lt
    >>> lt.nn.utils.parametrize.type_before_parametrizations(lt.nn.Linear(1, 1)).__name__
    'Linear'
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrize a module as another one is (or one tensor), with the same parametrizations and copied originals.

    Raises LazytError if there is nothing to transfer. As
    `torch.nn.utils.parametrize.transfer_parametrizations_and_params`.

    >>> import lazyt as lt
    >>> one, two = lt.nn.utils.parametrizations.weight_norm(lt.nn.Linear(3, 3)), lt.nn.Linear(3, 3)
    >>> two = lt.nn.utils.parametrize.transfer_parametrizations_and_params(one, two)
    >>> bool((two.weight == one.weight).all())
    True
    """
    if not is_parametrized(from_module, tensor_name):
        raise LazytError("transfer_parametrizations_and_params: the module to transfer from is not parametrized")
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        chain: Any = from_module.parametrizations[name]
        if getattr(to_module, name, None) is None:
            to_module.register_parameter(name, Parameter(getattr(from_module, name).detach().clone()))
        for p in chain:
            register_parametrization(to_module, name, p, unsafe=chain.unsafe)
        target: Any = to_module.parametrizations[name]
        for original in chain._names():
            write(getattr(target, original), getattr(chain, original).detach())
    return to_module
