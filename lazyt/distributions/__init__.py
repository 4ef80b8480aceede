"""Probability distributions over the same graph. Names as in `torch.distributions`.

Samples, log-probabilities, entropies and divergences are recorded like any other function; nothing is computed before
a value is read.
"""

from lazyt.distributions import constraints, transforms
from lazyt.distributions.base import Distribution
from lazyt.distributions.circular import VonMises
from lazyt.distributions.composed import (
    Independent,
    LogisticNormal,
    MixtureSameFamily,
    MultivariateNormal,
    TransformedDistribution,
)
from lazyt.distributions.composed_transforms import (
    CatTransform,
    CumulativeDistributionTransform,
    ReshapeTransform,
    StackTransform,
    identity_transform,
)
from lazyt.distributions.constraint_registry import biject_to, transform_to
from lazyt.distributions.continuous import Exponential, GeneralizedPareto, Pareto, Uniform, Weibull
from lazyt.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    Poisson,
)
from lazyt.distributions.gammas import Beta, Chi2, Dirichlet, FisherSnedecor, Gamma, InverseGamma, StudentT
from lazyt.distributions.kl import kl_divergence, register_kl
from lazyt.distributions.kl_across import ACROSS as _ACROSS  # noqa: F401 - registers pairs
from lazyt.distributions.location_scale import Cauchy, Gumbel, HalfCauchy, HalfNormal, Laplace, LogNormal, Normal
from lazyt.distributions.low_rank import LowRankMultivariateNormal
from lazyt.distributions.matrices import LKJCholesky, Wishart
from lazyt.distributions.matrix_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
)
from lazyt.distributions.relaxed import (
    ExpRelaxedCategorical,
    LogitRelaxedBernoulli,
    OneHotCategoricalStraightThrough,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
)
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
from lazyt.distributions.unit_interval import ContinuousBernoulli, Kumaraswamy
from lazyt.tracing import tracebacks as _tracebacks

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpRelaxedCategorical",
    "ExpTransform",
    "Exponential",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LogitRelaxedBernoulli",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]

# Errors end at the user's line.
_tracebacks.guard_functions(globals(), __all__)
_tracebacks.guard_classes(globals(), __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
