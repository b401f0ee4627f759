"""One network beside golden: its row in the table of `nox -s twin_networks`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from concord.campaigns.twin_ways import NOT_RUN, Cell, Way, results, text, tried
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import compile_network, full_precision
from concord.datasets import dataset
from concord.firmware.firmware import Firmware
from concord.firmware.session import outputs_of
from concord.firmware.unquantized import UnquantizedMachine
from concord.net.model import Model
from concord.net.model_file import load_model
from concord.spec.machine.config import PRESETS
from concord.spec.machine.machine_file import find_config
from concord.twin.lib.script import Script
from concord.twin.recovery.recover import recover, without_hints
from concord.twin.source.frameworks import Framework, installed
from concord.twin.source.writer import module_name, source, write_twin
from concord.verification.twins import TwinSource, differing, distance

SHIPPED = {"fashion-mlp-bfp8": "trainer", "fashion-mlp-w4a4": "ulx3s", "fashion-resnet-w8": "vision",
           "vowels-lstm-w8": "vision"}
MODELS = Path("data/models")
VOWELS, IMAGES = "japanese-vowels", "fashion-mnist"
STEPS = 7, 13, 20  #: Time steps to which utterances are cut: each number costs a compilation in some frameworks.


#: Titles of the columns that say what a row is about.
SOURCES = ("network", "preset", "weights", "calibration", "inputs", "samples", "lines")


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedNetwork:
    """A network on a machine.

    Attributes:
        name:        Name in the table.
        preset:      Machine: a preset, or a TOML file.
        weights:     File or seed of its weights.
        calibration: Samples that find the ranges of its codes, or "-" if the file has the ranges.
        inputs:      Where the samples come from that twin and golden run.
        make:        Function that makes its model; None if its file is missing.
        samples:     Function that makes a number of samples for its firmware, each a binary16 pattern uint16[...].
    """

    name: str
    preset: str
    weights: str
    calibration: str
    inputs: str
    make: Callable[[], Model] | None
    samples: Callable[[Firmware, int], list[np.ndarray]]


def shipped() -> Iterator[ComparedNetwork]:
    """The shipped networks."""
    for name, machine in SHIPPED.items():
        yield ComparedNetwork(name=name, preset=machine, weights=f"{name}.safetensors", calibration="-",
                              inputs=VOWELS if name.startswith("vowels") else IMAGES,
                              make=partial(load_model, MODELS / f"{name}.safetensors"), samples=first_samples)


def first_samples(firmware: Firmware, count: int) -> list[np.ndarray]:
    """The first samples of the shipped utterances if the firmware is recurrent, else of the shipped images."""
    samples = dataset.load(VOWELS if firmware.recurrent else IMAGES).first(count)
    if not firmware.recurrent:
        return list(samples.inputs)
    return [one[:max(each for each in STEPS if each <= len(one))] for one in samples]


def loading(model: Model, firmware: Firmware) -> Firmware:
    """Firmware of the same model that loads tiles from Dram, on a machine with as few tiles as can be.

    Returns:
        The firmware itself if there is no such machine.
    """
    config, used = firmware.config, len(firmware.tiles.mantissas)
    for share in (8, 4, 2):
        tiles = -(-used // share // config.tile_engines) * config.tile_engines
        outside = replace(config, dram_words=1 << 22, dram_bus=8, matrix_tiles=tiles,
                          instructions=max(8192, config.instructions))
        try:
            return compile_network(model, outside).firmware
        except CannotRun:
            continue
    return firmware


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A network in the table.

    Attributes:
        network: The network.
        samples: Number of its samples.
        lines:   Number of lines of its twin in numpy.
        cells:   Cell of each column after SOURCES.
    """

    network: ComparedNetwork
    samples: int
    lines: int
    cells: list[Cell]

    @property
    def texts(self) -> list[str]:
        """Texts of all its cells."""
        net = self.network
        return [net.name, Path(net.preset).stem, net.weights, net.calibration, net.inputs, str(self.samples),
                str(self.lines), *map(text, self.cells)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TwinComparison:
    """What is compared, and how.

    Attributes:
        ways:        Ways to run twins.
        samples:     Number of samples of each network.
        out:         Folder of the twins.
        on_rtl:      Number of these that the simulated hardware runs, too.
        unquantised: Whether to compare twins without quantisers with golden without quantisers.
        say:         Prints a sentence.
        dram:        Whether machines have memory outside the chip and too few tiles, so that firmware loads some.
    """

    ways: list[Way]
    samples: int
    out: Path
    on_rtl: int
    unquantized: bool
    say: Callable[[str], None]
    dram: bool = False

    @property
    def columns(self) -> list[str]:
        """Titles of the columns after SOURCES."""
        return [*[f"RTL, {self.on_rtl}"] * (not self.unquantized), *(way.title for way in self.ways)]

    def row(self, network: ComparedNetwork) -> Row:
        """The row of a network, all of whose ways run."""
        if network.make is None:
            return Row(network=network, samples=0, lines=0, cells=[NOT_RUN] * len(self.columns))
        model = network.make()
        firmware = compile_network(model, find_config(network.preset)).firmware
        if self.dram:
            firmware = loading(model, firmware)
            loads = f"{firmware.config.matrix_tiles} tiles" if firmware.constant_words else "no loads"
            network = replace(network, preset=f"{network.preset}, {loads}")
        if self.unquantized:
            firmware = replace(firmware, full_precision=full_precision(model, firmware))
        samples = network.samples(firmware, self.samples)
        golden = self._golden(firmware, samples)
        scripts = {way.hints: self._script(firmware, way.hints) for way in self.ways}
        cells = [] if self.unquantized else [self._rtl(network, firmware, samples, golden)]
        cells += [self._cell(network, way, scripts[way.hints], samples, golden) for way in self.ways]
        lines = source(scripts[self.ways[0].hints], Framework.NUMPY, "twin").splitlines()
        return Row(network=network, samples=len(samples), lines=len(lines), cells=cells)

    def _golden(self, firmware: Firmware, samples: list[np.ndarray]) -> np.ndarray:
        if not self.unquantized:
            return outputs_of("golden", firmware, samples)
        machine = UnquantizedMachine(firmware)
        return np.stack([machine.infer(sample) for sample in samples])

    def _script(self, firmware: Firmware, hints: bool) -> Script:
        return recover(firmware if hints else without_hints(firmware), unquantized=self.unquantized)

    def _rtl(self, network: ComparedNetwork, firmware: Firmware, samples: list[np.ndarray], golden: np.ndarray) -> Cell:
        if not self.on_rtl or network.preset not in PRESETS:  # no hardware is built for other machines
            return NOT_RUN
        return tried(f"{network.name}: RTL", lambda: differing(
            golden[:self.on_rtl], outputs_of("library", firmware, samples[:self.on_rtl])), self.say)

    def _cell(
        self, network: ComparedNetwork, way: Way, script: Script, samples: list[np.ndarray], golden: np.ndarray,
    ) -> Cell:
        if not installed(way.framework):
            return NOT_RUN
        kind = "_unquantized" * self.unquantized + "_plain" * (not way.hints)
        stem = module_name(f"{network.name}_{Path(network.preset).stem}_{way.framework}{kind}")

        def compared() -> Cell:
            twin = TwinSource(write_twin(script, way.framework, self.out, stem), way.framework, compiled=way.compiled,
                              device=way.device)
            if self.unquantized:
                return distance(golden, results(twin.numbers, samples, golden))
            return differing(golden, results(twin.infer, samples, golden))

        return tried(f"{network.name}: {way.title}", compared, self.say)
