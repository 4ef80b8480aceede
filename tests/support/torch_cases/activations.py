"""Activation functions and modules, with each of their options."""

import numpy as np

from tests.support.torch_golden import Case

X = (4, 3)
# PyTorch's kernels of these have 1 / 6 or alpha in float32.
ROUGH = {name: {"rtol": 1e-7, "atol": 1e-8} for name in ("hardsigmoid", "celu")}


def function(name, *args, **options):
    return Case(
        f"{name} {args} {options}".replace(" {}", ", function" if not args else ""),
        lambda t: lambda x: getattr(t.nn.functional, name)(x, *args, **options),
        (X,),
        double=ROUGH.get(name.lower(), {}),
    )


def module(name, *args, **options):
    return Case(
        f"{name} {args} {options}",
        lambda t: getattr(t.nn, name)(*args, **options),
        (X,),
        double=ROUGH.get(name.lower(), {}),
    )


def written(name, *args):
    """An activation that acts in place, on what a layer gives and what is read later."""

    def build(t):
        first, second = t.nn.Linear(3, 3), getattr(t.nn, name)(*args, inplace=True)

        class Net(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = first, second

            def forward(self, x):
                y = self.first(x)
                part = y[1:]
                z = self.second(y)
                return [z, part, y * 2] if z is y else None

        return Net()

    double = ROUGH.get(name.lower(), {})
    return Case(f"{name} {args} in place", build, (X,), steps=0 if double else 5, double=double)


CASES = [
    *(written(name) for name in (
        "CELU", "ELU", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "Mish", "ReLU", "ReLU6", "SELU", "SiLU")),
    written("Threshold", 0.1, 2.0), written("RReLU", 0.2, 0.2), written("Hardtanh", -0.2, 0.3),
    written("LeakyReLU", 0.3), written("Dropout", 0.0),
    *(function(name) for name in (
        "relu", "relu6", "elu", "selu", "celu", "leaky_relu", "rrelu", "gelu", "silu", "mish", "softplus", "softsign",
        "hardtanh", "hardsigmoid", "hardswish", "logsigmoid", "tanhshrink", "hardshrink", "softshrink", "sigmoid",
        "tanh")),
    function("elu", 0.7), function("celu", 0.7), function("leaky_relu", 0.3), function("hardshrink", 0.8),
    function("softshrink", 0.2), function("softshrink", lambd=0.0), function("threshold", 0.2, -3.0),
    function("rrelu", 0.1, 0.6), function("gelu", approximate="tanh"), function("softplus", 2.0, 1.0),
    function("hardtanh", -0.3, 0.6), function("softmax", 0), function("softmax", dim=1),
    function("log_softmax", dim=0), function("softmin", dim=0), function("softmin", dim=1),
    *(module(name) for name in (
        "CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "Mish",
        "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh",
        "Tanhshrink")),
    module("PReLU", 3, init=0.1), module("CELU", 0.5), module("Threshold", 0.1, 2.0),
    module("Softmin", dim=1), module("Softmax", dim=0), module("LogSoftmax", dim=1), module("RReLU", 0.2, 0.2),
    Case("glu", lambda t: lambda x: t.nn.functional.glu(x, dim=0), (X,)),
    Case("GLU", lambda t: t.nn.GLU(dim=0), (X,)),
    Case("Softmax2d", lambda t: t.nn.Softmax2d(), ((2, 3, 2, 2),)),
    Case("Softmax2d of one image", lambda t: t.nn.Softmax2d(), ((3, 2, 2),)),
    Case("edges", lambda t: lambda x: [f(x) for f in (
        t.nn.functional.hardshrink, t.nn.functional.softshrink, t.nn.functional.celu, t.nn.functional.tanhshrink,
        lambda v: t.nn.functional.threshold(v, 0.5, 9.0))], (np.array([-0.5, 0.0, 0.5, 800.0, -800.0]),), grad=False),
]  # fmt: skip
