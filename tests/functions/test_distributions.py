"""Samples of distributions, their gradients, and what distributions refuse."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import distributions as D
from lazyt.distributions.kl_across import INFINITE
from lazyt.errors import DTypeError, LazytError, NotSupportedError, ShapeError
from tests.support.synced_programs import REGIMES, run

N = 20_000

# Each with a finite variance.
SAMPLED: dict[str, Any] = {
    "Normal": lambda: D.Normal(1.0, 2.0),
    "LogNormal": lambda: D.LogNormal(0.2, 0.4),
    "Uniform": lambda: D.Uniform(-1.0, 3.0),
    "Laplace": lambda: D.Laplace(1.0, 2.0),
    "Gumbel": lambda: D.Gumbel(1.0, 2.0),
    "HalfNormal": lambda: D.HalfNormal(2.0),
    "Exponential": lambda: D.Exponential(2.0),
    "Pareto": lambda: D.Pareto(1.0, 6.0),
    "Weibull": lambda: D.Weibull(2.0, 1.5),
    "Gamma": lambda: D.Gamma(lt.asarray([0.3, 1.0, 9.0]), 2.0),
    "Chi2": lambda: D.Chi2(3.0),
    "StudentT": lambda: D.StudentT(12.0, 1.0, 2.0),
    "Beta": lambda: D.Beta(0.7, 3.0),
    "Dirichlet": lambda: D.Dirichlet([0.5, 2.0, 4.0]),
    "Bernoulli": lambda: D.Bernoulli(0.3),
    "Geometric": lambda: D.Geometric(0.3),
    "Poisson": lambda: D.Poisson(lt.asarray([0.4, 6.0, 25.0])),
    "Binomial": lambda: D.Binomial(7, lt.asarray([0.2, 0.9])),
    "OneHotCategorical": lambda: D.OneHotCategorical(probs=[0.2, 0.0, 0.8]),
    "Multinomial": lambda: D.Multinomial(5, probs=[0.2, 0.5, 0.3]),
    "MultivariateNormal": lambda: D.MultivariateNormal([1.0, -1.0], [[2.0, 0.5], [0.5, 1.0]]),
    "NegativeBinomial": lambda: D.NegativeBinomial(lt.asarray([0.5, 4.0]), 0.6),
    "InverseGamma": lambda: D.InverseGamma(9.0, 2.0),
    "FisherSnedecor": lambda: D.FisherSnedecor(5.0, 20.0),
    "GeneralizedPareto": lambda: D.GeneralizedPareto(1.0, 2.0, lt.asarray([0.0, -0.5, 0.1])),
    "Kumaraswamy": lambda: D.Kumaraswamy(0.7, 3.0),
    "ContinuousBernoulli": lambda: D.ContinuousBernoulli(lt.asarray([0.2, 0.5])),
    "OneHotCategoricalStraightThrough": lambda: D.OneHotCategoricalStraightThrough(probs=[0.2, 0.0, 0.8]),
    "LowRankMultivariateNormal": lambda: D.LowRankMultivariateNormal([1.0, -1.0], [[2.0], [0.5]], [1.0, 0.5]),
    "Wishart": lambda: D.Wishart(6.0, [[2.0, 0.5], [0.5, 1.0]]),
    "Independent": lambda: D.Independent(D.Normal(lt.zeros(2), lt.ones(2)), 1),
    "MixtureSameFamily": lambda: D.MixtureSameFamily(D.Categorical([0.2, 0.8]), D.Normal([-3.0, 1.0], [1.0, 0.5])),
    "MixtureSameFamily of vectors": lambda: D.MixtureSameFamily(
        D.Categorical([0.2, 0.8]), D.Independent(D.Normal([[-3.0, 1.0], [0.0, 5.0]], [[1.0, 0.5], [1.0, 2.0]]), 1)
    ),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_have_the_mean_and_the_variance(name: str) -> None:
    lt.random.seed(3)
    d = SAMPLED[name]()
    x = d.sample((N,))
    assert x.shape == (N, *d.batch_shape, *d.event_shape) and x.is_pending and not x.requires_grad
    values = x.numpy().astype(np.float64)
    mean, variance = d.mean.numpy().astype(np.float64), d.variance.numpy().astype(np.float64)
    error = 5 * np.sqrt(variance / N) + 1e-6
    assert np.all(np.abs(values.mean(0) - mean) < error), (values.mean(0), mean)
    fourth = ((values - mean) ** 4).mean(0)
    error = 6 * np.sqrt(fourth / N) + 1e-6
    assert np.all(np.abs(((values - mean) ** 2).mean(0) - variance) < error)
    assert d.support.check(values.astype(np.float32)).all()


@pytest.mark.parametrize("d", [D.Cauchy(1.0, 2.0), D.HalfCauchy(2.0)], ids=["Cauchy", "HalfCauchy"])
def test_samples_without_a_mean_have_the_quantiles(d: Any) -> None:
    lt.random.seed(3)
    q = np.array([0.1, 0.5, 0.8])
    shares = (d.sample((N,)).numpy()[:, None] < d.icdf(q).numpy()).mean(0)
    np.testing.assert_allclose(shares, q, atol=0.02)


@pytest.mark.parametrize("dtype", [lt.float32, lt.float64])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: D.Exponential(x), lambda x: D.Pareto(x, x), lambda x: D.Weibull(x, x), lambda x: D.Gumbel(x, x),
        lambda x: D.Laplace(x, x), lambda x: D.Cauchy(x, x), lambda x: D.HalfCauchy(x), lambda x: D.Geometric(x / 2),
        lambda x: D.Kumaraswamy(x, x),
    ],
)  # fmt: skip
def test_a_uniform_number_of_zero_is_half_a_step_from_the_next(
    make: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uniform numbers are multiples of a step. What comes of 0 is near to what comes of the smallest other one."""
    d, step = make(lt.ones((), dtype=dtype)), float(lt.finfo(dtype).eps) / 2
    drawn = []
    for u in (0.0, step / 2, step):
        monkeypatch.setattr(lt.random, "random", lambda shape, u=u, **options: lt.full(shape, u, **options))
        drawn.append(d.sample().item())
    of_zero, of_half, of_step = drawn
    assert of_zero == of_half
    assert abs(of_zero - of_step) <= max(1.0, 2 * abs(of_step))


