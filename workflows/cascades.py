"""Choose the machines for a network, one or several, and compile it for them."""

from contextlib import suppress
from dataclasses import dataclass

from concord.compiler.cascade import CompiledCascade, PartCompiler, balanced
from concord.compiler.cuts import parts
from concord.compiler.explain import explain
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import Compiled, compile_network
from concord.firmware.cascade import Cascade
from concord.firmware.firmware import Firmware
from concord.lib.extras import require
from concord.net.model import Model
from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import find_config, machine_name
from concord.workflows.presets import compile_for, smallest_first

#: Most machines of one network.
MOST = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """The options that spread a network over machines.

    Attributes:
        machines: Number of machines.
        cut:      Names of the layers after which to cut, with commas between them; empty for the best cut.
        batch:    Number of samples that one machine takes at once.
        cores:    Number of machines that share a memory, and take samples in turns.

    Raises:
        ValueError: the number of machines, of cuts or of cores is wrong.
    """

    machines: int = 1
    cut: str = ""
    batch: int = 1
    cores: int = 1

    def __post_init__(self):
        if self.cores != 1:
            from concord.spec.accelerator.accelerator import MOST_CORES

            if not 1 <= self.cores <= MOST_CORES:
                raise ValueError(f"--cores {self.cores}: 1 to {MOST_CORES} cores share a memory")
        if self.cores > 1 and self.machines > 1:
            raise ValueError(f"--cores {self.cores}: each core runs the whole network, and --machines cuts it: leave "
                             "out one of them")
        if not 1 <= self.machines <= MOST:
            raise ValueError(f"--machines {self.machines}: 1 to {MOST} machines work on a network")
        if self.batch < 1:
            raise ValueError(f"--batch {self.batch}: a machine takes one sample at least")
        if self.batch > 1 and self.machines > 1:
            raise ValueError(f"--batch {self.batch}: one machine takes several samples at once, several take one after "
                             "the other: leave out --batch or --machines")
        if self.cut and self.machines == 1:
            raise ValueError(f"--cut {self.cut}: one machine runs the whole network; say how many there are by "
                             "--machines")
        if self.cut and len(self.cuts) != self.machines - 1:
            raise ValueError(f"--cut {self.cut}: {self.machines} machines need {self.machines - 1} cuts, this names "
                             f"{len(self.cuts)}: name as many layers, with commas between them, or set --machines")

    @property
    def words(self) -> list[str]:
        """The options, as words of a command line; none for one machine."""
        given = [("--machines", str(self.machines))] * (self.machines > 1) + [("--cut", self.cut)] * bool(self.cut) + [
            ("--batch", str(self.batch))] * (self.batch > 1) + [("--cores", str(self.cores))] * (self.cores > 1)
        return [word for pair in given for word in pair]

    @property
    def cuts(self) -> tuple[str, ...]:
        """Names of the layers after which to cut; none for the best cut."""
        return tuple(filter(None, self.cut.split(",")))


def compile_cascade(model: Model, preset: str, wish: Wish, location: str = "") -> tuple[str, CompiledCascade]:
    """Compile a model for one machine or for several.

    Args:
        model:    The model.
        preset:   Name of a preset, or a TOML file of a machine, for all machines; or one for each, with commas between
            them. If empty, the first preset is taken of which that many machines hold the model.
        wish:     How to cut the model.
        location: Path or URL of the model, for the advice in an error.

    Returns:
        The names of the machines in reports, and what is compiled.

    Raises:
        ValueError: there is no such machine, or the model cannot be cut so.
    """
    if wish.machines == 1:
        name, one = compile_for(model, preset, location, batch=wish.batch)
        return name, CompiledCascade(cascade=Cascade.of(one.firmware), parts=(one,))
    parts(model, wish.cuts)  # this refuses a cut that no machine allows
    if preset:
        names = preset.split(",")
        if len(names) not in (1, wish.machines):
            raise ValueError(f"--preset {preset}: name one machine for all, or {wish.machines} with commas "
                             "between them")
        configs = [find_config(name) for name in names]
        configs = configs if len(configs) > 1 else configs * wish.machines
        return ", ".join(dict.fromkeys(map(machine_name, names))), _compiled(model, configs, wish)
    refused = {}
    for name in smallest_first():
        try:
            return name, _compiled(model, [find_config(name)] * wish.machines, wish)
        except ValueError as error:
            refused[name] = error
    name, error = next(iter(refused.items()))
    raise ValueError(f"no preset takes the model on {wish.machines} machines; the smallest is {name}: {error}")


def whole(model: Model, config: Config) -> Compiled | None:
    """The model, compiled for one machine; None if it does not fit."""
    try:
        return compile_network(model, config)
    except CannotRun:
        return None


def fitted(model: Model, config: Config) -> Compiled:
    """The model, compiled for a machine with memories that are large enough.

    Raises:
        ValueError: there is no such machine.
    """
    from concord.machines.fit import fit

    return fit(model, config).compiled


def _compiled(model: Model, configs: list[Config], wish: Wish) -> CompiledCascade:
    """The model, cut as the wish says, or where the machines share the work best.

    The work of units finds out whether any cut fits, before a machine is built to measure cycles.
    """
    cutter = PartCompiler(model, configs)
    if wish.cut:
        return cutter.compiled(wish.cuts)
    firmware = _firmware(model, configs[0])
    balanced(cutter, _work(firmware))
    return balanced(cutter, _work(firmware) | _cycles(firmware))


def costs_of(model: Model, config: Config) -> dict[str, int]:
    """Clock cycles of each layer on a machine; if that is too small, on one with larger memories.

    Layers that share a loop have no cycles of their own, and nor do those of a machine that cannot be simulated here:
    their costs are the cycles in which the busiest unit works.
    """
    firmware = _firmware(model, config)
    return _work(firmware) | _cycles(firmware)


def _firmware(model: Model, config: Config) -> Firmware:
    return (whole(model, config) or fitted(model, config)).firmware


def _work(firmware: Firmware) -> dict[str, int]:
    """Cycles in which the busiest unit works for each layer."""
    return {work.layer: work.busiest for work in explain(firmware)}


def _cycles(firmware: Firmware) -> dict[str, int]:
    """Clock cycles of the layers that have cycles of their own."""
    with suppress(ValueError):
        firmware.config.require_hardware()
        require("sim")
        from concord.firmware.timing import timed

        costs = timed(firmware, 1, layers=True).costs if firmware.loop is None else ()
        return {cost.layers[0]: cost.cycles for cost in costs if len(cost.layers) == 1}
    return {}
