"""Distances, similarities, and vectors of length 1."""

import numpy as np

from tests.support.torch_golden import Case

A, B = (4, 3), (5, 3)


def of(name, *args, **options):
    return lambda t: lambda *xs: getattr(t.nn.functional, name)(*xs, *args, **options)


CASES = [
    Case("cosine_similarity", of("cosine_similarity"), (A, A)),
    Case("cosine_similarity, broadcast", of("cosine_similarity", dim=-1), ((4, 1, 3), (5, 3))),
    Case("cosine_similarity, one vector", of("cosine_similarity", dim=0), (A, (4, 1))),
    Case("cosine_similarity of 0", of("cosine_similarity", eps=0.5), (np.array([[0.0, 0.0], [0.1, 0.2]]), (2, 2))),
    Case("pairwise_distance", of("pairwise_distance"), (A, A)),
    Case("pairwise_distance of p", of("pairwise_distance", p=3.0, eps=0.1, keepdim=True), (A, (3,))),
    Case("pairwise_distance of 1", of("pairwise_distance", 1.0), ((3,), (3,))),
    *(Case(f"cdist of {p}", lambda t, p=p: lambda x, y: t.cdist(x, y, p), ((2, *A), (2, *B)))
      for p in (0.0, 1.0, 2.0, 3.5, float("inf"))),
    Case("cdist of many", lambda t: lambda x, y: t.cdist(x, y), ((30, 2), (26, 2))),
    Case("cdist of what is equal", lambda t: lambda x: t.cdist(x, t.tensor(np.eye(3), dtype=x.dtype)), (np.eye(3),)),
    *(Case(f"pdist of {p}", of("pdist", p), (A,)) for p in (1.0, 2.0, 3.0)),
    *(Case(f"normalize {i}", of("normalize", *args), ((2, 3, 2),))
      for i, args in enumerate([(), (1.0,), (3.0, 2), (2.0, (0, 1)), (2.0, -1, 5.0), (float("inf"), 0)])),
    Case("CosineSimilarity", lambda t: t.nn.CosineSimilarity(dim=0, eps=0.1), (A, A)),
    Case("PairwiseDistance", lambda t: t.nn.PairwiseDistance(p=1.5, keepdim=True), (A, A)),
]  # fmt: skip