def test_angles_have_the_circular_moments() -> None:
    lt.random.seed(3)
    d = D.VonMises([2.5, -0.5, 1.0], [0.001, 2.0, 50.0])
    with lt.no_sync():
        drawn = d.sample((N,))
    angles = drawn.numpy().astype(np.float64)
    assert np.abs(angles).max() <= np.pi + 1e-6
    mean = np.exp(1j * angles).mean(0)
    np.testing.assert_allclose(1 - np.abs(mean), d.variance.numpy(), atol=0.02)
    np.testing.assert_allclose(np.angle(mean[1:]), [-0.5, 1.0], atol=0.05)


def test_categories_come_by_their_probabilities() -> None:
    lt.random.seed(3)
    d = D.Categorical(probs=[[0.2, 0.0, 0.8], [0.5, 0.3, 0.2]])
    counts = np.stack([np.bincount(c, minlength=3) for c in d.sample((N,)).numpy().T]) / N
    np.testing.assert_allclose(counts, d.probs.numpy(), atol=0.02)
    assert counts[0, 1] == 0


def test_relaxed_samples_are_nearest_to_one_by_the_probabilities() -> None:
    """Whatever the temperature: it only says how near."""
    lt.random.seed(3)
    one = D.RelaxedBernoulli(0.3, probs=[0.2, 0.9])
    with lt.no_sync():
        x, y = one.sample((N,)), D.RelaxedOneHotCategorical(2.0, probs=[0.2, 0.3, 0.5]).sample((N,))
    np.testing.assert_allclose((x.numpy() > 0.5).mean(0), [0.2, 0.9], atol=0.02)
    np.testing.assert_allclose(np.bincount(y.numpy().argmax(-1)) / N, [0.2, 0.3, 0.5], atol=0.02)
    assert one.support.check(x).all() and D.constraints.simplex.check(y).all()
    assert one.expand((3, 2)).rsample((4,)).shape == (4, 3, 2)
    assert repr(one) == "RelaxedBernoulli(probs: (2,))"


