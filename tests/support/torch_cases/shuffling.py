"""Channels moved into images, and windows as columns."""

from tests.support.torch_golden import Case

CASES = [
    Case("pixel shuffle", lambda t: t.nn.PixelShuffle(2), ((2, 8, 2, 3),)),
    Case("pixel shuffle unbatched", lambda t: t.nn.PixelShuffle(3), ((9, 2, 1),)),
    Case("pixel unshuffle", lambda t: t.nn.PixelUnshuffle(2), ((2, 3, 4, 6),)),
    Case("pixel unshuffle function", lambda t: lambda x: t.nn.functional.pixel_unshuffle(x, 3), ((1, 2, 2, 3, 6),)),
    Case("channel shuffle", lambda t: t.nn.ChannelShuffle(3), ((2, 6, 2, 2),)),
    Case("channel shuffle rows", lambda t: lambda x: t.nn.functional.channel_shuffle(x, 2), ((2, 4, 3),)),
    Case("unfold", lambda t: t.nn.Unfold((2, 3)), ((2, 3, 4, 5),)),
    Case("unfold options", lambda t: t.nn.Unfold(2, (2, 1), (1, 0), (2, 3)), ((2, 3, 4, 5),)),
    Case("unfold unbatched", lambda t: lambda x: t.nn.functional.unfold(x, 3, 1, 1, 2), ((3, 4, 5),)),
    Case("fold", lambda t: t.nn.Fold((4, 5), (2, 3)), ((2, 12, 9),)),
    Case("fold options", lambda t: t.nn.Fold((4, 5), 2, (2, 1), (1, 0), (2, 3)), ((2, 12, 4),)),
    Case("fold unbatched", lambda t: lambda x: t.nn.functional.fold(x, 4, 2, stride=2), ((8, 4),)),
]
