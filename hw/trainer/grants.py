"""Who of several streams is served in a cycle, and with what: the first one that asks."""

from operator import or_

from amaranth import *
from amaranth.lib import data
from concord.hw.lib.arithmetic import tree


def first(m: Module, asked: list) -> list:
    """One bit for each bit of `asked`; the first that is set alone is set."""
    granted = Signal(len(asked))
    m.d.comb += [granted[k].eq(one & ~Cat(asked[:k]).any()) for k, one in enumerate(asked)]
    return list(granted)


def chosen(granted: list, payloads: list):
    """The payload whose bit is set, of which there is one at most; zeros if there is none."""
    shape = payloads[0].shape()
    found = tree([Value.cast(payload) & bit.replicate(Shape.cast(shape).width)
                  for bit, payload in zip(granted, payloads, strict=True)], or_)
    return shape(found) if isinstance(shape, data.Layout) else found
