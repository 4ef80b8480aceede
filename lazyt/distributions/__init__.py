"""Probability distributions over the same graph. Names as in `torch.distributions`.

Samples, log-probabilities, entropies and divergences are recorded like any other function; nothing is computed before
a value is read.
"""

from lazyt.distributions import constraints, transforms
from lazyt.distributions.base import Distribution
from lazyt.distributions.circular import VonMises
from lazyt.distributions.composed import (
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
    TransformedDistribution,
)
from lazyt.distributions.continuous import Exponential, Pareto, Uniform, Weibull
from lazyt.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    OneHotCategorical,
    Poisson,
)
from lazyt.distributions.gammas import Beta, Chi2, Dirichlet, Gamma, StudentT
from lazyt.distributions.kl import kl_divergence, register_kl
from lazyt.distributions.location_scale import Cauchy, Gumbel, HalfCauchy, HalfNormal, Laplace, LogNormal, Normal
from lazyt.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    PowerTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
)
from lazyt.tracing import tracebacks as _tracebacks

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "Laplace",
    "LogNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "Normal",
    "OneHotCategorical",
    "Pareto",
    "Poisson",
    "PowerTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "constraints",
    "kl_divergence",
    "register_kl",
    "transforms",
]

# Errors end at the user's line.
_tracebacks.guard_functions(globals(), __all__)
_tracebacks.guard_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
