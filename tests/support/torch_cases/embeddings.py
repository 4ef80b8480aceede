"""Tables of vectors and bags of them, with their options; bilinear layers; dropout of nothing and of all."""

import numpy as np

from tests.support.torch_golden import Case

IDS = np.array([[1, 2, 4, 2], [4, 3, 2, 2]])
FLAT, STARTS = IDS.ravel(), np.array([0, 3, 3, 5])
ENDS = np.array([0, 3, 3, 8])
TABLE = (5, 3)


def table(title, f, *more, **options):
    return Case(title, lambda t: lambda w, *rest: f(t, w, *rest), (TABLE, *more), **options)


def bag(title, ids, starts=None, **options):
    """Of a table that has a gradient; what is written to it in place is a product of the input."""

    def build(t):
        def f(w):
            given = {k: t.tensor(v, dtype=w.dtype) if isinstance(v, np.ndarray) else v for k, v in options.items()}
            begin = None if starts is None else t.tensor(starts)
            return t.nn.functional.embedding_bag(t.tensor(ids), w, begin, **given)

        return f

    return Case(title, build, (TABLE,))


def looked_up(t, w, **options):
    return t.nn.functional.embedding(t.tensor(IDS), w, **options)


def bag_name(mode, starts, last, padding):
    return f"bags: {mode} {'rows' if starts is None else 'offsets'} {last} {padding}"


CASES = [
    table("embedding", looked_up),
    table("embedding, padding", lambda t, w: looked_up(t, w, padding_idx=-1)),
    table("embedding by frequency", lambda t, w: looked_up(t, w, scale_grad_by_freq=True)),
    table("embedding of bounded norm", lambda t, w: looked_up(t, w.detach() * 1.0, max_norm=1.0, norm_type=1.0),
          grad=False),
    Case("Embedding", lambda t: t.nn.Embedding(5, 3, padding_idx=2), (IDS,)),
    Case("Embedding of bounded norm", lambda t: t.nn.Embedding(5, 3, max_norm=0.7), (IDS,)),
    Case("Embedding of all options", lambda t: t.nn.Embedding(
        5, 3, padding_idx=-3, max_norm=0.7, norm_type=3.0, scale_grad_by_freq=True), (IDS,)),
    Case("Embedding.from_pretrained", lambda t: t.nn.Embedding.from_pretrained(
        t.ones((5, 3)), freeze=False, padding_idx=1), (IDS,)),
    *(bag(bag_name(m, s, last, pad), IDS if s is None else FLAT, s, mode=m, include_last_offset=last, padding_idx=pad)
      for m in ("sum", "mean", "max") for s, last, pad in (
          (None, False, None), (None, False, 2), (STARTS, False, None), (STARTS, False, 2), (ENDS, True, 4))),
    bag("bags: weights", IDS, per_sample_weights=np.cos(IDS * 1.5), mode="sum"),
    bag("bags: weights, offsets", FLAT, STARTS, per_sample_weights=np.cos(FLAT * 1.5), mode="sum"),
    # PyTorch's kernel divides rows by the counts of other rows unless each occurs equally often.
    bag("bags: by frequency", np.array([[1, 2], [2, 1]]), scale_grad_by_freq=True, mode="sum"),
    Case("EmbeddingBag", lambda t: t.nn.EmbeddingBag(5, 3, mode="max", padding_idx=1), (IDS,)),
    Case("EmbeddingBag of sums", lambda t: t.nn.EmbeddingBag(5, 3, max_norm=0.8, mode="sum", include_last_offset=True),
         (FLAT, ENDS)),
    Case("bilinear", lambda t: t.nn.functional.bilinear, ((2, 4, 3), (2, 4, 2), (5, 3, 2), (5,))),
    Case("Bilinear", lambda t: t.nn.Bilinear(3, 2, 4), ((5, 3), (5, 2))),
    Case("Bilinear without bias", lambda t: t.nn.Bilinear(3, 2, 4, bias=False), ((5, 3), (5, 2))),
    *(Case(f"{name} of {p}", lambda t, name=name, p=p: getattr(t.nn, name)(p), (shape,))
      for name, shape in (("Dropout", (2, 3)), ("Dropout1d", (2, 3, 2)), ("Dropout2d", (2, 3, 2, 2)),
                          ("Dropout3d", (2, 3, 2, 2, 2)), ("AlphaDropout", (2, 3)), ("FeatureAlphaDropout", (2, 3, 2)))
      for p in (0.0, 1.0)),
    Case("Dropout2d at rest", lambda t: t.nn.Dropout2d().eval(), ((3, 2, 2),)),
    Case("AlphaDropout at rest", lambda t: t.nn.AlphaDropout().eval(), ((3, 2),)),
]  # fmt: skip
