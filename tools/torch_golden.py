"""Write what PyTorch computes for `tests/support/torch_cases` and `torch_programs` to `tests/golden/`.

usage: python -m tools.torch_golden [AREA ...]

Needs PyTorch; the tests that read the files do not.
"""

from __future__ import annotations

import sys

import torch

from tests.support import torch_golden, torch_programs

if __name__ == "__main__":
    torch.set_num_threads(1)
    # PyTorch's Muon rounds its iteration to bfloat16, which no float64 can be compared with.
    torch.Tensor.bfloat16 = lambda x: x.clone()  # type: ignore[method-assign]
    for area in sys.argv[1:] or [*torch_golden.areas(), *torch_programs.areas()]:
        whole = area in torch_programs.areas()
        # By the default dtype PyTorch's optimizers keep numbers of their state.
        torch.set_default_dtype(torch.float64 if whole else torch.float32)
        print((torch_programs if whole else torch_golden).write(area, torch))
