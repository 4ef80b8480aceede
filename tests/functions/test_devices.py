"""Operands on a device that is not the default one: results are there, and so is all that is made on the way."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt.backends import registry
from lazyt.distributions import kl
from lazyt.testing.composed import COMPOSED
from tests.support.interpreted_backend import NAME, InterpretedBackend
from tests.support.torch_golden import Case, areas, cases, leaves

D, F = lt.distributions, lt.nn.functional


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    registry.register(InterpretedBackend())
    yield
    lt.sync()
    registry.unregister(NAME)


def there(x: Any, dtype: Any = None) -> lt.Tensor:
    return lt.asarray(np.asarray(x, dtype), device=NAME)


def check(found: Any) -> None:
    for x in leaves(found):
        if isinstance(x, lt.Tensor):
            assert x.device == NAME


def operand(kind: str, dims: int) -> lt.Tensor:
    rng, shape = np.random.default_rng(0), {1: (4,), 2: (4, 4), 3: (2, 4, 4)}[dims]
    made = {"I": lambda: rng.integers(1, 6, shape), "B": lambda: rng.random(shape) < 0.5,
            "Z": lambda: rng.normal(size=shape) + 1j}  # fmt: skip
    return there(made.get(kind, lambda: rng.normal(size=shape))())


@pytest.mark.parametrize("template", COMPOSED)
def test_composed_functions(template: str, quiet: None) -> None:
    names: dict[str, Any] = {"np": np, "xp": lt}

    def name_of(match: re.Match[str]) -> str:
        kind, dims = match[1][0], match[1][1:2]
        if kind in "AK":
            return {"A": "0", "K": "2"}[kind]
        if kind in "YP":
            return "a" if "a" in names else "2"
        name = f"a{len(names)}" if "a" in names else "a"
        names[name] = operand(kind, max(int(dims or 1), 1))
        return name

    call = re.sub(r"\{(\w+)\}", name_of, template)
    call = re.sub(r"xp\.eye\((\w+\.shape\[0\])\)", rf"xp.eye(\1, device='{NAME}')", call)
    found = eval(call if call.startswith("xp.") else f"xp.{call}", names)
    if "a" in names:
        check(found)


def vector(*values: float) -> lt.Tensor:
    return there(values, "float32")


LOC_SCALE = "Cauchy", "Gumbel", "Laplace", "LogNormal", "LogisticNormal", "Normal", "Uniform", "VonMises"
POSITIVE = "Chi2", "Exponential", "HalfCauchy", "HalfNormal", "Poisson", "StudentT", "Dirichlet"
POSITIVES = "Beta", "FisherSnedecor", "Gamma", "InverseGamma", "Kumaraswamy", "Pareto", "Weibull"
PROBABILITIES = ("Bernoulli", "Categorical", "ContinuousBernoulli", "Geometric", "OneHotCategorical",
                 "OneHotCategoricalStraightThrough")  # fmt: skip
RELAXED = "ExpRelaxedCategorical", "LogitRelaxedBernoulli", "RelaxedBernoulli", "RelaxedOneHotCategorical"


def normal() -> Any:
    return D.Normal(vector(0, 1), vector(1, 2))


MADE = {
    **dict.fromkeys(LOC_SCALE, lambda: (vector(0, 1), vector(1, 2))),
    **dict.fromkeys(POSITIVE, lambda: (vector(1, 20),)),
    **dict.fromkeys(POSITIVES, lambda: (vector(3, 20), vector(5, 0.5))),
    **dict.fromkeys(PROBABILITIES, lambda: (vector(0.3, 0.7),)),
    **dict.fromkeys(("Binomial", "Multinomial"), lambda: (5, vector(0.3, 0.7))),
    **dict.fromkeys(RELAXED, lambda: (0.5, vector(0.3, 0.7))),
    "GeneralizedPareto": lambda: (vector(0, 1), vector(1, 2), vector(0.1, 0.2)),
    "Independent": lambda: (normal(), 1),
    "LKJCholesky": lambda: (3, vector(1, 2)),
    "LowRankMultivariateNormal": lambda: (vector(0, 1), there(np.ones((2, 1)), "float32"), vector(1, 2)),
    "MixtureSameFamily": lambda: (D.Categorical(vector(0.3, 0.7)), normal()),
    "MultivariateNormal": lambda: (vector(0, 1), there(np.eye(2), "float32")),
    "NegativeBinomial": lambda: (vector(2, 3), vector(0.3, 0.7)),
    "TransformedDistribution": lambda: (normal(), [D.ExpTransform(), D.AffineTransform(1.0, 2.0)]),
    "Wishart": lambda: (vector(3), there(np.eye(2), "float32")),
}  # fmt: skip


def distribution(name: str) -> Any:
    return getattr(D, name)(*MADE[name]())


def test_every_distribution_is_here() -> None:
    found = {n for n in dir(D) if isinstance(c := getattr(D, n), type) and issubclass(c, D.Distribution)}
    assert found - {"Distribution", "ExponentialFamily"} == set(MADE)


@pytest.mark.parametrize("name", MADE)
def test_distributions(name: str) -> None:
    d = distribution(name)
    x = d.sample((3,))
    ways = [
        lambda: x, lambda: d.rsample(), lambda: d.log_prob(x), lambda: d.log_prob(x.numpy()), lambda: d.cdf(x),
        lambda: d.icdf(0.25), lambda: d.mean, lambda: d.mode, lambda: d.variance, lambda: d.entropy(),
        lambda: d.enumerate_support(), lambda: d.expand((2, *d.batch_shape)).sample(),
    ]  # fmt: skip
    for way in ways:
        try:
            check(way())
        except lt.NotSupportedError:
            continue


@pytest.mark.parametrize("name", ["Normal", "Gamma", "Poisson", "Categorical", "VonMises", "Wishart", "Binomial"])
def test_samples_have_the_bits_of_the_default_device(name: str) -> None:
    lt.random.seed(3)
    d = distribution(name)
    after = [d.sample((4,)).numpy(), lt.random.get_state()]
    lt.random.seed(3)
    given = [a.to("cpu") if isinstance(a, lt.Tensor) else a for a in MADE[name]()]
    np.testing.assert_allclose(after[0], getattr(D, name)(*given).sample((4,)).numpy(), rtol=1e-5)
    assert after[1] == lt.random.get_state()


PAIRS = [(p.__name__, q.__name__) for p, q in kl._REGISTRY if {p.__name__, q.__name__} <= set(MADE)]


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_divergences(p: str, q: str) -> None:
    check(D.kl_divergence(distribution(p), distribution(q)))


def test_numbers_are_where_values_are() -> None:
    given, plain = normal(), D.Normal(0.0, 1.0)
    check(
        [plain.log_prob(vector(1, 2)), plain.cdf(vector(1)), plain.icdf(vector(0.5)), plain.log_prob(there(0.5)).sum()]
    )
    check([D.kl_divergence(given, plain), D.kl_divergence(plain, given)])
    check(D.kl_divergence(D.Independent(given, 1), D.Independent(D.Normal([0.0, 0.0], 1.0), 1)))
    assert plain.sample().device == "cpu" and plain.log_prob(vector(1)).dtype == lt.float32
    with pytest.raises(lt.DeviceError):
        D.kl_divergence(given, D.Normal(lt.zeros(2), 1.0))


TRANSFORMS = {
    "CorrCholeskyTransform": ((), (0.1, 0.2, 0.3)),
    "ReshapeTransform": (((2,), (2, 1)), (1, 2)),
    "StickBreakingTransform": ((), (1, 2)),
    "AffineTransform": ((1.0, -2.0), (1, 2)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    args, values = TRANSFORMS[name]
    t, x = getattr(D, name)(*args), vector(*values)
    y = t(x)
    check([y, t.inv(y), t.log_abs_det_jacobian(x, y)])


def test_transforms_of_matrices() -> None:
    x = there(np.eye(3) + 0.1, "float32")
    for t in (D.LowerCholeskyTransform(), D.PositiveDefiniteTransform()):
        check([t(x), t.inv(t(x))])


class There:
    """lazyt, whose tensors that a case makes of its own are on the device too."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(lt, name)
        return functools.partial(found, device=NAME) if name in ("tensor", "ones", "zeros", "eye", "arange") else found


