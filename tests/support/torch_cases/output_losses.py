"""Losses that have the last layer in them, and what older models spell otherwise."""

import numpy as np

from tests.support.torch_golden import Case

Y = np.array([0, 3, 7, 11, 4, 2])


def adaptive(*args, **options):
    return lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(*args, **options)


class Methods:
    """`log_prob` and `predict` of a module, as its forward."""

    def __new__(cls, t):
        class Module(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = t.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0)

            def forward(self, x):
                return self.inner.log_prob(x), self.inner.predict(x)

        return Module()


CASES = [
    Case("adaptive", adaptive(8, 12, [3, 7], div_value=2.0), ((6, 8), Y), steps=2),
    Case("adaptive with a bias", adaptive(4, 12, (5,), 1.0, True), ((6, 4), Y), steps=5),
    Case("adaptive of one", adaptive(4, 12, [2, 4, 9], div_value=1.5), ((4,), np.array(8)), grad=False),
    Case("adaptive's methods", Methods, ((5, 8),), steps=3),
    Case("linear cross entropy", lambda t: t.nn.LinearCrossEntropyLoss(4, 12), ((6, 4), Y), steps=5),
    Case("linear cross entropy, options", lambda t: t.nn.LinearCrossEntropyLoss(
        3, 4, bias=True, reduction="sum", ignore_index=2, label_smoothing=0.1,
        weight=t.tensor([1.0, 2.0, 0.5, 3.0])), ((3, 3), np.array([0, 2, 3])), steps=3),
    Case("linear cross entropy of several", lambda t: t.nn.LinearCrossEntropyLoss(
        3, 4, out_features=(2,), bias=True, reduction="none"), ((2, 3), np.array([[0, 2], [3, 1]])), steps=3),
    Case("conv_tbc", lambda t: lambda x, w, b: t.nn.functional.conv_tbc(x, w, b, 1), ((4, 2, 3), (2, 3, 2), (2,))),
]  # fmt: skip
