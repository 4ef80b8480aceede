"""Context managers that decorate functions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, Self, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Context:
    """A context manager that also decorates functions: it is entered for each call.

    For a generator function, as in PyTorch, it is entered whenever the body runs, and left where a value is given.
    """

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    def __call__(self, f: F) -> F:
        if not callable(f):
            raise TypeError(f"{type(self).__name__}: a function is decorated, not {type(f).__name__!r}")

        @wraps(f)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return f(*args, **kwargs)

        @wraps(f)
        def turns(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                generator = f(*args, **kwargs)
            return (yield from _Turns(self._again, generator))

        return turns if isgeneratorfunction(f) else inner  # type: ignore[return-value]

    def _again(self) -> Context:
        return type(self)()


class _Turns(Generator[Any, Any, Any]):
    """A generator each of whose turns is in a context of its own."""

    def __init__(self, context: Callable[[], Context], generator: Generator[Any, Any, Any]) -> None:
        self._context, self._generator = context, generator

    def send(self, value: Any) -> Any:
        return self._turn(self._generator.send, value)

    def throw(self, *error: Any) -> Any:
        return self._turn(self._generator.throw, *error)

    def close(self) -> None:
        self._turn(self._generator.close)

    def _turn(self, act: Callable[..., Any], *given: Any) -> Any:
        # NOTE: the end of the generator is no failure of the block.
        with self._context():
            try:
                return act(*given)
            except StopIteration as e:
                end = e
        raise end