def test_correlations_have_the_marginal_variance() -> None:
    lt.random.seed(3)
    d = D.LKJCholesky(3, lt.asarray([0.5, 1.5]))
    with lt.no_sync():
        x = d.sample((N,))
    factor = x.numpy().astype(np.float64)
    assert d.support.check(factor).all()
    r = (factor @ factor.swapaxes(-1, -2))[..., [1, 2, 2], [0, 0, 1]]
    # Each is 2 beta - 1, of concentrations c + 1/2.
    np.testing.assert_allclose(r.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(r.var(0), [[1 / 3] * 3, [1 / 5] * 3], atol=0.01)


def test_gradients_of_relaxed_samples_reach_the_probabilities() -> None:
    p = lt.tensor([[0.2, 0.3, 0.5]], requires_grad=True)
    weights = lt.asarray([1.0, 2.0, 4.0])
    (D.OneHotCategoricalStraightThrough(probs=p).rsample() * weights).sum().backward()
    # Of p over its sum.
    np.testing.assert_allclose(p.grad.numpy(), [[-1.8, -0.8, 1.2]], rtol=1e-5)
    p.grad = None
    (D.RelaxedOneHotCategorical(0.5, probs=p).rsample((50,)) * weights).sum().backward()
    assert np.isfinite(p.grad.numpy()).all() and (p.grad.numpy() != 0).all()


def test_forms_of_a_covariance_are_one_distribution() -> None:
    factor = np.array([[1.5, 0.0], [0.4, 0.8]])
    covariance, x = factor @ factor.T, np.array([[2.0, 0.3], [0.3, 1.0]])
    forms = {"covariance_matrix": covariance, "precision_matrix": np.linalg.inv(covariance), "scale_tril": factor}
    made = [D.Wishart(3.5, **{name: value}) for name, value in forms.items()]
    for d in made:
        np.testing.assert_allclose(d.log_prob(x).numpy(), made[0].log_prob(x).numpy(), rtol=1e-12)
        for name, value in forms.items():
            np.testing.assert_allclose(getattr(d, name).numpy(), value, rtol=1e-12, atol=1e-12)
    low = D.LowRankMultivariateNormal(np.zeros(2), np.array([[1.0], [0.5]]), np.array([1.0, 2.0]))
    full = D.MultivariateNormal(np.zeros(2), low.covariance_matrix)
    for name in forms:
        np.testing.assert_allclose(getattr(low, name).numpy(), getattr(full, name).numpy(), rtol=1e-12)


def test_divergences_are_infinite_where_the_second_has_no_values() -> None:
    made = {
        D.Beta: D.Beta(1.0, 2.0), D.ContinuousBernoulli: D.ContinuousBernoulli(0.3), D.Uniform: D.Uniform(0.0, 1.0),
        D.Exponential: D.Exponential(1.0), D.Gamma: D.Gamma(2.0, 1.0), D.Gumbel: D.Gumbel(0.0, 1.0),
        D.Laplace: D.Laplace(0.0, 1.0), D.Normal: D.Normal(0.0, 1.0), D.Pareto: D.Pareto(1.0, 3.0),
        D.Poisson: D.Poisson(2.0), D.Bernoulli: D.Bernoulli(0.5), D.Binomial: D.Binomial(3, 0.5),
    }  # fmt: skip
    scaled = [D.AffineTransform(lt.asarray([0.0, 1.0]), lt.asarray([2.0, x])) for x in (3.0, 3.0, 4.0)]
    assert scaled[0] == scaled[1] != scaled[2]
    normal = D.Normal(lt.zeros(2), lt.ones(2))
    pair = (D.TransformedDistribution(normal, [t]) for t in scaled[:2])
    assert D.kl_divergence(*pair).tolist() == [0.0, 0.0]
    found = [D.kl_divergence(made[p], made[q]) for p, others in INFINITE.items() for q in others]
    assert len(found) == 33 and np.isinf(lt.stack(found).numpy()).all()
    # A Uniform on the whole interval is no exception, as the divergence is finite.
    assert np.isfinite(D.kl_divergence(made[D.Uniform], made[D.ContinuousBernoulli]).item())
    assert np.isfinite(D.kl_divergence(made[D.ContinuousBernoulli], made[D.Uniform]).item())
    assert np.isinf(D.kl_divergence(D.Uniform(-0.5, 0.5), made[D.Gamma]).item())


# By the mean's and the second moment's derivative with respect to the first parameter.
MOMENTS: dict[str, Any] = {
    "Normal": (lambda a: D.Normal(a, 2.0), 0.7),
    "Exponential": (lambda a: D.Exponential(a), 0.7),
    "Gamma small": (lambda a: D.Gamma(a, 2.0), 0.4),
    "Gamma": (lambda a: D.Gamma(a, 2.0), 5.0),
    "Beta": (lambda a: D.Beta(a, 2.0), 1.5),
    "StudentT": (lambda a: D.StudentT(a, 1.0, 1.0), 20.0),
    "InverseGamma": (lambda a: D.InverseGamma(a, 1.5), 8.0),
    "Kumaraswamy": (lambda a: D.Kumaraswamy(a, 2.0), 1.5),
    "ContinuousBernoulli": (lambda a: D.ContinuousBernoulli(a), 0.3),
    "Dirichlet": (lambda a: D.Dirichlet(a * lt.asarray([1.0, 2.0, 0.7], dtype="float64")), 1.5),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_gradients_of_samples_are_those_of_the_moments(name: str) -> None:
    make, at = MOMENTS[name]

    def second_moment(v: float) -> float:
        d = make(lt.tensor(v, dtype="float64"))
        return float((d.variance + d.mean**2).sum().item())

    lt.random.seed(5)
    a = lt.tensor(np.full(N, at), requires_grad=True)
    d = make(lt.expand_dims(a, -1)) if name == "Dirichlet" else make(a)
    (d.rsample() ** 2).sum().backward()
    found = a.grad.numpy()
    want = (second_moment(at + 1e-4) - second_moment(at - 1e-4)) / 2e-4
    assert abs(found.mean() - want) < 5 * found.std() / np.sqrt(N) + 1e-9, (found.mean(), want)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", ["Gamma", "Beta", "Dirichlet"])
def test_gradients_of_samples_across_a_sync(name: str, regime: str) -> None:
    """In float32 they are those of float64, and the same wherever the program is synced."""
    source = """
    lt.random.seed(0)
    a = lt.tensor([0.5, 1.5, 2.5, 10.0], requires_grad=True, dtype=dtype)
    s = make(a).rsample()
    loss = (s * s).sum()
    loss.backward()
    """
    make = {
        "Gamma": lambda a: D.Gamma(a, lt.ones(4)),
        "Beta": lambda a: D.Beta(a, lt.ones(4)),
        "Dirichlet": D.Dirichlet,
    }
    got, want = (run(source, r, make=make[name], dtype=t) for r, t in ((regime, "float32"), ("never", "float64")))
    np.testing.assert_allclose(got["a"].grad.numpy(), want["a"].grad.numpy(), rtol=2e-4, atol=1e-5)


def test_a_step_of_a_reparametrized_model_stays_lazy() -> None:
    loc = lt.tensor([0.0], requires_grad=True)
    optimizer = lt.optim.SGD([loc], lr=0.1)
    reasons = []
    for _ in range(5):
        with lt.no_sync():
            optimizer.zero_grad()
            d = D.Normal(loc, 1.0)
            prior = D.Normal(1.0, 1.0)
            (-prior.log_prob(d.rsample((8,))).mean() + D.kl_divergence(d, prior).sum()).backward()
            optimizer.step()
        lt.sync()
        reasons.append(lt.last_sync().reason)
    assert reasons[2:] == ["", "", ""]


def test_validation() -> None:
    wide = lt.asarray([1.0, -1.0])
    D.Normal(0.0, wide)  # a tensor is not read
    with pytest.raises(LazytError, match=r"Normal: scale must be positive, got -1.0 at index \(1,\)"):
        D.Normal(0.0, wide, validate_args=True)
    with pytest.raises(LazytError, match=r"Normal: scale must be positive, got -1.0"):
        D.Normal(0.0, -1.0)
    D.Normal(0.0, -1.0, validate_args=False)
    with pytest.raises(LazytError, match=r"Bernoulli: a value must be boolean, got 0.5"):
        D.Bernoulli(0.5).log_prob(0.5)
    with pytest.raises(LazytError, match=r"Uniform: high - low must be positive, got -1.0"):
        D.Uniform(2.0, 1.0)
    with pytest.raises(
        ValueError, match=r"Categorical: probs must be independent\(nonnegative, 1\), got .* at index \(1,"
    ):
        D.Categorical([[0.5, 0.5], [0.5, -0.1]])
    D.Distribution.set_default_validate_args(True)
    try:
        with pytest.raises(LazytError, match="Normal: scale must be positive"):
            D.Normal(0.0, wide)
        D.Normal(0.0, wide, validate_args=False)
        D.Distribution.set_default_validate_args(False)
        D.Normal(0.0, -1.0).log_prob(float("nan"))
    finally:
        D.Distribution.set_default_validate_args(None)


def test_parameters_come_of_real_numbers_by_their_constraints() -> None:
    """Every constraint that a parameter has, but where no transform gives it."""
    x = lt.asarray(np.linspace(-2.0, 1.5, 9).reshape(3, 3), dtype="float64")
    found = 0
    for name in D.__all__:
        kind = getattr(D, name)
        for constraint in getattr(kind, "arg_constraints", {}).values():
            if constraint.kind in ("boolean", "nonnegative_integer"):
                continue
            y = D.transform_to(constraint)(x)
            assert constraint.check(y).all(), (name, constraint)
            found += 1
    assert found > 60


def test_transforms_that_users_register() -> None:
    registry = D.transform_to.__class__("mine")
    registry.register(D.constraints.positive, lambda constraint: D.SoftplusTransform())
    assert isinstance(registry(D.constraints.positive), D.SoftplusTransform)

    @registry.register(D.constraints.greater_than(0))
    def above(constraint: Any) -> Any:
        return D.AffineTransform(constraint.arguments[0], 1.0)

    assert registry(D.constraints.greater_than(3.0))(lt.asarray(0.0)).item() == 3.0


CACHED: dict[str, Any] = {
    "Affine": lambda n: D.AffineTransform(1.0, 3.0, 0, n),
    "Exp": lambda n: D.ExpTransform(n),
    "Power": lambda n: D.PowerTransform(3.0, n),
    "Sigmoid": lambda n: D.SigmoidTransform(n),
    "Tanh": lambda n: D.TanhTransform(cache_size=n),
    "Softplus": lambda n: D.SoftplusTransform(n),
    "Abs": lambda n: D.AbsTransform(n),
    "Softmax": lambda n: D.SoftmaxTransform(n),
    "StickBreaking": lambda n: D.StickBreakingTransform(n),
    "Compose": lambda n: D.ComposeTransform([D.AffineTransform(0.0, 2.0), D.TanhTransform()], n),
    "cached parts": lambda n: D.ComposeTransform([D.ExpTransform(n), D.TanhTransform(n)]),
    "Independent": lambda n: D.IndependentTransform(D.TanhTransform(), 1, n),
    "cached base": lambda n: D.IndependentTransform(D.TanhTransform(n), 1),
    "Reshape": lambda n: D.ReshapeTransform((6,), (2, 3), n),
    "Cat": lambda n: D.CatTransform([D.ExpTransform(), D.TanhTransform()], 0, [2, 4], n),
    "Stack": lambda n: D.StackTransform([D.TanhTransform()] * 6, 0, n),
    "CumulativeDistribution": lambda n: D.CumulativeDistributionTransform(D.Normal(0.0, 1.0), n),
    "LowerCholesky": lambda n: D.LowerCholeskyTransform(n),
    "PositiveDefinite": lambda n: D.PositiveDefiniteTransform(n),
    "CorrCholesky": lambda n: D.CorrCholeskyTransform(n),
}


@pytest.mark.parametrize("name", CACHED)
def test_a_cached_transform_gives_back_what_it_was_given(name: str) -> None:
    t, plain = CACHED[name](1), CACHED[name](0)
    x = lt.eye(3) if name in ("LowerCholesky", "PositiveDefinite") else lt.arange(6.0) - 3
    y = t(x)
    assert t.inv(y) is x and t.inverse(y) is x and t(x) is y
    assert plain.inv(plain(x)) is not x
    np.testing.assert_array_equal(y.numpy(), plain(x).numpy())
    z = lt.asarray(y.numpy())
    assert t.inv.inv(t.inv(z)) is z
    with pytest.raises(ValueError, match=rf"{type(t.with_cache(0)).__name__}: cache_size must be 0 or 1, got 2"):
        t.with_cache(2)


def test_a_cache_is_of_the_values_that_there_were() -> None:
    x, t = lt.asarray([9.0, 1.0]), D.TanhTransform().with_cache()
    assert t.with_cache() is t
    y = t(x)
    x += 1
    assert t.inv(y) is not x and t(x) is not y
    with lt.no_grad():
        y = t(x)
    assert t(x) is y
    w = lt.tensor([0.5], requires_grad=True)
    with lt.no_grad():
        y = t(w)
    assert not y.requires_grad and t(w).requires_grad
    again = pickle.loads(pickle.dumps(t))
    assert again == t == D.TanhTransform() and again.inv(again(x)) is x
    assert D.AffineTransform(0.0, 2.0, 0, 1) == D.AffineTransform(0.0, 2.0) != D.AffineTransform(0.0, 3.0)
    with lt.inference_mode():
        x = lt.ones(2) * 9
        assert t.inv(t(x)) is x
    np.testing.assert_array_equal(lt.vmap(lambda x: t.inv(t(x)))(lt.zeros(3)), np.zeros(3))

    class Doubled(D.Transform):
        def __init__(self) -> None:
            self.factor = 2

        def _call(self, x: Any) -> Any:
            return self.factor * x

    assert Doubled()(x).tolist() == (2 * x).tolist() and Doubled() == Doubled()


@pytest.mark.parametrize("draw", ["sample", "rsample"])
def test_a_squashed_sample_has_the_density_of_what_was_drawn(draw: str) -> None:
    """tanh(20) is 1, whose inverse is infinite."""
    d = D.TransformedDistribution(D.Normal(20.0, 0.1), [D.TanhTransform(cache_size=1)])
    action = getattr(d, draw)((5,))
    assert (action == 1).all()
    density = d.log_prob(action).numpy()
    x = d.transforms[0].inv(action)
    expected = d.base_dist.log_prob(x) - d.transforms[0].log_abs_det_jacobian(x, action)
    np.testing.assert_array_equal(density, expected.numpy())
    assert np.isfinite(density).all()


def test_a_copula() -> None:
    """Normal vectors through their own distribution function are uniform numbers, and no less dependent."""
    lt.random.seed(3)
    base = D.MultivariateNormal(lt.zeros(2), lt.asarray([[1.0, 0.8], [0.8, 1.0]]))
    copula = D.TransformedDistribution(base, D.CumulativeDistributionTransform(D.Normal(0.0, 1.0)))
    u = copula.sample((N,)).numpy()
    np.testing.assert_allclose(np.quantile(u, [0.1, 0.5, 0.9], axis=0), [[0.1] * 2, [0.5] * 2, [0.9] * 2], atol=0.02)
    density = lt.exp(copula.log_prob(lt.asarray([[0.5, 0.5], [0.9, 0.1]]))).numpy()
    assert density[0] > 1 > density[1]


def test_what_is_checked_reads_no_pending_tensor() -> None:
    counts, high = lt.asarray([1.0, 2.0]) + 1, lt.asarray([3.0, 4.0]) + 1
    with lt.no_sync():
        D.Binomial(counts, 0.5).log_prob([1.0, 9.0])
        D.Uniform([0.0, 0.0], 1.0).log_prob(lt.ones(2) * 2)
        outside = D.Uniform(0.0, high).log_prob(9.0)
        mixed = D.MixtureSameFamily(D.Categorical([0.5, 0.5]), D.Uniform(0.0, high)).log_prob(9.0)
        with pytest.raises(
            LazytError, match=r"Uniform: a value must be interval\(\[0. 0.\], 1.0\), got 2.0 at index \(1,"
        ):
            D.Uniform([0.0, 0.0], 1.0).log_prob([0.5, 2.0])
        with pytest.raises(LazytError, match=r"Pareto: a value must be greater_than_eq\(1.0\), got 0.5"):
            D.Pareto(1.0, high).log_prob(0.5)
        with pytest.raises(LazytError, match="Uniform: a value must be interval"):
            D.Independent(D.Uniform([0.0, 0.0], 1.0), 1).log_prob([0.5, 2.0])
        with pytest.raises(lt.SyncError):
            D.Uniform(0.0, high, validate_args=True)
    assert outside.tolist() == [-np.inf] * 2 and mixed.item() == -np.inf


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: D.Bernoulli(), LazytError, "Bernoulli: one of probs and logits is required, got none"),
        (lambda: D.Bernoulli(0.5, 0.1), LazytError, r"Bernoulli: one of probs and logits is required, got \['logits'"),
        (
            lambda: D.Normal(lt.ones(2), lt.ones(3)), ShapeError,
            r"Normal: parameters of shapes \(2,\) and \(3,\) do not broadcast",
        ),
        (
            lambda: D.Normal(lt.ones(2), 1.0).log_prob(lt.ones(3)), ShapeError,
            r"Normal: a value of shape \(3,\) and the batch shape \(2,\) do not broadcast",
        ),
        (lambda: D.Normal(0.0, "1"), DTypeError, "Normal: a parameter is a number, an array or a tensor, got '1'"),
        (lambda: D.Normal(0.0, 1j), DTypeError, "Normal: real parameters are required, got complex64"),
        (lambda: D.Normal(0.0, 1.0).sample(2.5), DTypeError, r"Normal: sample_shape is a tuple of integers, got 2\.5"),
        (lambda: D.Normal(0.0, 1.0).expand("2"), DTypeError, "Normal.expand: batch_shape is a tuple of integers, got"),
        (lambda: D.Dirichlet([1.0, 1.0]).log_prob(lt.ones(3)), ShapeError, r"last dimensions are \(2,\), got shape"),
        (lambda: D.Dirichlet(lt.asarray(1.0)), ShapeError, "at least 1 dimensions is required"),
        (lambda: D.Poisson(1.0).rsample(), NotSupportedError, "Poisson.rsample: not supported: values are not a"),
        (lambda: D.Gamma(1.0, 1.0).cdf(1.0), NotSupportedError, "Gamma.cdf: not supported: it has no closed form"),
        (lambda: D.Poisson(1.0).entropy(), NotSupportedError, "Poisson.entropy: not supported"),
        (lambda: D.Normal(0.0, 1.0).enumerate_support(), NotSupportedError, "Normal.enumerate_support: not supported"),
        (lambda: D.Multinomial(lt.ones(2), [1.0]), LazytError, "Multinomial: total_count is one integer for all"),
        (lambda: D.Binomial(lt.asarray([1, 2]), 0.5).entropy(), NotSupportedError, "total_count differs"),
        (lambda: D.Independent(D.Normal(0.0, 1.0), 1), LazytError, "reinterpreted_batch_ndims is from 0 to 0, got 1"),
        (lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), [abs]), LazytError, "transforms are required, got"),
        (lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), D.SoftmaxTransform()), ShapeError, "read 1 axes"),
        (lambda: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)), LazytError, "a Categorical chooses"),
        (lambda: D.MixtureSameFamily(D.Categorical([1.0]), D.Normal(lt.ones(2), 1.0)), ShapeError, "1 categories for"),
        (lambda: D.MultivariateNormal(lt.ones(2), lt.eye(3)), ShapeError, r"loc has 2 elements, covariance_matrix has"),
        (lambda: D.MultivariateNormal(lt.ones(2)), LazytError, "MultivariateNormal: one of covariance_matrix and"),
        (lambda: D.LKJCholesky(1), LazytError, "LKJCholesky: dim is an integer of at least 2, got 1"),
        (lambda: D.Wishart(1.0, lt.eye(3)), LazytError, r"Wishart: df must be greater_than\(2\), got 1.0"),
        (lambda: D.Wishart(4.0, lt.ones((2, 3))), ShapeError, "Wishart: a square covariance_matrix is required"),
        (lambda: D.RelaxedBernoulli(0.0, 0.5), LazytError, "Bernoulli: temperature must be positive, got 0.0"),
        (lambda: D.NegativeBinomial(2.0, 1.0), LazytError, r"probs must be half_open_interval\(0.0, 1.0\), got 1.0"),
        (lambda: D.NegativeBinomial(2.0, 0.5).rsample(), NotSupportedError, "NegativeBinomial.rsample: not supp"),
        (
            lambda: D.LowRankMultivariateNormal(lt.ones(2), lt.ones((3, 1)), lt.ones(2)), ShapeError,
            r"LowRankMultivariateNormal: loc has 2 elements, cov_factor has shape \(3, 1\)",
        ),
        (lambda: D.AbsTransform().log_abs_det_jacobian(1.0, 1.0), NotSupportedError, "AbsTransform.log_abs_det"),
        (
            lambda: D.biject_to(D.constraints.lower_cholesky), NotSupportedError,
            "biject_to: not supported: a transform to lower_cholesky, as none is registered",
        ),
        (lambda: D.transform_to("real"), LazytError, "transform_to: a constraint is required, got 'real'"),
        (lambda: D.transform_to.register("real", abs), LazytError, "transform_to.register: a constraint is required"),
        (lambda: D.CorrCholeskyTransform()(lt.ones(4)), ShapeError, r"n \(n - 1\) / 2 numbers are required, got 4"),
        (lambda: D.CorrCholeskyTransform().inverse_shape((2, 3)), ShapeError, "square matrices are required, got"),
        (lambda: D.ReshapeTransform((2,), (3,)), ShapeError, r"ReshapeTransform: \(2,\) and \(3,\) have different"),
        (lambda: D.ReshapeTransform((4,), (2, 2))(lt.ones(3)), ShapeError, r"last dimensions are \(4,\), got shape"),
        (lambda: D.StackTransform([abs]), LazytError, "StackTransform: transforms are required, got"),
        (lambda: D.CatTransform([D.ExpTransform()], 0, [1, 2]), LazytError, "CatTransform: 2 lengths for 1 transforms"),
        (lambda: D.CatTransform([D.ExpTransform()])(lt.ones(2)), ShapeError, "CatTransform: 1 along axis 0 are"),
        (lambda: D.SoftmaxTransform().sign, NotSupportedError, "SoftmaxTransform.sign: not supported"),
        (lambda: D.IndependentTransform(D.ExpTransform(), -1), LazytError, "reinterpreted_batch_ndims is at least 0"),
        (lambda: D.kl_divergence(D.Beta(1.0, 1.0), D.Laplace(0.0, 1.0)), NotSupportedError, "Beta and Laplace have no"),
        (lambda: D.kl_divergence(D.Binomial(1, 0.5), D.Binomial(2, 0.5)), NotSupportedError, "larger total_count"),
        (lambda: D.register_kl(int, D.Normal), LazytError, "register_kl: classes of distributions are required"),
        (lambda: lt.multinomial(lt.ones((1, 1, 1)), 1), ShapeError, r"multinomial: .* got shape \(1, 1, 1\)"),
        (lambda: lt.multinomial(lt.ones(3, dtype="int32"), 1), DTypeError, "multinomial: .* got int32"),
        (lambda: lt.multinomial(lt.ones(3), 4), LazytError, "from 1 to 3 samples without .*, got num_samples=4"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial(replacement: bool) -> None:
    lt.random.seed(1)
    w = np.array([[1.0, 2.0, 0.0, 5.0], [4.0, 4.0, 1.0, 1.0]], np.float32)
    rows = lt.asarray(np.repeat(w, N, axis=0))
    found = lt.multinomial(rows, 2, replacement)
    assert found.shape == (2 * N, 2) and found.dtype == np.int64 and found.is_pending
    drawn = found.numpy().reshape(2, N, 2)
    first = np.stack([np.bincount(x, minlength=4) for x in drawn[..., 0]]) / N
    np.testing.assert_allclose(first, w / w.sum(1, keepdims=True), atol=0.02)
    second = np.stack([np.bincount(x, minlength=4) for x in drawn[..., 1]]) / N
    p = w / w.sum(1, keepdims=True)
    want = p if replacement else np.array([[sum(q[i] * q[j] / (1 - q[i]) for i in range(4) if i != j) for j in range(4)]
                                           for q in p])  # fmt: skip
    np.testing.assert_allclose(second, want, atol=0.02)
    assert replacement or (drawn[..., 0] != drawn[..., 1]).all()


def test_a_distribution_shows_numbers_that_are_known() -> None:
    one = lt.asarray([0.5]) + 1
    with lt.no_sync():
        assert repr(D.Normal(0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
        assert repr(D.Exponential([0.1])) == "Exponential(rate: [0.1])"
        assert repr(D.Bernoulli(logits=-1)) == "Bernoulli(logits: -1.0)"
        assert repr(D.RelaxedBernoulli(2.0, 0.25)) == "RelaxedBernoulli(probs: 0.25)"
        assert repr(D.Normal(one, 2.0)) == "Normal(loc: (1,), scale: [2.])"
        assert one.is_pending
    one.numpy()
    assert repr(D.Normal(one, 2.0)) == "Normal(loc: [1.5], scale: [2.])"
    grown = lt.tensor(0.1, dtype=lt.float64, requires_grad=True)
    assert repr(D.HalfNormal(grown)) == "HalfNormal(scale: 0.1)"
    assert lt.vmap(lambda x: x * len(repr(D.Exponential(x + 1))))(lt.ones(2)).tolist() == [21.0, 21.0]


def test_a_distribution_shows_its_shapes() -> None:
    assert repr(D.Normal(0.0, lt.ones(2))) == "Normal(loc: (2,), scale: (2,))"
    assert repr(D.Independent(D.Normal(0.0, lt.ones(2)), 1)) == "Independent(Normal(loc: (2,), scale: (2,)), 1)"
