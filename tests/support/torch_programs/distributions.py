"""Every distribution's numbers with their gradients, every pair's divergence, every transform."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.support.torch_programs import array

LOC, SCALE = [0.5, -1.0, 2.0], [0.7, 1.3, 2.5]
A, B = [0.4, 1.0, 7.5], [2.0, 0.6, 12.0]
SHARES, OTHERS = [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], [[0.4, 0.4, 0.2], [0.3, 0.6, 0.1]]
LOGITS = [[0.3, -1.0, 2.0], [0.0, 0.5, -0.5]]
PROBS = [0.2, 0.5, 0.9]
FACTOR = [[1.5, 0.0, 0.0], [0.3, 0.8, 0.0], [-0.4, 0.6, 2.0]]
COVARIANCE = (np.array(FACTOR) @ np.array(FACTOR).T).tolist()
WIDE = [[0.5, 1.0], [-1.0, 0.3], [0.2, 0.8]]
OTHER = [[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.5]]
CORRELATED = [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [-0.48, 0.6, 0.64]]
ANY = [[-1.5, 0.2, 2.5], [0.4, -0.6, 3.0]]
POSITIVE = [[0.1, 0.9, 3.0], [2.0, 0.4, 9.0]]
UNIT = [[0.1, 0.5, 0.93], [0.7, 0.2, 0.4]]
COUNTS = [[0.0, 3.0, 7.0], [1.0, 2.0, 5.0]]
BITS = [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]


def relaxed(space: Any, module: str) -> Any:
    """Where PyTorch has what it does not list beside the others."""
    return getattr(space, module, space)


# A name: how it is made of the library's namespace and parameters, the parameters, and values.
DISTRIBUTIONS: dict[str, tuple[Callable[..., Any], list[Any], Any]] = {
    "Normal": (lambda d, a, b: d.Normal(a, b), [LOC, SCALE], ANY),
    "LogNormal": (lambda d, a, b: d.LogNormal(a, b), [LOC, SCALE], POSITIVE),
    "Uniform": (lambda d, a, b: d.Uniform(a, b), [[-2.0, -1.0, 1.0], [1.0, 4.0, 3.5]], ANY),
    "Laplace": (lambda d, a, b: d.Laplace(a, b), [LOC, SCALE], ANY),
    "Cauchy": (lambda d, a, b: d.Cauchy(a, b), [LOC, SCALE], ANY),
    "Gumbel": (lambda d, a, b: d.Gumbel(a, b), [LOC, SCALE], ANY),
    "HalfNormal": (lambda d, a: d.HalfNormal(a), [SCALE], POSITIVE),
    "HalfCauchy": (lambda d, a: d.HalfCauchy(a), [SCALE], POSITIVE),
    "Exponential": (lambda d, a: d.Exponential(a), [SCALE], POSITIVE),
    "Pareto": (lambda d, a, b: d.Pareto(a, b), [[0.05, 0.3, 1.0], [0.8, 2.5, 4.0]], POSITIVE),
    "Weibull": (lambda d, a, b: d.Weibull(a, b), [SCALE, [1.2, 2.0, 3.5]], POSITIVE),
    "VonMises": (lambda d, a, b: d.VonMises(a, b), [LOC, [0.3, 2.5, 40.0]], ANY),
    "Gamma": (lambda d, a, b: d.Gamma(a, b), [A, B], POSITIVE),
    "Chi2": (lambda d, a: d.Chi2(a), [A], POSITIVE),
    "StudentT": (lambda d, a, b, c: d.StudentT(a, b, c), [[2.5, 4.0, 30.0], LOC, SCALE], ANY),
    "Beta": (lambda d, a, b: d.Beta(a, b), [A, B], UNIT),
    "Dirichlet": (lambda d, a: d.Dirichlet(a), [[A, B]], SHARES),
    "Bernoulli": (lambda d, a: d.Bernoulli(a), [PROBS], BITS),
    "Bernoulli of logits": (lambda d, a: d.Bernoulli(logits=a), [LOC], BITS),
    "Geometric": (lambda d, a: d.Geometric(a), [PROBS], COUNTS),
    "Geometric of logits": (lambda d, a: d.Geometric(logits=a), [LOC], COUNTS),
    "Poisson": (lambda d, a: d.Poisson(a), [SCALE], COUNTS),
    "Binomial": (lambda d, a: d.Binomial(8, a), [PROBS], COUNTS),
    "Binomial of logits": (lambda d, a: d.Binomial(8, logits=a), [LOC], COUNTS),
    "Categorical": (lambda d, a: d.Categorical(a), [SHARES], [2, 0]),
    "Categorical of logits": (lambda d, a: d.Categorical(logits=a), [LOGITS], [[1, 2], [0, 0]]),
    "OneHotCategorical": (lambda d, a: d.OneHotCategorical(a), [SHARES], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    "Multinomial": (lambda d, a: d.Multinomial(6, a), [SHARES], [[1.0, 2.0, 3.0], [6.0, 0.0, 0.0]]),
    "Multinomial of logits": (
        lambda d, a: d.Multinomial(6, logits=a, validate_args=False), [LOGITS], [[1.0, 2.0, 3.0], [0.0, 0.0, 6.0]]
    ),
    "MultivariateNormal": (lambda d, a, b: d.MultivariateNormal(a, scale_tril=b), [LOC, FACTOR], ANY),
    "MultivariateNormal of covariance": (lambda d, a, b: d.MultivariateNormal(a, b), [LOC, COVARIANCE], ANY),
    "MultivariateNormal of precision": (
        lambda d, a, b: d.MultivariateNormal(a, precision_matrix=b), [LOC, COVARIANCE], ANY
    ),
    "NegativeBinomial": (lambda d, a, b: d.NegativeBinomial(a, b), [[0.5, 3.0, 6.0], PROBS], COUNTS),
    "NegativeBinomial of logits": (lambda d, a, b: d.NegativeBinomial(a, logits=b), [[0.5, 3.0, 6.0], LOC], COUNTS),
    "InverseGamma": (lambda d, a, b: d.InverseGamma(a, b), [A, B], POSITIVE),
    "FisherSnedecor": (lambda d, a, b: d.FisherSnedecor(a, b), [A, [1.5, 3.0, 12.0]], POSITIVE),
    "GeneralizedPareto": (
        lambda d, a, b, c: d.GeneralizedPareto(a, b, c), [[-2.0, 0.0, 1.0], SCALE, [0.3, 1.2, 0.6]],
        [[-1.5, 0.2, 2.5], [0.4, 0.6, 3.0]],
    ),
    "GeneralizedPareto without a tail": (
        lambda d, a, b: d.GeneralizedPareto(a, b, 0.0 * a), [[-2.0, 0.0, 1.0], SCALE],
        [[-1.5, 0.2, 2.5], [0.4, 0.6, 3.0]],
    ),
    "Kumaraswamy": (lambda d, a, b: d.Kumaraswamy(a, b), [A, B], UNIT),
    "ContinuousBernoulli": (lambda d, a: d.ContinuousBernoulli(a), [[0.2, 0.5002, 0.9]], UNIT),
    "ContinuousBernoulli of logits": (lambda d, a: d.ContinuousBernoulli(logits=a), [LOC], UNIT),
    "LogitRelaxedBernoulli": (
        lambda d, t, a: relaxed(d, "relaxed_bernoulli").LogitRelaxedBernoulli(t, a), [0.7, PROBS], ANY
    ),
    "RelaxedBernoulli": (lambda d, t, a: d.RelaxedBernoulli(t, a), [0.7, PROBS], UNIT),
    "RelaxedBernoulli of logits": (lambda d, t, a: d.RelaxedBernoulli(t, logits=a), [2.0, LOC], UNIT),
    "ExpRelaxedCategorical": (
        lambda d, t, a: relaxed(d, "relaxed_categorical").ExpRelaxedCategorical(t, a), [0.7, SHARES],
        np.log(SHARES).tolist(),
    ),
    "RelaxedOneHotCategorical": (lambda d, t, a: d.RelaxedOneHotCategorical(t, a), [0.7, SHARES], OTHERS),
    "RelaxedOneHotCategorical of logits": (
        lambda d, t, a: d.RelaxedOneHotCategorical(t, logits=a), [2.0, LOGITS], SHARES
    ),
    "OneHotCategoricalStraightThrough": (
        lambda d, a: d.OneHotCategoricalStraightThrough(a), [SHARES], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    ),
    "LogisticNormal": (lambda d, a, b: d.LogisticNormal(a, b), [LOC[:2], SCALE[:2]], SHARES),
    "LowRankMultivariateNormal": (
        lambda d, a, b, c: d.LowRankMultivariateNormal(a, b, c), [LOC, WIDE, SCALE], ANY
    ),
    "Wishart": (lambda d, a, b: d.Wishart(a, b), [[4.5, 6.0], COVARIANCE], [COVARIANCE, OTHER]),
    "LKJCholesky": (lambda d, a: d.LKJCholesky(3, a), [[0.7, 2.5]], [CORRELATED, np.eye(3).tolist()]),
    "Independent": (lambda d, a, b: d.Independent(d.Normal(a, b), 1), [LOC, SCALE], ANY),
    "TransformedDistribution": (
        lambda d, a, b: d.TransformedDistribution(
            d.Normal(a, b), [d.AffineTransform(1.0, -0.5), d.ExpTransform(), d.PowerTransform(1.5)]
        ),
        [LOC, SCALE], POSITIVE,
    ),
    "TransformedDistribution of logistic": (
        lambda d, a, b: d.TransformedDistribution(
            d.Uniform(0.0 * a, 0.0 * b + 1.0), [d.SigmoidTransform().inv, d.AffineTransform(a, b)]
        ),
        [LOC, SCALE], ANY,
    ),
    "TransformedDistribution of vectors": (
        lambda d, a, b: d.TransformedDistribution(d.Normal(a, b), d.StickBreakingTransform()),
        [LOC[:2], SCALE[:2]], SHARES,
    ),
    "TransformedDistribution to matrices": (
        lambda d, a, b: d.TransformedDistribution(d.Normal(a, b), d.CorrCholeskyTransform()),
        [LOC, SCALE], CORRELATED,
    ),
    "TransformedDistribution of a reshape": (
        lambda d, a, b: d.TransformedDistribution(d.Normal(a, b), [d.ReshapeTransform((3,), (3, 1)), d.ExpTransform()]),
        [LOC, SCALE], [[0.5], [1.0], [2.0]],
    ),
    "MixtureSameFamily": (
        lambda d, w, a, b: d.MixtureSameFamily(d.Categorical(w), d.Normal(a, b)), [SHARES[0], LOC, SCALE], ANY[0]
    ),
    "MixtureSameFamily of vectors": (
        lambda d, w, a, b: d.MixtureSameFamily(d.Categorical(w), d.Independent(d.Normal(a, b), 1)),
        [[0.3, 0.7], ANY, POSITIVE], ANY,
    ),
}  # fmt: skip

# Parameters of which pairs of two kinds are made, and the pairs.
PARAMETERS: dict[str, list[Any]] = {
    "Bernoulli": [PROBS],
    "Poisson": [SCALE],
    "Binomial": [PROBS],
    "Beta": [A, B],
    "ContinuousBernoulli": [PROBS],
    "Exponential": [SCALE],
    "Gamma": [A, B],
    "Gumbel": [LOC, SCALE],
    "Laplace": [LOC, SCALE],
    "Normal": [LOC, SCALE],
    "Pareto": [[0.1, 0.3, 1.0], [0.8, 2.5, 4.0]],
    "Uniform": [[-1.0, 0.25, -0.5], [2.0, 0.75, 1.5]],
    "MultivariateNormal": [LOC, FACTOR],
    "LowRankMultivariateNormal": [A, WIDE, B],
}
ACROSS = [
    ("Bernoulli", "Poisson"), ("MultivariateNormal", "LowRankMultivariateNormal"),
    ("LowRankMultivariateNormal", "MultivariateNormal"), ("Normal", "Beta"),
    *((p, q) for p in ("Beta", "ContinuousBernoulli", "Pareto") for q in ("Exponential", "Normal")),
    ("Beta", "ContinuousBernoulli"), ("Beta", "Gamma"), ("Beta", "Uniform"), ("Pareto", "Gamma"),
    *((p, q) for p in ("Exponential", "Gamma") for q in ("Gumbel", "Normal")),
    ("Gumbel", "Normal"), ("Normal", "Gumbel"),
    *(("Uniform", q) for q in ("Beta", "ContinuousBernoulli", "Exponential", "Gamma", "Gumbel", "Pareto")),
]  # fmt: skip

# Two of one kind, or of two: how each is made, and the parameters of both.
PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Any], list[Any]]] = {
    **{
        name: (made := DISTRIBUTIONS[name][0], made, first, second)
        for name, first, second in (
            ("Normal", [LOC, SCALE], [A, B]), ("LogNormal", [LOC, SCALE], [A, B]), ("Laplace", [LOC, SCALE], [A, B]),
            ("Cauchy", [LOC, SCALE], [A, B]), ("Gumbel", [LOC, SCALE], [A, B]), ("Gamma", [A, B], [B, A]),
            ("HalfNormal", [SCALE], [A]), ("Exponential", [SCALE], [A]), ("Chi2", [A], [B]), ("Beta", [A, B], [B, A]),
            ("Uniform", [[0.0, 1.0], [1.0, 2.0]], [[-1.0, 1.5], [1.0, 3.0]]),
            ("Pareto", [[1.0, 0.5], A[:2]], [[0.5, 1.0], B[:2]]), ("Dirichlet", [[A, B]], [[B, A]]),
            ("Bernoulli", [PROBS], [UNIT[1]]), ("Geometric", [PROBS], [UNIT[1]]), ("Poisson", [SCALE], [A]),
            ("Binomial", [PROBS], [UNIT[1]]), ("Categorical", [SHARES], [OTHERS]),
            ("OneHotCategorical", [SHARES], [OTHERS]),
            ("MultivariateNormal", [LOC, FACTOR], [A, np.eye(3).tolist()]),
            ("Independent", [LOC, SCALE], [A, B]), ("TransformedDistribution", [LOC, SCALE], [A, B]),
        )
    },
    **{
        name: (made := DISTRIBUTIONS[name][0], made, first, second)
        for name, first, second in (
            ("ContinuousBernoulli", [[0.2, 0.5002, 0.9]], [PROBS]), ("InverseGamma", [A, B], [B, A]),
            ("LowRankMultivariateNormal", [LOC, WIDE, SCALE], [A, [[1.0], [0.2], [-0.5]], B]),
        )
    },
    **{
        f"{p} and {q}": (DISTRIBUTIONS[p][0], DISTRIBUTIONS[q][0], PARAMETERS[p], PARAMETERS[q]) for p, q in ACROSS
    },
    "Exponential and Gamma": (DISTRIBUTIONS["Exponential"][0], DISTRIBUTIONS["Gamma"][0], [SCALE], [A, B]),
    "Gamma and Exponential": (DISTRIBUTIONS["Gamma"][0], DISTRIBUTIONS["Exponential"][0], [A, B], [SCALE]),
    "Normal and Laplace": (DISTRIBUTIONS["Normal"][0], DISTRIBUTIONS["Laplace"][0], [LOC, SCALE], [A, B]),
    "Laplace and Normal": (DISTRIBUTIONS["Laplace"][0], DISTRIBUTIONS["Normal"][0], [LOC, SCALE], [A, B]),
    "Uniform and Normal": (
        DISTRIBUTIONS["Uniform"][0], DISTRIBUTIONS["Normal"][0], [[0.0, 1.0], [1.0, 4.0]], [A[:2], B[:2]]
    ),
}  # fmt: skip

# A transform, and values that it is given.
TRANSFORMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "AffineTransform": (lambda d: d.AffineTransform(0.5, -2.0), ANY),
    "AffineTransform of vectors": (lambda d: d.AffineTransform(0.5, 3.0, event_dim=1), ANY),
    "ExpTransform": (lambda d: d.ExpTransform(), ANY),
    "PowerTransform": (lambda d: d.PowerTransform(-2.0), POSITIVE),
    "SigmoidTransform": (lambda d: d.SigmoidTransform(), ANY),
    "TanhTransform": (lambda d: d.TanhTransform(), ANY),
    "SoftplusTransform": (lambda d: d.SoftplusTransform(), ANY),
    "StickBreakingTransform": (lambda d: d.StickBreakingTransform(), ANY),
    "ComposeTransform": (lambda d: d.ComposeTransform([d.TanhTransform(), d.StickBreakingTransform()]), ANY),
    "CorrCholeskyTransform": (lambda d: d.CorrCholeskyTransform(), ANY),
    "ReshapeTransform": (lambda d: d.ReshapeTransform((3,), (3, 1)), ANY),
    "CatTransform": (lambda d: d.CatTransform([d.ExpTransform(), d.TanhTransform()], 1, [1, 2]), ANY),
    "CatTransform of parts": (
        lambda d: d.CatTransform([d.AffineTransform(0.5, 3.0, event_dim=1), d.TanhTransform()], -1, [1, 2]),
        ANY,
    ),
    "StackTransform": (lambda d: d.StackTransform([d.ExpTransform(), d.TanhTransform()], 0), ANY),
    "CumulativeDistributionTransform": (lambda d: d.CumulativeDistributionTransform(d.Normal(0.5, 1.0)), ANY),
    "composed of a reshape": (
        lambda d: d.ComposeTransform([d.ExpTransform(), d.ReshapeTransform((3,), (3, 1)), d.ExpTransform()]),
        ANY,
    ),
    "IndependentTransform": (lambda d: d.IndependentTransform(d.ExpTransform(), 1), ANY),
    "inverse": (lambda d: d.ExpTransform().inv, POSITIVE),
}
ONE_WAY = {
    "AbsTransform": (lambda d: d.AbsTransform(), ANY),
    "SoftmaxTransform": (lambda d: d.SoftmaxTransform(), ANY),
    "LowerCholeskyTransform": (lambda d: d.LowerCholeskyTransform(), COVARIANCE),
    "PositiveDefiniteTransform": (lambda d: d.PositiveDefiniteTransform(), COVARIANCE),
    "to simplex": (lambda d: d.transform_to(d.constraints.simplex), ANY),
    "to a positive definite matrix": (lambda d: d.transform_to(d.constraints.positive_definite), COVARIANCE),
    "to an interval": (lambda d: d.biject_to(d.constraints.interval(-1.0, 3.0)), ANY),
    "to what is above": (lambda d: d.biject_to(d.constraints.greater_than(2.0)), ANY),
    "to what is below": (lambda d: d.transform_to(d.constraints.less_than(2.0)), ANY),
}


def tensors(lib: Any, dtype: str, values: list[Any]) -> list[Any]:
    return [lib.tensor(np.array(v), dtype=getattr(lib, dtype), requires_grad=True) for v in values]


def numbers(name: str, lib: Any, dtype: str) -> dict[str, Any]:
    """Log-probabilities with their gradients, and all that the distribution has a form for."""
    make, given, values = DISTRIBUTIONS[name]
    params = tensors(lib, dtype, given)
    d = make(lib.distributions, *params)
    x = np.array(values)
    x = lib.tensor(x, dtype=getattr(lib, dtype)) if x.dtype.kind == "f" else lib.tensor(x)
    log_prob = d.log_prob(x)
    log_prob.sum().backward()
    found = {"log_prob": log_prob, "batch": np.array(d.batch_shape), "event": np.array(d.event_shape)}
    found |= {f"gradient/{i}": p.grad for i, p in enumerate(params)}
    head = (2, *tuple(d.batch_shape))
    wide = d.expand(head)
    found["expanded"] = np.array([*wide.batch_shape, *wide.event_shape])
    if x.ndim - len(d.event_shape) == len(d.batch_shape) and tuple(x.shape)[-1:] != (2,):
        found["expanded log_prob"] = wide.log_prob(x)
    quantiles = lib.tensor(np.array([0.1, 0.5, 0.8]), dtype=getattr(lib, dtype))
    for what, get in {
        "mean": lambda: d.mean, "variance": lambda: d.variance, "mode": lambda: d.mode, "stddev": lambda: d.stddev,
        "entropy": d.entropy, "perplexity": d.perplexity, "cdf": lambda: d.cdf(x),
        "icdf": lambda: d.icdf(quantiles if d.batch_shape and d.batch_shape[-1] == 3 else quantiles[:1]),
        "support": d.enumerate_support, "unexpanded": lambda: d.enumerate_support(False),
    }.items():  # fmt: skip
        if what == "cdf" and name in ("Gamma", "Chi2", "InverseGamma"):
            continue  # the incomplete gamma function, which lazyt has not
        try:
            found[what] = get()
        except NotImplementedError:
            continue
    return {k: array(v) for k, v in found.items()}


def divergence(name: str, lib: Any, dtype: str) -> dict[str, Any]:
    first, second, a, b = PAIRS[name]
    p, q = (make(lib.distributions, *tensors(lib, dtype, given)) for make, given in ((first, a), (second, b)))
    return {"kl": array(lib.distributions.kl_divergence(p, q))}


def transformed(name: str, lib: Any, dtype: str) -> dict[str, Any]:
    make, values = {**TRANSFORMS, **ONE_WAY}[name]
    t, (x,) = make(lib.distributions), tensors(lib, dtype, [values])
    y = t(x)
    found = {"y": y, "shape": np.array(t.forward_shape(tuple(x.shape)))}
    if name in TRANSFORMS:
        found |= {"jacobian": t.log_abs_det_jacobian(x, y), "x": t.inv(y), "back": t.inverse_shape(tuple(y.shape))}
    return {k: array(v) for k, v in found.items()}


PROGRAMS = {
    **{name: partial(numbers, name) for name in DISTRIBUTIONS},
    **{f"kl of {name}": partial(divergence, name) for name in PAIRS},
    **{f"transform {name}": partial(transformed, name) for name in (*TRANSFORMS, *ONE_WAY)},
}
