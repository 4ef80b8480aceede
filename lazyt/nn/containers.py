"""Modules that hold modules; those that hold parameters are in `parameter_containers`."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from lazyt.errors import DTypeError, NotSupportedError
from lazyt.nn.module import Module

__all__ = ["ModuleDict", "ModuleList", "Sequential"]


class _Indexed(Module):
    """Children by position."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._modules.values()))

    def __reversed__(self) -> Iterator[Module]:
        return iter(list(self._modules.values())[::-1])

    def __contains__(self, module: object) -> bool:
        return any(m is module for m in self._modules.values())

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def _key(self, index: Any) -> str:
        n, i = len(self), operator.index(index)
        if not -n <= i < n:
            raise IndexError(f"{type(self).__name__}: index {i} is out of range for {n} modules")
        return str(list(self._modules)[i % n])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._of(list(self._modules.items())[index])
        return self._modules[self._key(index)]

    def _of(self, modules: list[tuple[str, Any]]) -> Any:
        return type(self)([m for _, m in modules])  # type: ignore[call-arg]

    def __setitem__(self, index: Any, module: Module) -> None:
        self.register_module(self._key(index), module)

    def __delitem__(self, index: Any) -> None:
        keys = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            del self._modules[key]
        self._renumber(list(self._modules.values()))

    def _renumber(self, modules: list[Any]) -> None:
        self._modules.clear()
        self._modules.update({str(i): m for i, m in enumerate(modules)})

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.register_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        if not isinstance(modules, Iterable) or isinstance(modules, str | Mapping):
            raise DTypeError(f"{type(self).__name__}.extend: modules one after another are required, got {modules!r}")
        for m in list(modules):
            self.append(m)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before position `index`."""
        rest = list(self)
        rest.insert(index, module)
        self.append(module)  # what is no module is refused, and nothing has changed then
        self._renumber(rest)
        return self

    def pop(self, index: int | slice = -1) -> Any:
        """Remove a module, by default the last, and return it."""
        found = self[index]
        del self[index]
        return found

    def __iadd__(self, modules: Iterable[Module]) -> Any:
        return self.extend(modules)

    def __add__(self, modules: Iterable[Module]) -> Any:
        if not isinstance(modules, Iterable):
            return NotImplemented
        return self._of([(str(i), m) for i, m in enumerate(chain(self, modules))])


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

    def _of(self, modules: list[tuple[str, Any]]) -> Any:
        return type(self)(OrderedDict(modules))

    def __delitem__(self, index: Any) -> None:
        # Names of one's own stay; numbers are given anew, as in PyTorch.
        plain = list(self._modules) == [str(i) for i in range(len(self))]
        keys = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            del self._modules[key]
        if plain:
            self._renumber(list(self._modules.values()))

    def __mul__(self, times: int) -> Any:
        n = self._times(times)
        return type(self)(*(m for _ in range(n) for m in self))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Any:
        n, own = self._times(times), list(self)
        for _ in range(n - 1):
            self.extend(own)
        return self

    def _times(self, times: Any) -> int:
        n = operator.index(times)
        if n < 1:
            raise DTypeError(f"Sequential: a positive number of repetitions is required, got {times}")
        return n

    def forward(self, input: Any) -> Any:
        x = input
        for m in self._modules.values():
            x = m(x)
        return x


class ModuleList(_Indexed):
    """A list of modules. As `torch.nn.ModuleList`.

    >>> import lazyt as lt
    >>> len(lt.nn.ModuleList([lt.nn.ReLU(), lt.nn.Tanh()]))
    2
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)

    def __repr__(self) -> str:
        """As other modules', with modules that follow each other and look alike in one line: `(0-5): 6 x Block(`."""
        runs: list[tuple[int, int, str]] = []
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        if not runs:
            return f"{type(self).__name__}()"
        lines = [f"({i}): {text}" if i == j else f"({i}-{j}): {j - i + 1} x {text}" for i, j, text in runs]
        return f"{type(self).__name__}(\n  " + "\n  ".join(line.replace("\n", "\n  ") for line in lines) + "\n)"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotSupportedError(f"{type(self).__name__}: a list of modules is not called; call its modules in forward")


class ModuleDict(Module):
    """A dictionary of modules. As `torch.nn.ModuleDict`.

    >>> import lazyt as lt
    >>> list(lt.nn.ModuleDict({"act": lt.nn.ReLU()}))
    ['act']
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
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

    def __reversed__(self) -> Iterator[str]:
        return iter(list(self._modules)[::-1])

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

    def clear(self) -> None:
        """Remove all."""
        self._modules.clear()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules by name, replacing those of the same name; from a dict or pairs."""
        for key, m in modules.items() if isinstance(modules, Mapping | ModuleDict) else modules:
            self[key] = m

    def pop(self, key: str) -> Module:
        """Remove a module and return it."""
        return self._modules.pop(key)  # type: ignore[no-any-return]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotSupportedError(f"{type(self).__name__}: a dict of modules is not called; call its modules in forward")
