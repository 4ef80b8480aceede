"""Write what PyTorch computes for the cases of `tests/support/torch_cases` to `tests/golden/`.

usage: python -m tools.torch_golden [AREA ...]

Needs PyTorch; the tests that read the files do not.
"""

from __future__ import annotations

import sys

import torch

from tests.support.torch_golden import areas, write

if __name__ == "__main__":
    torch.set_num_threads(1)
    for area in sys.argv[1:] or areas():
        print(write(area, torch))
