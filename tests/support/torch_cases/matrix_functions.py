"""Exponentials of matrices, products of reflections, and weights that they keep orthogonal."""

import numpy as np

from tests.support.torch_golden import Case

RNG = np.random.default_rng(5)


def orthogonal(layer, *args, **options):
    def build(t):
        kind, *sizes = layer
        return t.nn.utils.parametrizations.orthogonal(getattr(t.nn, kind)(*sizes), *args, **options)

    return build


def of_an_original(t):
    """The initial value: an orthogonal one is kept, another is orthogonalized."""
    kept, made = t.nn.Linear(3, 3, bias=False), t.nn.Linear(3, 3, bias=False)
    turn = [[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]
    other = [[2.0, 1.0, 0.0], [0.0, -1.0, 1.0], [1.0, 0.0, 3.0]]
    with t.no_grad():
        for layer, values in ((kept, turn), (made, other)):
            layer.to(dtype=t.float64)
            layer.weight[...] = t.tensor(values, dtype=t.float64)
    wrap = t.nn.utils.parametrizations.orthogonal
    layers = [wrap(kept), wrap(made, "weight", "cayley")]
    other_map = t.nn.Linear(2, 3, bias=False).to(dtype=t.float64)
    with t.no_grad():
        other_map.weight[...] = t.tensor([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]], dtype=t.float64)
    layers.append(wrap(other_map, orthogonal_map="householder", use_trivialization=False))
    return lambda x: [layer.weight.detach() + x[0, 0] * 0 for layer in layers]


CASES = [
    Case("exp", lambda t: t.linalg.matrix_exp, ((3, 3),)),
    Case("exp of large ones", lambda t: t.linalg.matrix_exp, (
        np.stack([9 * RNG.standard_normal((4, 4)), 0.01 * RNG.standard_normal((4, 4)), np.zeros((4, 4))]),)),
    Case("exp of a rotation", lambda t: lambda x: t.linalg.matrix_exp(x - x.mT), (20 * RNG.standard_normal((5, 5)),),
         single={"rtol": 1e-4, "atol": 1e-4}),
    Case("exp of complex numbers", lambda t: lambda x, y: (
        t.linalg.matrix_exp(x + 1j * y).real, t.linalg.matrix_exp(x + 1j * y).imag), ((2, 2), (2, 2))),
    Case("reflections", lambda t: t.linalg.householder_product, ((2, 4, 3), (2, 3))),
    Case("fewer reflections", lambda t: t.linalg.householder_product, ((4, 3), np.array([0.7, 0.0]))),
    Case("orthogonal", orthogonal(("Linear", 3, 3)), ((2, 3),), steps=3),
    Case("orthogonal rows", orthogonal(("Linear", 4, 3)), ((2, 4),), steps=3),
    Case("orthogonal columns", orthogonal(("Linear", 3, 4)), ((2, 3),), steps=3),
    Case("orthogonal by exp", orthogonal(("Linear", 2, 3), orthogonal_map="matrix_exp"), ((2, 2),), steps=3),
    Case("orthogonal by cayley", orthogonal(("Linear", 4, 2), "weight", "cayley"), ((2, 4),), steps=3),
    Case("orthogonal without a base", orthogonal(("Linear", 2, 3), use_trivialization=False), ((2, 2),), steps=3),
    Case("orthogonal of a batch", orthogonal(("Conv1d", 2, 3, 3)), ((1, 2, 4),), steps=3),
    Case("orthogonal of a value", of_an_original, ((1, 1),), grad=False),
]  # fmt: skip
