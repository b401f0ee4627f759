"""A unit that another signal than the machine's reset sets back, too."""

from amaranth import *
from concord.hw.lib.sharing import shared


class SharingRenamer(DomainRenamer):
    """Amaranth's renaming of clock domains."""

    on_value = shared(DomainRenamer.on_value)


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
