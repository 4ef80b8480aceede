"""Initial values that are not drawn."""

from tests.support.torch_golden import Case


def made(name, shape, *args):
    return Case(f"{name} {shape} {args}", lambda t: lambda: getattr(t.nn.init, name)(t.zeros(shape), *args), (),
                grad=False)  # fmt: skip


CASES = [
    made("dirac_", (4, 2, 3)), made("dirac_", (4, 3, 2, 3), 2), made("dirac_", (2, 4, 1, 2, 3)),
    made("eye_", (2, 3)), made("ones_", (2,)), made("zeros_", (2,)), made("constant_", (2,), 0.5),
    Case("gains", lambda t: lambda: [t.nn.init.calculate_gain(*a) for a in (
        ("linear",), ("conv1d",), ("conv_transpose3d",), ("sigmoid",), ("tanh",), ("relu",), ("leaky_relu",),
        ("leaky_relu", 0.2), ("selu",))], (), grad=False),
]  # fmt: skip
