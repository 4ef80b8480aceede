"""Losses that ask for a margin, with each of their options."""

import numpy as np

from tests.support.torch_cases.losses import reductions
from tests.support.torch_golden import Case

RNG = np.random.default_rng(20)
X, Y, Z = (RNG.standard_normal((4, 5)) for _ in range(3))
SIGNS = np.array([1.0, -1.0, -1.0, 1.0])
GRID = np.where(RNG.standard_normal((4, 5)) > 0, 1.0, -1.0)
BITS = (GRID + 1) / 2
LABELS = np.array([4, 0, 2, 2])
MANY = np.array([[3, 0, -1, 2, 2], [1, -1, -1, -1, -1], [-1, 2, 0, 0, 0], [0, 1, 2, 3, 4]])
BY_CLASS = np.array([0.5, 1.5, 2.0, 1.0, 0.2])


def pair(name, **options):
    """A function of two inputs and signs."""
    return [
        Case(
            f"{name} {r} {sorted(options)}",
            lambda t, r=r: (
                lambda a, b: getattr(t.nn.functional, name)(
                    a, b, t.tensor(SIGNS if a.ndim == 2 else SIGNS[0], dtype=a.dtype), reduction=r, **options
                )
            ),
            (X, Y),
        )
        for r in ("mean", "sum", "none")
    ]


def triplet(name, **options):
    return [
        Case(
            f"{name} {r} {sorted(options)}",
            lambda t, r=r: lambda a, b, c: getattr(t.nn.functional, name)(a, b, c, reduction=r, **options),
            (X, Y, Z),
        )
        for r in ("mean", "sum", "none")
    ]


CASES = [
    *reductions("hinge_embedding_loss", X, GRID),
    *reductions("hinge_embedding_loss", X, GRID, margin=0.3),
    *reductions("soft_margin_loss", X, GRID),
    *reductions("multilabel_soft_margin_loss", X, BITS),
    *reductions("multilabel_soft_margin_loss", X, BITS, weight=BY_CLASS),
    *reductions("multilabel_margin_loss", X, MANY),
    Case("multilabel_margin_loss of one row", lambda t: lambda x: t.nn.functional.multilabel_margin_loss(
        x, t.tensor(MANY[0])), ((5,),)),
    *reductions("multi_margin_loss", X, LABELS),
    *reductions("multi_margin_loss", X, LABELS, p=2, margin=0.7, weight=BY_CLASS),
    Case("multi_margin_loss of one row", lambda t: lambda x: t.nn.functional.multi_margin_loss(
        x, t.tensor(LABELS[:1])), ((1, 5),)),
    *pair("cosine_embedding_loss"),
    *pair("cosine_embedding_loss", margin=-0.5),
    *(Case(f"margin_ranking_loss {r} {m}", lambda t, r=r, m=m: lambda a, b: t.nn.functional.margin_ranking_loss(
        a, b, t.tensor(GRID, dtype=a.dtype), margin=m, reduction=r), (X, Y))
      for r in ("mean", "sum", "none") for m in (0.0, 0.4)),
    *triplet("triplet_margin_loss"),
    *triplet("triplet_margin_loss", margin=2.0, p=3.0, eps=0.01, swap=True),
    *triplet("triplet_margin_with_distance_loss"),
    Case("triplet_margin_with_distance_loss of one's own", lambda t: lambda a, b, c:
         t.nn.functional.triplet_margin_with_distance_loss(
             a, b, c, distance_function=lambda x, y: 1 - t.nn.functional.cosine_similarity(x, y), swap=True),
         (X, Y, Z)),
    Case("HingeEmbeddingLoss", lambda t: t.nn.HingeEmbeddingLoss(margin=0.5), (X, MANY * 0 + 1)),
    Case("CosineEmbeddingLoss", lambda t: t.nn.CosineEmbeddingLoss(margin=0.1), (X, Y, np.array([1, -1, 1, -1]))),
    Case("SoftMarginLoss", lambda t: t.nn.SoftMarginLoss(reduction="sum"), (X, MANY * 0 + 1)),
    Case("MultiLabelMarginLoss", lambda t: t.nn.MultiLabelMarginLoss(), (X, MANY)),
    Case("MultiLabelSoftMarginLoss", lambda t: t.nn.MultiLabelSoftMarginLoss(t.tensor(BY_CLASS)), (X, BITS)),
    Case("MultiMarginLoss", lambda t: t.nn.MultiMarginLoss(2, 0.5, t.tensor(BY_CLASS)), (X, LABELS)),
    Case("MarginRankingLoss", lambda t: t.nn.MarginRankingLoss(0.2), (X, Y, MANY * 0 + 1)),
    Case("TripletMarginLoss", lambda t: t.nn.TripletMarginLoss(swap=True), (X, Y, Z)),
    Case("TripletMarginWithDistanceLoss", lambda t: t.nn.TripletMarginWithDistanceLoss(
        distance_function=t.nn.PairwiseDistance(p=1.0)), (X, Y, Z)),
]  # fmt: skip
