"""Losses of one number an element, of classes and of likelihoods, with each of their options."""

import numpy as np

from tests.support.torch_golden import Case

RNG = np.random.default_rng(19)
X, T = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3))
UNIT, HALF = RNG.uniform(0.05, 0.95, (4, 3)), RNG.uniform(0.05, 0.95, (4, 3))
POSITIVE = RNG.uniform(0.2, 2.0, (4, 3))
COUNTS = np.array([[0, 1, 2], [3, 0, 5], [1, 1, 4], [7, 2, 0]]) * 1.0
LABELS = np.array([2, 0, 1, 1])
MAPS, PIXELS = (2, 3, 2, 2), np.array([[[0, 2], [1, -100]], [[1, 1], [2, 0]]])
MASS = np.exp(X) / np.exp(X).sum(1, keepdims=True)
BY_CLASS = np.array([0.5, 1.5, 2.0])
EACH = np.array([[0.5, 1.0, 2.0]])


def on(name, *rest, **options):
    """The function of a name, with further operands (arrays) and options, of one input that has a gradient."""

    def build(t):
        def f(x, *more):
            def made(v):
                if not isinstance(v, np.ndarray):
                    return v
                return t.tensor(v, dtype=x.dtype) if v.dtype.kind == "f" else t.tensor(v)

            given = {k: made(v) for k, v in options.items()}
            return getattr(t.nn.functional, name)(x, *more, *(made(v) for v in rest), **given)

        return f

    return build


def reductions(name, x, *rest, title=None, **options):
    return [
        Case(f"{title or name} {reduction} {sorted(options)}", on(name, *rest, reduction=reduction, **options), (x,))
        for reduction in ("mean", "sum", "none")
    ]


CASES = [
    *reductions("mse_loss", X, T),
    *reductions("mse_loss", X, T, weight=POSITIVE),
    *reductions("l1_loss", X, T),
    *reductions("l1_loss", X, T, weight=POSITIVE),
    *reductions("smooth_l1_loss", X, T, beta=0.4),
    Case("smooth_l1_loss of beta 0", on("smooth_l1_loss", T, beta=0.0), (X,)),
    *reductions("huber_loss", X, T, delta=0.4),
    *reductions("huber_loss", X, T, delta=0.4, weight=POSITIVE),
    *reductions("binary_cross_entropy", UNIT, HALF),
    *reductions("binary_cross_entropy", UNIT, HALF, weight=EACH),
    *reductions("binary_cross_entropy_with_logits", X, HALF),
    *reductions("binary_cross_entropy_with_logits", X, HALF, weight=POSITIVE, pos_weight=BY_CLASS),
    *reductions("kl_div", X, MASS),
    *reductions("kl_div", X, T, log_target=True),
    Case("kl_div batchmean", on("kl_div", MASS, reduction="batchmean"), (X,)),
    Case("kl_div batchmean of logarithms", on("kl_div", T, reduction="batchmean", log_target=True), (X,)),
    *reductions("cross_entropy", X, LABELS),
    *reductions("cross_entropy", X, LABELS, weight=BY_CLASS, ignore_index=1, label_smoothing=0.1),
    *reductions("cross_entropy", X, MASS, title="cross_entropy of probabilities"),
    *reductions("cross_entropy", X, MASS, title="cross_entropy of probabilities", weight=BY_CLASS, label_smoothing=0.2),
    *reductions("cross_entropy", MAPS, PIXELS, weight=BY_CLASS),
    Case("cross_entropy of one row", on("cross_entropy", np.array(1)), ((3,),)),
    *reductions("nll_loss", X, LABELS),
    *reductions("nll_loss", MAPS, PIXELS.clip(0), weight=BY_CLASS, ignore_index=2),
    Case("linear_cross_entropy", lambda t: lambda x, w: t.nn.functional.linear_cross_entropy(
        x, w, t.tensor(LABELS), label_smoothing=0.1), ((4, 5), (3, 5))),
    Case("linear_cross_entropy, K-d", lambda t: lambda x, w: t.nn.functional.linear_cross_entropy(
        x, w, t.tensor(np.stack([LABELS, LABELS[::-1]], 1)), reduction="sum"), ((4, 5), (3, 2, 5))),
    *reductions("poisson_nll_loss", X, COUNTS),
    *reductions("poisson_nll_loss", POSITIVE, COUNTS, log_input=False, full=True, eps=0.1),
    *(Case(f"gaussian_nll_loss {r} {full}", lambda t, r=r, full=full: lambda x, y, v:
           t.nn.functional.gaussian_nll_loss(x, y, v, full=full, reduction=r), (X, T, POSITIVE))
      for r in ("mean", "sum", "none") for full in (False, True)),
    Case("gaussian_nll_loss of a number", on("gaussian_nll_loss", T, 0.5), (X,)),
    Case("gaussian_nll_loss of a variance a row", on("gaussian_nll_loss", T, POSITIVE[:, 0]), (X,)),
    Case("gaussian_nll_loss of small variances", lambda t: lambda x, v: t.nn.functional.gaussian_nll_loss(
        x, t.tensor(T, dtype=x.dtype), v, eps=0.5), (X, POSITIVE[:, :1])),
    Case("CrossEntropyLoss", lambda t: t.nn.CrossEntropyLoss(
        weight=t.tensor(BY_CLASS), ignore_index=0, reduction="none", label_smoothing=0.3), (X, LABELS)),
    Case("NLLLoss", lambda t: t.nn.NLLLoss(weight=t.tensor(BY_CLASS), reduction="none"), (X, LABELS)),
    Case("BCELoss", lambda t: t.nn.BCELoss(weight=t.tensor(EACH)), (UNIT, COUNTS.clip(0, 1) * 1.0)),
    Case("BCEWithLogitsLoss", lambda t: t.nn.BCEWithLogitsLoss(
        t.tensor(EACH), reduction="sum", pos_weight=t.tensor(BY_CLASS)), (X, HALF)),
    Case("MSELoss", lambda t: t.nn.MSELoss(), (X, T)),
    Case("L1Loss", lambda t: t.nn.L1Loss(reduction="sum"), (X, T)),
    Case("SmoothL1Loss", lambda t: t.nn.SmoothL1Loss(beta=0.3), (X, T)),
    Case("HuberLoss", lambda t: t.nn.HuberLoss(delta=0.3), (X, T)),
    Case("KLDivLoss", lambda t: t.nn.KLDivLoss(reduction="batchmean", log_target=True), (X, T)),
    Case("PoissonNLLLoss", lambda t: t.nn.PoissonNLLLoss(), (X, COUNTS)),
    Case("GaussianNLLLoss", lambda t: t.nn.GaussianNLLLoss(full=True), (X, T, POSITIVE)),
]  # fmt: skip
