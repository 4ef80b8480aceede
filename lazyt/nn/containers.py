"""Modules that hold modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt.nn.module import Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["ModuleDict", "ModuleList", "ParameterList", "Sequential"]


class _Indexed(Module):
    """Children by position."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._modules.values()))

    def _key(self, index: int) -> str:
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"{type(self).__name__}: index {index} is out of range for {n} modules")
        return str(list(self._modules)[index % n])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._of(list(self)[index])
        return self._modules[self._key(index)]

    def _of(self, modules: list[Module]) -> Any:
        return type(self)(modules)  # type: ignore[call-arg]

    def __setitem__(self, index: int, module: Module) -> None:
        self._modules[self._key(index)] = module

    def __delitem__(self, index: int) -> None:
        rest = list(self)
        del rest[index]
        self._modules.clear()
        self._modules.update({str(i): m for i, m in enumerate(rest)})

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.register_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        for m in modules:
            self.append(m)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before position `index`."""
        rest = list(self)
        rest.insert(index, module)
        self._modules.clear()
        self._modules.update({str(i): m for i, m in enumerate(rest)})
        return self


class Sequential(_Indexed):
    """Calls its modules one after another. As `torch.nn.Sequential`.

    >>> import lazyt as lt
    >>> lt.nn.Sequential(lt.nn.Flatten(), lt.nn.ReLU())(lt.asarray([[[-1.0, 2.0]]])).tolist()
    [[0.0, 2.0]]
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        named = modules[0].items() if len(modules) == 1 and isinstance(modules[0], dict) else None
        for name, m in named if named is not None else enumerate(modules):
            self.register_module(str(name), m)

    def _of(self, modules: list[Module]) -> Any:
        return type(self)(*modules)

    def forward(self, x: Any) -> Any:
        for m in self._modules.values():
            x = m(x)
        return x


class ModuleList(_Indexed):
    """A list of modules. As `torch.nn.ModuleList`.

    >>> import lazyt as lt
    >>> len(lt.nn.ModuleList([lt.nn.ReLU(), lt.nn.Tanh()]))
    2
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)


class ModuleDict(Module):
    """A dictionary of modules. As `torch.nn.ModuleDict`.

    >>> import lazyt as lt
    >>> list(lt.nn.ModuleDict({"act": lt.nn.ReLU()}))
    ['act']
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]  # type: ignore[no-any-return]

    def __setitem__(self, key: str, module: Module) -> None:
        self.register_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return list(self._modules.keys())

    def values(self) -> Iterable[Module]:
        """The modules."""
        return list(self._modules.values())

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return list(self._modules.items())

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add modules by name, replacing those of the same name."""
        for key, m in modules.items():
            self[key] = m

    def pop(self, key: str) -> Module:
        """Remove a module and return it."""
        return self._modules.pop(key)  # type: ignore[no-any-return]


class ParameterList(Module):
    """A list of parameters. As `torch.nn.ParameterList`.

    >>> import lazyt as lt
    >>> len(lt.nn.ParameterList([lt.nn.Parameter([1.0])]))
    1
    """

    def __init__(self, parameters: Iterable[Any] = ()) -> None:
        super().__init__()
        for p in parameters:
            self.append(p)

    def append(self, parameter: Any) -> ParameterList:
        """Add a parameter at the end."""
        self.register_parameter(str(len(self)), parameter)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._parameters.values()))

    def __getitem__(self, index: int) -> Any:
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"ParameterList: index {index} is out of range for {n} parameters")
        return self._parameters[str(index % n)]
