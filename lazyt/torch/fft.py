"""`torch.fft`: `lazyt.fft` with PyTorch's names of arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyt import fft as _fft
from lazyt.torch.keywords import with_numpy_names as _with_numpy_names
from lazyt.torch.scalars import tuple_of as _tuple_of
from lazyt.tracing.tracebacks import api_boundary as _api_boundary

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyt.runtime.tensor import Tensor

__all__ = list(_fft.__all__)


def _along_one(name: str) -> Callable[..., Tensor]:
    of_lazyt = getattr(_fft, name)

    def f(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        return of_lazyt(input, n, dim, norm or "backward")  # type: ignore[no-any-return]

    return _named(f, name)


def _along_several(name: str, default: Any) -> Callable[..., Tensor]:
    of_lazyt = getattr(_fft, name)

    def f(input: Any, s: Any = None, dim: Any = default, norm: str | None = None) -> Tensor:
        sizes = (s,) if isinstance(s, int) else s
        axes = (dim,) if isinstance(dim, int) else _tuple_of(dim)
        if axes is None and sizes is not None:
            axes = range(-len(sizes), 0)
        return of_lazyt(input, sizes, axes, norm or "backward")  # type: ignore[no-any-return]

    return _named(f, name)


def _shifting(name: str) -> Callable[..., Tensor]:
    of_lazyt = getattr(_fft, name)

    def f(input: Any, dim: Any = None) -> Tensor:
        return of_lazyt(input, _tuple_of(dim))  # type: ignore[no-any-return]

    return _named(f, name)


def _named(f: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"As `lazyt.fft.{name}`, along `dim`."
    return _api_boundary(_with_numpy_names(f), name)


fft, ifft, rfft, irfft, hfft, ihfft = map(_along_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = (_along_several(name, None) for name in ("fftn", "ifftn", "rfftn", "irfftn"))
fft2, ifft2, rfft2, irfft2 = (_along_several(name, (-2, -1)) for name in ("fft2", "ifft2", "rfft2", "irfft2"))
fftshift, ifftshift = map(_shifting, ("fftshift", "ifftshift"))
fftfreq, rfftfreq = _fft.fftfreq, _fft.rfftfreq


def __dir__() -> list[str]:
    return sorted(__all__)
