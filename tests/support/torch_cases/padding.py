"""Padding, by layers and by the function."""

from tests.support.torch_golden import Case

ROW, IMAGE, BLOCK = (2, 3, 5), (2, 2, 4, 3), (1, 2, 3, 4, 3)


def padded(*args, **more):
    return lambda t: lambda x: t.nn.functional.pad(x, *args, **more)


CASES = [
    Case("function", padded((1, 2)), (ROW,)),
    Case("function value", padded((1, 0, 2, 1), value=1.5), (ROW,)),
    Case("function negative", padded((-1, 2, 1, -1)), (ROW,)),
    Case("function all axes", padded((0, 1, 1, 0, 2, 0), "constant", -1.0), (ROW,)),
    Case("reflect negative", padded((-1, 2, 1, -1), "reflect"), (IMAGE,)),
    Case("replicate negative", padded((3, -1, -2, 4), "replicate"), (IMAGE,)),
    Case("circular negative", padded((-1, 2, 1, -1), "circular"), (IMAGE,)),
    Case("circular whole", padded((3, 3, 4, 0), "circular"), (IMAGE,)),
    Case("zero 1d", lambda t: t.nn.ZeroPad1d((1, 2)), (ROW,)),
    Case("zero 2d", lambda t: t.nn.ZeroPad2d((1, 0, 2, 1)), (IMAGE,)),
    Case("zero 3d", lambda t: t.nn.ZeroPad3d(1), (BLOCK,)),
    Case("constant 1d", lambda t: t.nn.ConstantPad1d(2, 3.5), (ROW,)),
    Case("constant 2d", lambda t: t.nn.ConstantPad2d((1, 0, -1, 1), 0.5), (IMAGE,)),
    Case("constant 3d", lambda t: t.nn.ConstantPad3d((0, 1, 2, 0, 1, 1), -2.0), (BLOCK,)),
    Case("reflection 1d", lambda t: t.nn.ReflectionPad1d((4, 1)), (ROW,)),
    Case("reflection 1d unbatched", lambda t: t.nn.ReflectionPad1d(2), (ROW[1:],)),
    Case("reflection 2d", lambda t: t.nn.ReflectionPad2d((1, 2, 3, 0)), (IMAGE,)),
    Case("reflection 3d", lambda t: t.nn.ReflectionPad3d((1, 2, 3, 0, 1, 2)), (BLOCK,)),
    Case("replication 1d", lambda t: t.nn.ReplicationPad1d((7, 1)), (ROW,)),
    Case("replication 2d", lambda t: t.nn.ReplicationPad2d((1, 2, 3, 0)), (IMAGE,)),
    Case("replication 3d unbatched", lambda t: t.nn.ReplicationPad3d((1, 2, 3, 0, 1, 2)), (BLOCK[1:],)),
    Case("circular 1d", lambda t: t.nn.CircularPad1d((5, 1)), (ROW,)),
    Case("circular 2d", lambda t: t.nn.CircularPad2d((1, 2, 3, 0)), (IMAGE,)),
    Case("circular 3d", lambda t: t.nn.CircularPad3d((1, 2, 3, 0, 1, 2)), (BLOCK,)),
]
