"""The loss of connectionist temporal classification: lengths, labels end to end, blanks, what cannot be aligned."""

import numpy as np

from tests.support.torch_golden import Case

FRAMES = (6, 3, 4)
ROWS = np.array([[1, 2, 2], [3, 1, 2], [2, 3, 1]])
FLAT = np.array([1, 2, 2, 3, 2])


def loss(targets, inputs, sizes, as_tensors=False, **options):
    def build(t):
        def f(x):
            given = [t.tensor(np.array(k)) if as_tensors else k for k in (inputs, sizes)]
            scores = t.log_softmax(x, -1)
            return t.nn.functional.ctc_loss(scores, t.tensor(targets), *given, **options)

        return f

    return build


CASES = [
    *(Case(f"ctc {r}", loss(ROWS, (6, 5, 4), (3, 2, 1), reduction=r), (FRAMES,)) for r in ("mean", "sum", "none")),
    Case("ctc of tensors", loss(ROWS, (6, 6, 6), (3, 3, 3), True, reduction="none"), (FRAMES,)),
    Case("ctc of labels end to end", loss(FLAT, (6, 4, 5), (3, 0, 2), reduction="none"), (FRAMES,)),
    Case("ctc of tensors end to end", loss(FLAT, (6, 4, 5), (3, 1, 1), True), (FRAMES,)),
    Case("ctc of another blank", loss(ROWS - 1, (6, 6, 5), (3, 2, 1), blank=3), (FRAMES,)),
    Case("ctc of what cannot be aligned", loss(ROWS, (3, 2, 5), (3, 3, 1), reduction="none"), (FRAMES,), grad=False),
    Case("ctc without infinity", loss(ROWS, (3, 2, 5), (3, 3, 1), reduction="none", zero_infinity=True), (FRAMES,)),
    Case("ctc mean without infinity", loss(ROWS, (3, 6, 5), (3, 3, 1), zero_infinity=True), (FRAMES,)),
    Case("ctc of one sequence", loss(ROWS[0], (6,), (3,), reduction="none"), ((6, 4),)),
    Case(
        "CTCLoss",
        lambda t: (lambda f: lambda x: f(t.log_softmax(x, -1), t.tensor(ROWS), (6, 6, 6), (1, 2, 3)))(
            t.nn.CTCLoss(blank=0, reduction="sum", zero_infinity=True)
        ),
        (FRAMES,),
    ),
]
