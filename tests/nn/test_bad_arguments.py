"""What losses, activations, distances, embeddings and dropout refuse, by name and with the values; and their draws."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import lazyt as lt
from lazyt import nn
from lazyt.errors import DTypeError, NotSupportedError, ShapeError
from lazyt.nn import functional as F

A, B, V, I = lt.ones((2, 3)), lt.ones((4, 3)), lt.ones(2), lt.asarray([0, 1])  # noqa: E741

SHAPES: list[tuple[Any, str]] = [
    (lambda: F.mse_loss(A, A, reduction="max"), "mse_loss: reduction is one of mean, sum, none, got 'max'"),
    (lambda: F.mse_loss(A, A, weight=V), r"mse_loss: weights of the input's size \(2, 3\) are required, got \(2,\)"),
    (lambda: F.binary_cross_entropy(A, A, V), r"binary_cross_entropy: a weight that broadcasts to \(2, 3\)"),
    (lambda: F.linear_cross_entropy(A, V, I), r"linear_cross_entropy: a weight \(classes, ..., features\) is required"),
    (lambda: F.poisson_nll_loss(A, B), r"poisson_nll_loss: shapes \(2, 3\) and \(4, 3\) do not broadcast"),
    (lambda: F.gaussian_nll_loss(A, A, -1.0), "gaussian_nll_loss: a non-negative var is required, got -1.0"),
    (lambda: F.gaussian_nll_loss(A, A, B), r"gaussian_nll_loss: var of the input's size .* got \(4, 3\)"),
    (lambda: F.hinge_embedding_loss(A, B), "hinge_embedding_loss: shapes"),
    (lambda: F.soft_margin_loss(A, B), "soft_margin_loss: shapes"),
    (lambda: F.margin_ranking_loss(A, A, V), r"margin_ranking_loss: .* one number of dimensions .* \(2,\)"),
    (lambda: F.cosine_embedding_loss(A, A, A), r"cosine_embedding_loss: inputs \(N, D\) with a target \(N,\)"),
    (lambda: F.multilabel_soft_margin_loss(A, B), r"multilabel_soft_margin_loss: a target of shape \(2, 3\)"),
    (lambda: F.multilabel_soft_margin_loss(A, A, V), "multilabel_soft_margin_loss: a weight that broadcasts"),
    (lambda: F.multilabel_soft_margin_loss(lt.ones(()), lt.ones(())), r"an input \(..., C\) is required, got a scalar"),
    (lambda: F.multilabel_margin_loss(A, I), r"multilabel_margin_loss: a target of shape \(2, 3\)"),
    (lambda: F.multi_margin_loss(A, I, p=3), "multi_margin_loss: p is 1 or 2, got 3"),
    (lambda: F.multi_margin_loss(A, I, weight=V), r"multi_margin_loss: a weight of shape \(3,\) is required"),
    (lambda: F.multi_margin_loss(lt.ones((1, 2, 3)), I), r"multi_margin_loss: an input \(N, C\) or \(C,\) is required"),
    (lambda: F.triplet_margin_loss(A, A, V), "triplet_margin_loss: operands of one number of dimensions"),
    (lambda: F.triplet_margin_loss(A, A, A, margin=0), "triplet_margin_loss: a positive margin is required, got 0"),
    (lambda: F.ctc_loss(V, I, (1,), (1,)), r"ctc_loss: log_probs \(T, N, C\) or \(T, C\) is required, got \(2,\)"),
    (lambda: F.ctc_loss(A, I, (2,), (2,), blank=3), "ctc_loss: blank is one of the 3 classes, got 3"),
    (lambda: F.ctc_loss(A, I, (3,), (2,)), r"ctc_loss: input_lengths from 0 to 2 are required, got \[3\]"),
    (lambda: F.ctc_loss(A, I, (2,), (1,)), r"ctc_loss: target_lengths \[1\] sum to 2, the size of targets"),
    (lambda: F.ctc_loss(A, I[None, None], (2,), (1,)), "ctc_loss: targets .* are required, got shape"),
    (lambda: F.ctc_loss(lt.ones((2, 1, 3)), lt.asarray([[1], [1]]), (2,), (1,)), "ctc_loss: targets of 1 sequences"),
    (lambda: F.ctc_loss(A, I, (2, 2), (2,)), r"ctc_loss: input_lengths of 1 sequences are required, got shape \(2,\)"),
    (lambda: F.celu(A, 0.0), "celu: alpha is not 0"),
    (lambda: F.softshrink(A, -1.0), "softshrink: a non-negative lambd is required, got -1.0"),
    (lambda: F.rrelu(A, 2.0, 1.0), "rrelu: lower is at most upper, got 2.0 and 1.0"),
    (lambda: nn.Softmax2d()(A), r"Softmax2d: an input \(N, C, H, W\) or \(C, H, W\) is required"),
    (lambda: F.cosine_similarity(A, B), "cosine_similarity: shapes"),
    (lambda: F.pairwise_distance(A, B), "pairwise_distance: shapes"),
    (lambda: lt.cdist(A, V), r"cdist: x1 \(..., P, M\) and x2 \(..., R, M\) are required"),
    (lambda: lt.cdist(A, A, -1.0), "cdist: a non-negative p is required, got -1.0"),
    (lambda: lt.cdist(A, A, compute_mode="fast"), "cdist: compute_mode is one of .* got 'fast'"),
    (lambda: F.pdist(V), r"pdist: a matrix \(N, M\) is required, got \(2,\)"),
    (lambda: F.pdist(A, -1.0), "pdist: a non-negative p is required"),
    (lambda: F.bilinear(A, B, lt.ones((1, 3, 3))), r"bilinear: inputs .* got \(2, 3\), \(4, 3\) and \(1, 3, 3\)"),
    (lambda: F.embedding(I, A, 7), "embedding: padding_idx 7 is out of range for 2 rows"),
    (lambda: F.embedding_bag(I, A), r"embedding_bag: an input \(bags, length\), or \(length,\) with offsets"),
    (lambda: F.embedding_bag(I[None], A, I), "embedding_bag: offsets are for an input of 1 dimension"),
    (lambda: F.embedding_bag(I, A, I[None]), r"embedding_bag: offsets \(bags,\) are required, got shape \(1, 2\)"),
    (lambda: F.embedding_bag(I[None], A, mode="min"), "embedding_bag: mode is one of sum, mean, max, got 'min'"),
    (lambda: F.embedding_bag(I[None], A, per_sample_weights=V[None]), "per_sample_weights are for the mode sum"),
    (lambda: F.embedding_bag(I[None], A, scale_grad_by_freq=True, mode="max"), "for the modes sum and mean, got 'max'"),
    (lambda: nn.Embedding(2, 3, padding_idx=5), "Embedding: padding_idx 5 is out of range for 2 vectors"),
    (lambda: nn.Embedding(2, 3, _weight=B), r"Embedding: a weight of shape \(2, 3\) is required, got \(4, 3\)"),
    (lambda: nn.EmbeddingBag.from_pretrained(V), r"EmbeddingBag.from_pretrained: a matrix is required"),
    (lambda: F.dropout2d(A[0]), r"dropout2d: an input of 3 or 4 dimensions is required, got \(3,\)"),
    (lambda: F.alpha_dropout(A, 2.0), r"alpha_dropout: a probability in \[0, 1\] is required, got 2.0"),
    (lambda: F.feature_alpha_dropout(V), "feature_alpha_dropout: an input of at least 2 dimensions"),
    (lambda: nn.Dropout3d(-1.0), r"Dropout3d: a probability in \[0, 1\] is required, got -1.0"),
    (lambda: nn.init.dirac_(A), r"dirac_: 3, 4 or 5 dimensions are required, got shape \(2, 3\)"),
    (lambda: nn.init.dirac_(lt.ones((3, 1, 1)), 2), "dirac_: 2 groups do not divide 3 output channels"),
    (lambda: nn.init.sparse_(V, 0.5), r"sparse_: a matrix is required, got shape \(2,\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), SHAPES)
def test_shapes_and_options_are_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.soft_margin_loss(I, I), "soft_margin_loss: input of a real floating dtype is required, got int64"),
        (lambda: F.multi_margin_loss(A, V), "multi_margin_loss: target of an integer dtype is required, got float32"),
        (lambda: F.ctc_loss(A, V, (1,), (1,)), "ctc_loss: targets of an integer dtype is required, got float32"),
        (lambda: F.celu(I), "celu: input of a real floating dtype is required"),
        (lambda: F.normalize(I), "normalize: input of a real floating dtype is required"),
        (lambda: F.embedding_bag(A, A), "embedding_bag: an input of an integer dtype is required"),
    ],
)
def test_dtypes_are_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        call()


def test_sparse_gradients_are_refused() -> None:
    for call in (lambda: F.embedding(I, A, sparse=True), lambda: nn.EmbeddingBag(2, 3, sparse=True)):
        with pytest.raises(NotSupportedError, match="not supported: sparse=True, because gradients are dense"):
            call()


def test_the_old_way_to_reduce_warns() -> None:
    for options, want in (({"size_average": False}, 6.0), ({"reduce": True}, 1.0), ({"size_average": True}, 1.0)):
        with pytest.warns(UserWarning, match="size_average and reduce args will be deprecated"):
            assert F.mse_loss(A, A * 2, **options).item() == want
    with pytest.warns(UserWarning, match="please use reduction='none'"):
        assert nn.L1Loss(reduce=False)(A, A).shape == (2, 3)


# Each loss, with what it takes behind its operands, before the old way to reduce.
LOSSES = {
    "mse_loss": (), "l1_loss": (), "smooth_l1_loss": (), "kl_div": (), "soft_margin_loss": (),
    "multilabel_margin_loss": (),
    "binary_cross_entropy": (None,), "binary_cross_entropy_with_logits": (None,), "cross_entropy": (None,),
    "nll_loss": (None,), "hinge_embedding_loss": (1.0,), "margin_ranking_loss": (0.0,), "cosine_embedding_loss": (0.0,),
    "multilabel_soft_margin_loss": (None,), "multi_margin_loss": (1, 1.0, None), "poisson_nll_loss": (True, False),
    "triplet_margin_loss": (1.0, 2.0, 1e-6, False),
}  # fmt: skip
UNIT = lt.asarray([[0.25, 0.5, 0.75], [0.5, 0.25, 1.0]])
SIGNS, CLASS = lt.asarray([1.0, -1.0]), lt.asarray([0, 2])
OPERANDS = {
    "cross_entropy": (UNIT, CLASS), "nll_loss": (UNIT, CLASS), "multi_margin_loss": (UNIT, CLASS),
    "margin_ranking_loss": (SIGNS, SIGNS * 2, SIGNS), "cosine_embedding_loss": (UNIT, UNIT * 2 + 1, SIGNS),
    "triplet_margin_loss": (UNIT, UNIT * 2, UNIT * 3),
    "multilabel_margin_loss": (UNIT, lt.asarray([[0, 2, -1], [1, -1, -1]])),
}  # fmt: skip
MODULES = {
    "BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "CosineEmbeddingLoss": "cosine_embedding_loss", "CrossEntropyLoss": "cross_entropy",
    "HingeEmbeddingLoss": "hinge_embedding_loss", "KLDivLoss": "kl_div", "L1Loss": "l1_loss", "MSELoss": "mse_loss",
    "MarginRankingLoss": "margin_ranking_loss", "MultiLabelMarginLoss": "multilabel_margin_loss",
    "MultiLabelSoftMarginLoss": "multilabel_soft_margin_loss", "MultiMarginLoss": "multi_margin_loss",
    "NLLLoss": "nll_loss", "PoissonNLLLoss": "poisson_nll_loss", "SmoothL1Loss": "smooth_l1_loss",
    "SoftMarginLoss": "soft_margin_loss", "TripletMarginLoss": "triplet_margin_loss",
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_the_old_way_to_reduce_stands_where_pytorch_has_it(name: str) -> None:
    function = getattr(F, MODULES[name])
    operands, more = OPERANDS.get(MODULES[name], (UNIT, UNIT)), LOSSES[MODULES[name]]
    made = {"": function, name: lambda *a: getattr(nn, name)(*a[len(operands) :])(*operands)}
    for f in made.values():
        for given, reduction in (((False,), "sum"), ((True,), "mean")):
            with pytest.warns(UserWarning, match=f"please use reduction='{reduction}'"):
                found = f(*operands, *more, *given)
            np.testing.assert_allclose(found.item(), function(*operands, reduction=reduction).item(), rtol=1e-6)
        with pytest.raises(DTypeError, match="size_average is a bool or None, got 'sum': write reduction='sum'"):
            f(*operands, *more, "sum")
        np.testing.assert_allclose(f(*operands, *more).item(), function(*operands).item())


def test_a_bool_is_no_class_to_be_ignored() -> None:
    for f in (F.cross_entropy, F.nll_loss):
        with pytest.raises(DTypeError, match="ignore_index is an integer, got True"):
            f(UNIT, CLASS, ignore_index=True)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "name", ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"]
)
def test_dropouts_in_place_give_their_input(name: str, training: bool) -> None:
    shape = (1, 1) + (1,) * {"dropout1d": 1, "dropout2d": 2, "dropout3d": 3}.get(name, 1)
    x = lt.full(shape, -2.0)
    assert getattr(F, name)(x, 0.5, training, inplace=True) is x
    kept = lt.full(shape, -2.0)
    assert getattr(F, name)(kept, 0.5, False) is kept and getattr(F, name)(kept, 0.0, True) is kept
    F.relu(getattr(F, name)(kept, 0.5, False, inplace=True), inplace=True)
    assert kept.item() == 0.0


def test_nothing_is_computed_by_a_loss_an_embedding_or_a_hook() -> None:
    net = nn.EmbeddingBag(5, 3, max_norm=1.0, mode="sum")
    net.register_full_backward_hook(lambda m, given, out: None)
    with lt.no_sync(), warnings.catch_warnings():
        y = net(lt.asarray([[1, 2], [3, 1]]))
        loss = F.triplet_margin_loss(y, y * 2, y * 3, swap=True) + F.multi_margin_loss(y, I)
        loss = loss + F.ctc_loss(F.log_softmax(y, dim=1), I[1:], (2,), (1,))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    assert np.isfinite(loss.item())


def test_activations_in_place_write_and_have_gradients() -> None:
    w = lt.tensor([1.0, -2.0], requires_grad=True)
    x = w * 2
    assert F.relu(x, inplace=True) is x and F.leaky_relu(x, 0.5, True) is x
    x.sum().backward()
    assert w.grad.tolist() == [2.0, 0.0] and x.tolist() == [2.0, 0.0]
    with pytest.raises(lt.AutogradError):
        F.relu_(w)


def test_channels_are_dropped_whole_and_alpha_keeps_mean_and_variance() -> None:
    lt.random.seed(0)
    for f, shape in ((F.dropout1d, (40, 5, 3)), (F.dropout2d, (40, 5, 3, 2)), (F.dropout3d, (40, 5, 3, 2, 1))):
        y = f(lt.ones(shape), 0.25).numpy().reshape(200, -1)
        assert (y == y[:, :1]).all() and {round(float(v), 4) for v in y[:, 0]} == {0.0, 1.3333}
        assert abs((y[:, 0] == 0).mean() - 0.25) < 0.1
    x = lt.random.standard_normal((200, 200))
    for f in (F.alpha_dropout, F.feature_alpha_dropout):
        y = f(x[:, :, None], 0.3, training=True).numpy()
        assert abs(y.mean()) < 0.02 and abs(y.var() - 1) < 0.03 and f(x, 0.3) is x
    slopes = F.rrelu(-lt.ones(1000), 0.2, 0.6, training=True).numpy()
    assert slopes.min() >= -0.6 and slopes.max() <= -0.2 and slopes.std() > 0.1


def test_samples_of_the_gumbel_softmax() -> None:
    lt.random.seed(1)
    logits = lt.tensor(np.log([[0.2, 0.3, 0.5]]).repeat(2000, 0).astype("f4"), requires_grad=True)
    y = F.gumbel_softmax(logits, tau=0.5, hard=True)
    np.testing.assert_allclose(y.detach().numpy().mean(0), [0.2, 0.3, 0.5], atol=0.04)
    assert set(np.unique(y.detach().numpy().round(5))) == {0.0, 1.0}
    (y * lt.asarray([1.0, 0.0, 0.0])).sum().backward()
    assert np.abs(logits.grad.numpy()).max() > 0.01


def test_gumbel_noise_of_a_uniform_number_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of half a step, 25 * log(2), not that of the smallest number."""
    monkeypatch.setattr(
        "lazyt.functions.random.uniform",
        lambda low, high, shape, *, dtype, generator: lt.asarray([0.0, 0.5], dtype=dtype),
    )
    y = F.gumbel_softmax(lt.asarray([0.0, 0.0]))
    difference = 25 * np.log(2) + np.log(np.log(2))
    np.testing.assert_allclose(lt.log(y[0] / y[1]).item(), difference, rtol=1e-5)


