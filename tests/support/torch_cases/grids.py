"""Images read at the positions of a grid, and grids of affine maps."""

from tests.support.torch_golden import Case

IMAGE, GRID = (2, 2, 4, 3), (2, 3, 3, 2)
BLOCK, PLACES = (1, 2, 3, 2, 4), (1, 2, 3, 2, 3)


def read(*how, **more):
    return lambda t: lambda x, grid: t.nn.functional.grid_sample(x, grid * 0.9, *how, **more)


CASES = [
    Case("bilinear", read(), (IMAGE, GRID)),
    Case("bilinear border", read(padding_mode="border", align_corners=True), (IMAGE, GRID)),
    Case("bilinear reflection", read("bilinear", "reflection"), (IMAGE, GRID)),
    Case("bilinear reflection corners", read("bilinear", "reflection", True), (IMAGE, GRID)),
    Case("nearest", read("nearest", align_corners=False), (IMAGE, GRID)),
    Case("bicubic", read("bicubic", align_corners=False), (IMAGE, GRID)),
    Case("bicubic reflection", read("bicubic", "reflection", True), (IMAGE, GRID), grad=False),
    Case("border", read(padding_mode="border", align_corners=False), (IMAGE, GRID)),
    Case("blocks", read(align_corners=False), (BLOCK, PLACES)),
    Case("blocks nearest", read("nearest", "border", False), (BLOCK, PLACES)),
    Case("blocks reflection", read("bilinear", "reflection", True), (BLOCK, PLACES)),
    Case("affine", lambda t: lambda m: t.nn.functional.affine_grid(m, (2, 1, 3, 4), False), ((2, 2, 3),)),
    Case("affine corners", lambda t: lambda m: t.nn.functional.affine_grid(m, [2, 1, 1, 4], True), ((2, 2, 3),)),
    Case("affine blocks", lambda t: lambda m: t.nn.functional.affine_grid(m, (1, 1, 2, 3, 2), False), ((1, 3, 4),)),
]
