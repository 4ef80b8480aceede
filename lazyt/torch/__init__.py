"""PyTorch's names with PyTorch's meaning: a program is ported by `import lazyt.torch as torch`.

    import lazyt.torch as torch
    from lazyt.torch import nn

Functions have PyTorch's arguments, defaults and results; those that are lazyt's take arguments by PyTorch's names too
(`F.relu(input=x)`). The import gives tensors PyTorch's methods that NumPy's arrays have not (`x.eq(y)`, `x.add_(y)`,
`x.masked_fill(mask, 0)`), and `dim=` for `axis=`. Methods that both have and that mean different things (`x.max(1)`,
`x.split(2)`, `x.transpose(0, 1)`, `x.std()`) mean PyTorch's in files that have this module among their names, and
NumPy's elsewhere. Results are lazy, as all of lazyt's.
"""

import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import Any as _Any

from lazyt.config import NVIDIA as _NVIDIA
from lazyt.torch import (
    functions as _functions,
    keywords as _keywords,
    methods as _methods,
    names as _names,
    readings as _readings,
    softmax_layers as _softmax_layers,
)
from lazyt.tracing import tracebacks as _tracebacks

# The PyTorch whose pages these functions follow, as programs ask for what they may use.
__version__ = "2.13.0+lazyt"
# A namespace that is an attribute of lazyt's, and no module.
_BY_NAME = ""
# PyTorch's namespaces, and the parts of them that programs import from -> the modules here.
_SPACES = {
    **{
        name: f"lazyt.{name}"
        for name in (
            "amp", "autograd", "distributions", "func", "multiprocessing", "nn", "nn.functional",
            "nn.init", "nn.parameter", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "optim",
            "optim.lr_scheduler", "optim.optimizer", "optim.swa_utils", "random", "utils", "utils.checkpoint",
            "utils.data",
        )
    },
    "accelerator": "lazyt.torch.accelerator",
    "autograd.function": "lazyt.autograd",
    "backends": "lazyt.torch.backends",
    **{
        f"distributions.{part}": "lazyt.distributions"
        for part in (
            "bernoulli", "beta", "binomial", "categorical", "cauchy", "dirichlet", "distribution", "exponential",
            "gamma", "independent", "kl", "laplace", "log_normal", "mixture_same_family", "multivariate_normal",
            "normal", "one_hot_categorical", "poisson", "relaxed_bernoulli", "relaxed_categorical", "student_t",
            "transformed_distribution", "uniform", "von_mises",
        )
    },
    _NVIDIA: _BY_NAME,
    "cuda.amp": "lazyt.torch.cuda_amp",
    "distributions.constraints": "lazyt.distributions.constraints",
    "distributions.transforms": "lazyt.distributions.transforms",
    "fft": "lazyt.torch.fft",
    "linalg": "lazyt.torch.linalg",
    "nn.modules": "lazyt.nn",
    "nn.parallel": "lazyt.torch.parallel",
    "utils.data.dataloader": "lazyt.data",
    "utils.data.dataset": "lazyt.data",
    "utils.data.sampler": "lazyt.data",
}  # fmt: skip
# Those whose functions take arguments by PyTorch's names too.
_OF_FUNCTIONS = (".nn.functional", ".nn.init")
# What PyTorch has otherwise in them.
_OWN: dict[str, dict[str, _Any]] = {
    "nn": _softmax_layers.LAYERS,
    "nn.functional": {"one_hot": _functions.one_hot, **_softmax_layers.FUNCTIONS},
    "nn.modules": _softmax_layers.LAYERS,
}


class _Space(_ModuleType):
    """A namespace of PyTorch's: a module of lazyt's under its name there, by which a file is known to be ported."""

    def __init__(self, name: str, module: _ModuleType, own: dict[str, _Any]) -> None:
        super().__init__(name, module.__doc__)
        self.__dict__.update(own, _module=module)

    def __getattr__(self, name: str) -> _Any:
        found = getattr(self.__dict__["_module"], name)
        if self.__name__.endswith(_OF_FUNCTIONS):
            found = self.__dict__[name] = _keywords.of_module(found, name, self.__name__)
        return found

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_module"])


def _publish() -> None:
    """PyTorch's namespaces: `import lazyt.torch.nn.functional as F`."""
    for space, place in sorted(_SPACES.items()):
        module = _names.find(space) if place is _BY_NAME else _import_module(place)
        name = f"{__name__}.{space}"
        if getattr(module, "__name__", "") != name:
            module = _Space(name, module, _OWN.get(space, {}))
        _sys.modules[name] = module
        outer, _, inner = name.rpartition(".")
        vars(_sys.modules[outer])[inner] = module
    for name in ("cudnn", "mps"):
        _sys.modules[f"{__name__}.backends.{name}"] = getattr(_sys.modules[f"{__name__}.backends"], name)


def attach() -> None:
    """Give tensors PyTorch's methods: what the import does."""
    _methods.attach()
    _readings.attach()


def detach(*tensor: _Any, input: _Any = None) -> _Any:
    """A tensor outside of any gradient; without one, take PyTorch's methods off again: functions here stay."""
    if tensor or input is not None:
        return _functions.detach(*tensor) if tensor else _functions.detach(input)
    _readings.detach()
    _methods.detach()
    return None


@_tracebacks.api_boundary
def __getattr__(name: str) -> _Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'lazyt.torch' has no attribute {name!r}", name=name)
    found = _names.find(name)
    if found is not None and _names.own(name) is found:
        found = _tracebacks.api_boundary(found, name)
    if not isinstance(found, _ModuleType):
        globals()[name] = found
    return found


def __dir__() -> list[str]:
    here = [n for n in globals() if not n.startswith("_")]
    return sorted({*here, *_names.every()})


_publish()
attach()
