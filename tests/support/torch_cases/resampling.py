"""Images made larger and smaller: every mode with its options."""

from tests.support.torch_golden import Case

ROW, IMAGE, BLOCK = (2, 2, 5), (1, 2, 5, 4), (1, 2, 3, 4, 3)


def resized(*args, **more):
    return lambda t: lambda x: t.nn.functional.interpolate(x, *args, **more)


CASES = [
    Case("nearest", resized(scale_factor=2), (IMAGE,)),
    Case("nearest rows", resized(7), (ROW,)),
    Case("nearest fraction", resized(scale_factor=1.7), (IMAGE,)),
    Case("nearest recomputed", resized(scale_factor=1.7, recompute_scale_factor=True), (IMAGE,)),
    Case("nearest smaller", resized((2, 2)), (IMAGE,)),
    Case("nearest blocks", resized((4, 4, 6)), (BLOCK,)),
    Case("nearest exact", resized((7, 3), mode="nearest-exact"), (IMAGE,)),
    Case("nearest exact factor", resized(scale_factor=(2.5, 0.5), mode="nearest-exact"), (IMAGE,)),
    Case("nearest exact rows", resized(scale_factor=3, mode="nearest-exact"), (ROW,)),
    Case("linear", resized(8, mode="linear"), (ROW,)),
    Case("linear corners", resized(8, mode="linear", align_corners=True), (ROW,)),
    Case("linear to one", resized(1, mode="linear", align_corners=True), (ROW,)),
    Case("linear factor", resized(scale_factor=0.7, mode="linear"), (ROW,)),
    Case("bilinear", resized((8, 3), mode="bilinear"), (IMAGE,)),
    Case("bilinear corners", resized((3, 9), mode="bilinear", align_corners=True), (IMAGE,)),
    Case("bilinear factor", resized(scale_factor=(1.5, 2.3), mode="bilinear"), (IMAGE,)),
    Case("bilinear recomputed", resized(scale_factor=1.3, mode="bilinear", recompute_scale_factor=True), (IMAGE,)),
    Case("bilinear antialias", resized((2, 6), mode="bilinear", antialias=True), (IMAGE,)),
    Case("bilinear antialias corners", resized((3, 2), None, "bilinear", True, None, True), (IMAGE,)),
    Case("bicubic", resized((8, 3), mode="bicubic"), (IMAGE,)),
    Case("bicubic corners", resized((3, 9), mode="bicubic", align_corners=True), (IMAGE,)),
    Case("bicubic factor", resized(scale_factor=1.5, mode="bicubic"), (IMAGE,)),
    Case("bicubic antialias", resized((2, 6), mode="bicubic", antialias=True), (IMAGE,)),
    Case("bicubic antialias factor", resized(scale_factor=(0.4, 0.6), mode="bicubic", antialias=True), (IMAGE,)),
    Case("lanczos", resized((3, 6), mode="lanczos", antialias=True), (IMAGE,)),
    Case("trilinear", resized((4, 3, 5), mode="trilinear"), (BLOCK,)),
    Case("trilinear corners", resized(scale_factor=1.5, mode="trilinear", align_corners=True), (BLOCK,)),
    Case("area", resized((3, 2), mode="area"), (IMAGE,)),
    Case("area rows", resized(scale_factor=0.5, mode="area"), (ROW,)),
    Case("area blocks", resized((2, 2, 2), mode="area"), (BLOCK,)),
    Case("upsample", lambda t: t.nn.Upsample(scale_factor=(2, 3)), (IMAGE,)),
    Case("upsample size", lambda t: t.nn.Upsample((7, 5), mode="bilinear", align_corners=True), (IMAGE,)),
    Case("upsampling nearest", lambda t: t.nn.UpsamplingNearest2d(9), (IMAGE,)),
    Case("upsampling bilinear", lambda t: t.nn.UpsamplingBilinear2d(scale_factor=2), (IMAGE,)),
]
