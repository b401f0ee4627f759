"""A unit that another signal than the machine's reset sets back, too."""

from amaranth import *


class SharingRenamer(DomainRenamer):
    """Amaranth's renaming of clock domains, which copies an expression once, not once for each of its uses."""

    def __init__(self, name: str):
        super().__init__(name)
        self._renamed = {}

    def on_value(self, value):
        if id(value) not in self._renamed:
            self._renamed[id(value)] = super().on_value(value), value  # no other object gets the id of one that is kept
        return self._renamed[id(value)][0]


def reset_too(m: Module, name: str, reset: Value) -> SharingRenamer:
    """A clock domain of `m` with the clock of sync, set back by the reset of sync and by `reset`; the renamer into it.

    `ResetInserter` would set back each register in a statement of its own, which makes simulations slower to build.

    Args:
        m:     Module in which the unit stands.
        name:  Name of the domain.
        reset: One bit.
    """
    domain = ClockDomain(name, local=True)
    setattr(m.domains, name, domain)
    m.d.comb += [domain.clk.eq(ClockSignal()), domain.rst.eq(ResetSignal() | reset)]
    return SharingRenamer(name)
