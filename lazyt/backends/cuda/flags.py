"""What the emission may do; `LAZYT_DEBUG=no-...` turns one off, to find a culprit.

`wide`         16 bytes of neighbours are loaded and stored at once
`keep`         what several stages need of a row stays in shared memory
`tile`         reads across memory go through a tile in shared memory
`native-math`  exp and tanh by the machine's 2**x and 1/x, division by what a row shares by its reciprocal
`many`         equal kernels that do not need each other are one launch
`split`        a reduction of few long rows or tall columns is divided among blocks
`cudnn`        convolutions and attention by cuDNN where its front end is installed
"""

from __future__ import annotations

from lazyt.config import cuda as switches

__all__ = ["switches", "variant"]


def variant() -> str:
    """What distinguishes the code of a kernel that is generated with some of them off; '' for none."""
    return "" if switches["native-math"] else "_shared_math"