# Lengths of packed sequences are on the host, as in PyTorch; the others make tensors alone.
APART = {"initial", "lazy_layers", "packed_sequences"}


def of_each() -> list[Any]:
    found: dict[tuple[str, str], Case] = {}
    for area in areas():
        for case in [] if area in APART else cases(area):
            if case.name not in ("square mask", "orthogonal of a value"):
                found.setdefault((area, re.split(r"[ ,(]", case.name)[0]), case)
    return [pytest.param(case, id=f"{area}-{case.name}") for (area, _), case in found.items()]


@pytest.mark.parametrize("case", of_each())
def test_layers_and_losses(case: Case) -> None:
    f = case.build(There())
    if isinstance(f, lt.nn.Module):
        f = f.to(NAME)
    inputs = [there(a) for a in case.arrays()]
    for x in inputs:
        x.requires_grad_(x.dtype.kind == "f")
    out = f(*inputs)
    check(out)
    asked = [x.sum() for x in leaves(out) if x.requires_grad]
    if asked:
        sum(asked[1:], asked[0]).backward()
        check([x.grad for x in inputs])


RANDOM = [
    "lt.multinomial(p, 2)", "lt.multinomial(p, 2, True)", "R.choice(x, 3)", "R.choice(x, 3, p=np.ones(4) / 4)",
    "R.choice(4, 3, p=p)", "R.permutation(x)", "R.uniform(x, x + 1)", "R.uniform(np.zeros(4), p)", "R.normal(x, 2.0)",
    "R.normal(np.zeros(4), p)", "R.bernoulli(p / 9)", "F.dropout(x)", "F.alpha_dropout(x, training=True)",
    "F.rrelu(x, training=True)", "F.gumbel_softmax(x)", "F.fractional_max_pool2d(lt.reshape(x, (1, 1, 2, 2)), 1, 1)",
    "lt.nn.init.orthogonal_(m)", "lt.nn.init.sparse_(m, 0.5)", "lt.nn.init.trunc_normal_(m)",
]  # fmt: skip
PORTED = [
    "x.normal_()", "x.uniform_()", "x.exponential_()", "x.bernoulli_()", "x.bernoulli_(0.2)", "x.random_(5)",
    "x.bernoulli_(p / 9)", "torch.rand_like(x)", "torch.randn_like(x)", "torch.normal(x, 2.0)",
    "torch.bernoulli(p / 9)", "torch.normal(0.0, p)", "torch.multinomial(p, 2)", "torch.xlogy(p, 2.0)",
    "torch.diag_embed(x)",
]  # fmt: skip
MIXED = [
    "F.embedding(np.array([0, 1]), m, padding_idx=0)",
    "F.grid_sample(np.ones((1, 1, 2, 2)), lt.reshape(p, (1, 2, 1, 2)))",
    "lt.linalg.outer(np.ones(2), x)", "lt.linalg.lstsq(m, np.ones(2))", "lt.linalg.cond(m, p=1)",
    "lt.array_equal(np.ones(4), x)", "lt.array_equal(np.ones(3), x)", "lt.zeros_like(x, shape=(2,))",
    "lt.full_like(x, 2, shape=(2,))", "np.add.at(x, [0], [1.0]) or x",
    "F.cosine_similarity(np.ones((1, 4)), x)", "F.pairwise_distance(np.ones(4), x)", "lt.cdist(np.ones((2, 2)), m)",
    "F.bilinear(np.ones((2, 2)), m, np.ones((3, 2, 2)))", "lt.select([np.ones(4, bool)], [x])",
    "lt.vdot(np.ones(4), x)",
    "lt.lexsort((np.ones(4), x))", "np.concatenate([np.ones(4), x])", "np.add.reduceat(x, [0, 2])",
    "np.copyto(x, np.ones(4)) or x", "np.nextafter(np.ones(4), x)", "lt.cov(np.ones(4), x)",
]  # fmt: skip


@pytest.mark.parametrize("call", [*RANDOM, *PORTED, *MIXED])
def test_calls(call: str) -> None:
    import lazyt.torch as torch

    torch.attach()
    try:
        x, p = there([1.0, -2.0, 3.0, 0.5]), there([1.0, 2.0, 3.0, 0.5])
        names = {"x": x, "p": p, "m": there([[2.0, 1.0], [0.5, 3.0]]), "lt": lt, "np": np, "torch": torch}
        check(eval(call, {**names, "F": F, "R": lt.random}))
    finally:
        torch.detach()
