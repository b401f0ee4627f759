"""The machine without its numbers as a library: cycles and counters of any machine, at many times the speed."""

from concord.hw.timing import timing_verilog
from concord.sim.machines.host import HardwareMachine
from concord.sim.machines.library import Library, cached_verilog
from concord.spec.machine.config import Config


def timing_machine(config: Config, **options) -> HardwareMachine:
    """A machine whose cycles and counters are those of the machine of `config`, and whose numbers are 0.

    Args:
        config:  The machine.
        options: As for `sim.machines.library.Library`.

    Raises:
        ValueError: hardware is not generated for such a machine.
    """
    return HardwareMachine(Library(config, text=timing_text(config), thorough=True, **options))


def timing_text(config: Config) -> str:
    """`timing_verilog`, cached under a hash of its Python sources."""
    return cached_verilog(f"timing {config}", lambda: timing_verilog(config))
