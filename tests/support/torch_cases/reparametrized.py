"""Weights as functions of parameters: weight and spectral norm, both forms; layers fused with a batch norm."""

from tests.support.torch_golden import Case


class Symmetric:
    """A parametrization of one's own, of whichever library."""

    def __new__(cls, t):
        class Module(t.nn.Module):
            def forward(self, x):
                return t.triu(x) + t.triu(x, 1).swapaxes(0, 1)

            def right_inverse(self, x):
                return t.triu(x)

        return Module()


def fused(fuse, **options):
    """Weight and bias of the layer and the statistics and parameters of the norm, to what they are fused to."""

    def f(x, w, b, mean, var, g, c):
        weight, bias = fuse(w, b, mean, var * var + 0.5, 1e-3, g, c, **options)
        return weight, bias

    return f


CASES = [
    Case("weight norm", lambda t: t.nn.utils.parametrizations.weight_norm(t.nn.Linear(4, 3)), ((5, 4),)),
    Case("weight norm along 1", lambda t: t.nn.utils.parametrizations.weight_norm(t.nn.Linear(4, 3), dim=1), ((5, 4),)),
    Case("weight norm of all", lambda t: t.nn.utils.parametrizations.weight_norm(
        t.nn.Conv1d(2, 3, 2), dim=None), ((1, 2, 4),)),
    Case("spectral norm", lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.Linear(4, 3)), ((5, 4),), steps=5),
    Case("spectral norm at rest", lambda t: t.nn.utils.parametrizations.spectral_norm(
        t.nn.Conv1d(2, 3, 2), n_power_iterations=2, dim=1).eval(), ((1, 2, 4),), steps=5),
    Case("spectral norm of a bias", lambda t: t.nn.utils.parametrizations.spectral_norm(
        t.nn.Linear(4, 3), "bias"), ((5, 4),)),
    Case("older weight norm", lambda t: t.nn.utils.weight_norm(t.nn.Linear(4, 3)), ((5, 4),)),
    Case("older spectral norm", lambda t: t.nn.utils.spectral_norm(t.nn.Linear(4, 3), n_power_iterations=2), ((5, 4),),
         steps=5),
    Case("one's own", lambda t: t.nn.utils.parametrize.register_parametrization(
        t.nn.Linear(3, 3), "weight", Symmetric(t)), ((5, 3),)),
    Case("one's own over weight norm", lambda t: t.nn.utils.parametrize.register_parametrization(
        t.nn.utils.parametrizations.weight_norm(t.nn.Linear(3, 3)), "weight", Symmetric(t)), ((5, 3),)),
    Case("conv and bn", lambda t: fused(t.nn.utils.fuse_conv_bn_weights),
         ((1,), (3, 2, 2), (3,), (3,), (3,), (3,), (3,)), grad=False),
    Case("transposed conv and bn", lambda t: fused(t.nn.utils.fuse_conv_bn_weights, transpose=True),
         ((1,), (2, 3, 2), (3,), (3,), (3,), (3,), (3,)), grad=False),
    Case("linear and bn", lambda t: fused(t.nn.utils.fuse_linear_bn_weights),
         ((1,), (3, 2), (3,), (3,), (3,), (3,), (3,)), grad=False),
]  # fmt: skip