def test_repeated_rows_share_their_gradient_by_frequency() -> None:
    w = lt.tensor(np.ones((4, 1), "f4"), requires_grad=True)
    F.embedding_bag(lt.asarray([[1, 2, 2], [2, 3, 2]]), w, mode="sum", scale_grad_by_freq=True).sum().backward()
    assert w.grad.tolist() == [[0.0], [1.0], [1.0], [1.0]]


def test_lists_are_taken_as_tensors() -> None:
    x, w = [[1.0, 3.0]], [[[1.0, 2.0]]]
    assert F.conv1d([x], w).tolist() == [[[7.0]]]
    assert F.conv_transpose1d([[[2.0]]], w).tolist() == [[[2.0, 4.0]]]
    np.testing.assert_allclose(F.layer_norm(x, (2,), eps=0.0).tolist(), [[-1.0, 1.0]])
    np.testing.assert_allclose(F.rms_norm([[-2.0, 2.0]], (2,), eps=0.0).tolist(), [[-1.0, 1.0]])
    assert F.scaled_dot_product_attention(x, x, x).tolist() == x


def test_a_slope_of_one_number() -> None:
    for weight in (0.5, [0.5], lt.asarray(0.5)):
        assert F.prelu(lt.asarray([-1.0, 1.0]), weight).tolist() == [-0.5, 1.0]
    assert F.prelu(lt.asarray([-1.0], dtype="f2"), 0.5).dtype == np.float16


def test_sizes_of_layers_beyond_any_memory_are_refused_at_once() -> None:
    with pytest.raises(ShapeError, match="conv1d: padding is at most"):
        F.conv1d(lt.ones((1, 1, 3)), lt.ones((1, 1, 2)), padding=10**18)
    with pytest.raises(ShapeError, match="conv_transpose1d: stride is at most"):
        F.conv_transpose1d(lt.ones((1, 1, 3)), lt.ones((1, 1, 2)), stride=10**18)
    for layer in (nn.LSTM, nn.GRU, nn.RNN):
        with pytest.raises(ShapeError, match="num_layers is at most"):
            layer(2, 2, num_layers=10**18)


def test_an_empty_axis_that_is_not_padded_goes_round() -> None:
    x = lt.ones((1, 2, 0, 4))
    assert F.pad(x, (0, 0, 0, 0), mode="circular").shape == (1, 2, 0, 4)
    assert F.pad(x, (1, 1, 0, 0), mode="circular").shape == (1, 2, 0, 6)
    with pytest.raises(ShapeError, match="by at most 0, got"):
        F.pad(x, (0, 0, 1, 0), mode="circular")
