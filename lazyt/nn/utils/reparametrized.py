"""PyTorch's older weight and spectral norm, by hooks: their states have the names of published checkpoints."""

from __future__ import annotations

from typing import Any

from lazyt.errors import LazytError
from lazyt.functions.distances import normalize
from lazyt.functions.products import matmul, vecdot
from lazyt.nn.module import Module
from lazyt.nn.parameter import Parameter
from lazyt.nn.utils.parametrizations import SpectralNorm, as_matrix, norm_except
from lazyt.optim.parameters import write
from lazyt.tracing.current import restore_grad_mode, set_grad_mode


class _WeightNorm:
    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def value(self, module: Module) -> Any:
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except(v, self.dim))

    def __call__(self, module: Module, args: Any) -> None:
        setattr(module, self.name, self.value(module))


class _SpectralNorm:
    def __init__(self, name: str, n: int, dim: int, eps: float) -> None:
        self.name, self.n, self.dim, self.eps = name, n, dim, eps

    def value(self, module: Module, iterate: bool) -> Any:
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        w = as_matrix(weight, self.dim)
        if iterate:
            before = set_grad_mode(False)
            try:
                new_u, new_v = u, v
                for _ in range(self.n):
                    new_v = normalize(matmul(w.detach().mT, new_u), dim=0, eps=self.eps)
                    new_u = normalize(matmul(w.detach(), new_v), dim=0, eps=self.eps)
                write(u, new_u)
                write(v, new_v)
                u, v = new_u, new_v
            finally:
                restore_grad_mode(before)
        return weight / vecdot(u, matmul(w, v))

    def __call__(self, module: Module, args: Any) -> None:
        setattr(module, self.name, self.value(module, module.training))


def _weight(function: str, module: Module, name: str, kind: type) -> Any:
    if any(isinstance(h.hook, kind) and vars(h.hook)["name"] == name for h in module._forward_pre_hooks.values()):
        raise LazytError(f"{function}: {type(module).__name__}.{name} has such a norm already")
    weight = module._parameters.get(name)
    if weight is None:
        raise LazytError(f"{function}: {type(module).__name__} has no parameter {name!r}")
    return weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train a weight as its norm along `dim` (`weight_g`) and its direction (`weight_v`); it is set before each call.

    `parametrizations.weight_norm` is the newer form. Raises LazytError if there is no such parameter. As
    `torch.nn.utils.weight_norm`.

    >>> import lazyt as lt
    >>> sorted(lt.nn.utils.weight_norm(lt.nn.Linear(3, 2)).state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    weight = _weight("weight_norm", module, name, _WeightNorm)
    del module._parameters[name]
    hook = _WeightNorm(name, dim)
    module.register_parameter(name + "_g", Parameter(norm_except(weight.detach(), dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.value(module))
    module.register_forward_pre_hook(hook)
    return module


def _remove(function: str, module: Module, name: str, kind: type) -> Any:
    for key, h in module._forward_pre_hooks.items():
        if isinstance(h.hook, kind) and vars(h.hook)["name"] == name:
            del module._forward_pre_hooks[key]
            return h.hook
    raise LazytError(f"{function}: {type(module).__name__}.{name} has no such norm")


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight with `weight_norm` a plain parameter again. As `torch.nn.utils.remove_weight_norm`.

    Raises LazytError if it has none.

    >>> import lazyt as lt
    >>> layer = lt.nn.utils.remove_weight_norm(lt.nn.utils.weight_norm(lt.nn.Linear(3, 2)))
    >>> sorted(layer.state_dict())
    ['bias', 'weight']
    """
    value = _remove("remove_weight_norm", module, name, _WeightNorm).value(module).detach()
    for key in (name, name + "_g", name + "_v"):
        delattr(module, key)
    module.register_parameter(name, Parameter(value))
    return module


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight (kept as `weight_orig`) by its greatest singular value, before each call.

    `parametrizations.spectral_norm` is the newer form. Raises LazytError if there is no such parameter. As
    `torch.nn.utils.spectral_norm`.

    >>> import lazyt as lt
    >>> sorted(lt.nn.utils.spectral_norm(lt.nn.Linear(3, 2)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    weight = _weight("spectral_norm", module, name, _SpectralNorm)
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    first = SpectralNorm(weight, n_power_iterations, dim, eps)
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    module.register_buffer(name + "_u", first._u)
    module.register_buffer(name + "_v", first._v)
    hook = _SpectralNorm(name, n_power_iterations, dim, eps)
    setattr(module, name, hook.value(module, False))
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight with `spectral_norm` a plain parameter again. As `torch.nn.utils.remove_spectral_norm`.

    Raises LazytError if it has none.

    >>> import lazyt as lt
    >>> layer = lt.nn.utils.remove_spectral_norm(lt.nn.utils.spectral_norm(lt.nn.Linear(3, 2)))
    >>> sorted(layer.state_dict())
    ['bias', 'weight']
    """
    value = _remove("remove_spectral_norm", module, name, _SpectralNorm).value(module, False).detach()
    for key in (name, name + "_orig", name + "_u", name + "_v"):
        delattr(module, key)
    module.register_parameter(name, Parameter(value))
    return module
