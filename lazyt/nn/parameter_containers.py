"""Lists and dictionaries of parameters, and of other values that belong beside them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from lazyt.errors import DTypeError, NotSupportedError
from lazyt.nn.module import Module
from lazyt.nn.parameter import Parameter, buffer_of, is_parameter
from lazyt.tracing.tensor_state import Handle

__all__ = ["ParameterDict", "ParameterList"]


class _Holder(Module):
    """Values as attributes: tensors become parameters, unless they are buffers; others stay what they are."""

    def _put(self, name: str, value: Any) -> None:
        if isinstance(value, Handle) and not is_parameter(value) and buffer_of(value) is None:
            value = Parameter(value)
        setattr(self, name, value)

    def extra_repr(self) -> str:
        lines = []
        for name in self._names():
            x = getattr(self, name)
            what = f"{x.dtype} {x.shape}" if isinstance(x, Handle) else type(x).__name__
            lines.append(f"({name}): {'Parameter of ' if is_parameter(x) else ''}{what}")
        return "\n  ".join(lines)

    def _names(self) -> list[str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        text = self.extra_repr()
        return f"{type(self).__name__}(\n  {text}\n)" if text else f"{type(self).__name__}()"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotSupportedError(f"{type(self).__name__}: not called; it holds parameters")


class ParameterList(_Holder):
    """A list of parameters; tensors become parameters, other values stay what they are. As `torch.nn.ParameterList`.

    >>> import lazyt as lt
    >>> len(lt.nn.ParameterList([lt.nn.Parameter([1.0]), lt.ones(2)]))
    2
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(() if values is None else values)

    def _names(self) -> list[str]:
        return [str(i) for i in range(self._size)]

    def _index(self, index: Any) -> str:
        i, n = operator.index(index), self._size
        if not -n <= i < n:
            raise IndexError(f"{type(self).__name__}: index {i} is out of range for {n} parameters")
        return str(i % n)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __contains__(self, value: object) -> bool:
        return any(x is value for x in self)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            made = type(self)()
            for name in self._names()[index]:
                made.append(getattr(self, name))
            return made if index != slice(None) else [getattr(self, name) for name in self._names()]
        return getattr(self, self._index(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._put(self._index(index), value)

    def __delitem__(self, index: Any) -> None:
        rest = [getattr(self, name) for name in self._names()]
        del rest[index]
        for name in self._names():
            delattr(self, name)
        self._size = 0
        self.extend(rest)

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end."""
        self._put(str(self._size), value)
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Handle | str):
            raise DTypeError(f"{type(self).__name__}.extend: a list of parameters is required, got {values!r}")
        for value in list(values):
            self.append(value)
        return self

    def pop(self, index: int = -1) -> Any:
        """Remove a value, by default the last, and return it."""
        value = self[index]
        del self[index]
        return value

    def __iadd__(self, values: Iterable[Any]) -> Self:
        self.extend(values)
        return self

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]


class ParameterDict(_Holder):
    """A dictionary of parameters, in the order of insertion; tensors become parameters. As `torch.nn.ParameterDict`.

    >>> import lazyt as lt
    >>> p = lt.nn.ParameterDict({"left": lt.ones(2)}) | {"right": lt.ones(3)}
    >>> [name for name, _ in p.named_parameters()]
    ['left', 'right']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _names(self) -> list[str]:
        return list(self._keys)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise DTypeError(f"{type(self).__name__}: a key is a str, got {key!r}")
        if key not in self._keys and hasattr(self, key):
            raise KeyError(f"{type(self).__name__}: attribute {key!r} is there already")
        self._put(key, value)
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        if key not in self._keys:
            raise KeyError(key)
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: Mapping[str, Any]) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Mapping[str, Any]) -> ParameterDict:
        made = type(self)(other)
        made.update(self)
        return made

    def __ior__(self, other: Mapping[str, Any]) -> Self:
        self.update(other)
        return self

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """The values."""
        return [self[k] for k in self._keys]

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and values."""
        return [(k, self[k]) for k in self._keys]

    def copy(self) -> ParameterDict:
        """Another dictionary of the same parameters."""
        return type(self)(dict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a name, which is `default` if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove all."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove a value and return it; KeyError if there is none."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last name and value and return them; KeyError if there is none."""
        if not self._keys:
            raise KeyError(f"{type(self).__name__}: empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a name, or `default`."""
        return self[key] if key in self else default  # noqa: SIM401 - this is what get is made of

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary of these names, all with one value."""
        return type(self)(dict.fromkeys(keys, default))

    def update(self, parameters: Any) -> None:
        """Add values by name, replacing those of the same name; from a dict or pairs."""
        pairs = parameters.items() if hasattr(parameters, "items") else parameters
        for key, value in pairs:
            self[key] = value
