"""Normalising layers and functions: values, statistics, training and evaluation."""

from tests.support.torch_golden import Case

TABLE, ROW, IMAGE, BLOCK = (4, 3), (2, 3, 5), (2, 4, 3, 2), (2, 3, 2, 3, 2)


def evaluated(make):
    return lambda t: make(t).eval()


CASES = [
    Case("batch 1d", lambda t: t.nn.BatchNorm1d(3), (TABLE,), steps=3),
    Case("batch 1d rows", lambda t: t.nn.BatchNorm1d(3, 1e-3, 0.3), (ROW,), steps=2),
    Case("batch 1d cumulative", lambda t: t.nn.BatchNorm1d(3, momentum=None), (ROW,), steps=3),
    Case("batch 2d without bias", lambda t: t.nn.BatchNorm2d(4, bias=False), (IMAGE,), steps=2),
    Case("batch 2d plain", lambda t: t.nn.BatchNorm2d(4, affine=False), (IMAGE,), steps=0),
    Case("batch 2d untracked", lambda t: t.nn.BatchNorm2d(4, track_running_stats=False), (IMAGE,), steps=0),
    Case("batch 2d evaluated", evaluated(lambda t: t.nn.BatchNorm2d(4)), (IMAGE,), steps=2),
    Case("batch 3d", lambda t: t.nn.BatchNorm3d(3), (BLOCK,), steps=2),
    Case("instance 1d", lambda t: t.nn.InstanceNorm1d(3), (ROW,)),
    Case("instance 1d unbatched", lambda t: t.nn.InstanceNorm1d(3, affine=True), (ROW[1:],), steps=0),
    Case("instance 2d", lambda t: t.nn.InstanceNorm2d(4, 1e-3, affine=True), (IMAGE,), steps=2),
    Case("instance 2d tracked", lambda t: t.nn.InstanceNorm2d(4, 1e-5, 0.2, True, True), (IMAGE,), steps=2),
    Case(
        "instance 2d evaluated",
        evaluated(lambda t: t.nn.InstanceNorm2d(4, track_running_stats=True)),
        (IMAGE,),
        steps=0,
    ),
    Case("instance 2d no momentum", lambda t: t.nn.InstanceNorm2d(4, 1e-5, None, False, True), (IMAGE,), steps=0),
    Case("instance 3d", lambda t: t.nn.InstanceNorm3d(3, affine=True, bias=False), (BLOCK,), steps=2),
    Case("instance function", lambda t: lambda x: t.nn.functional.instance_norm(x, eps=0.1), (IMAGE,)),
    Case("group", lambda t: t.nn.GroupNorm(2, 4), (IMAGE,), steps=2),
    Case("group without bias", lambda t: t.nn.GroupNorm(3, 3, 0.1, bias=False), (ROW,), steps=0),
    Case("group plain", lambda t: t.nn.GroupNorm(1, 3, affine=False), (TABLE,)),
    Case("layer", lambda t: t.nn.LayerNorm((3, 2), 0.01), (IMAGE,), steps=2),
    Case("layer without bias", lambda t: t.nn.LayerNorm(5, bias=False), (ROW,), steps=0),
    Case("layer plain", lambda t: t.nn.LayerNorm([3, 5], elementwise_affine=False), (ROW,)),
    Case("root mean square", lambda t: t.nn.RMSNorm(5), (ROW,), steps=2),
    Case("root mean square plain", lambda t: t.nn.RMSNorm((3, 5), 0.1, False), (ROW,)),
    Case("local response", lambda t: t.nn.LocalResponseNorm(2), (IMAGE,)),
    Case("local response rows", lambda t: t.nn.LocalResponseNorm(3, 0.5, 0.6, 2.0), (ROW,)),
    Case("local response function", lambda t: lambda x: t.nn.functional.local_response_norm(x, 5, 0.2), (BLOCK,)),
]
