"""Compiles a network: plan, addresses, program, and what the host must know about inputs and results.

A part of a concatenation that fills no whole number of native vectors leaves words after it. They must be zero, since
they count in the exponent of a block: they are zero before the first inference, and stay so unless something
else uses them as well.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from concord.compiler.emit import borders
from concord.compiler.emit.passes import LayerPass, roll
from concord.compiler.emit.storage import CodeMap, TensorNumbers
from concord.compiler.emit.time_loops import TimeLoop
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.wiring import BACKWARD, wired
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.neighbours import ALONE, Neighbours
from concord.compiler.lib.program import Slot
from concord.compiler.plan.addresses import allocate_numbers, overlaps
from concord.compiler.plan.demands import Demands
from concord.compiler.plan.planner import Planner
from concord.compiler.plan.room import settle
from concord.compiler.plan.streams import PassStream, brings, feeder, set_lifetimes
from concord.compiler.plan.waves import waves_of
from concord.compiler.support import kind_of
from concord.firmware.firmware import Entries, ReadDirection
from concord.firmware.layout import Layout, runs_of
from concord.net.model import Model
from concord.spec.isa.instructions import Instruction, Op, Reg
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


class Compilation:
    """The compilation of a network: its passes are planned, `arrange` chooses addresses, and `emit` adds the chains.

    Args:
        build:      Collects chains and slots.
        model:      A model of which all layers can be compiled.
        neighbours: The machines before and after, where the model is a part.

    Attributes:
        demands: What consumers need of each tensor.
        streams: The passes that run strip by strip together.
        waves:   The passes that take turns.
        sent:    Names of the tensors that leave the machine, in order.
        host:    Fields of the firmware on how the host sends inputs and receives results, and on the borders that it
            brings.
    """

    def __init__(self, build: ModelBuild, model: Model, neighbours: Neighbours = ALONE):
        self._build, self._config = build, build.config
        self._steps = model.steps
        self._network = PlannedNetwork(wired(model, kind_of, neighbours), build.config, build.content, neighbours)
        self.demands = Demands(build.config, self._network, build.most_tiles, build.far)
        self.host: dict[str, Layout | tuple[Entries, ...] | int | None] = {}
        planner = Planner(build, self.demands, whole=neighbours.whole)
        self._passes, self.sent = planner.passes, planner.sent
        turns = build.waves and any(node.kind.takes_turns for node in self._network.nodes)
        self.waves = waves_of(self._passes) if turns else []
        if self.waves:
            set_lifetimes(self._passes, self.waves)

    def arrange(self):
        """Choose all addresses."""
        build, config, maps = self._build, self._config, self.demands.maps
        codes = build.allocator.used(Mem.VECTOR_RF)  # of products of recurrent layers
        over, self.streams = settle(config, maps, self._passes, codes)
        self._crowded = bool(over or self.streams)
        if self.waves:  # room that is found by other lifetimes is none
            set_lifetimes(self._passes, self.waves)
            self._crowded |= overlaps([one.buffer for one in maps])
        self._around = borders.Borders(config, maps, self._passes, over)
        self._constants = {
            one: build.allocator.constant(
                Mem.INITIAL_VRF, borders.border_words(config, one, real=build.real), "borders")
            for one in maps if one in self._around.written or (one.held and one.codes.border is not None)}
        if longest := longest_gap(config, self.demands.numbers):
            self._zeros = build.allocator.constant(
                Mem.INITIAL_VRF, np.zeros(longest * config.mfu_lanes, np.uint16), "zeros")
        build.reserve_tiles()
        build.shortages += allocate_numbers(config, build.allocator, self.demands, self._passes)
        build.allocator.take(Mem.VECTOR_RF, max((one.buffer.end for one in maps), default=codes) - codes, "maps")

    @property
    def fits(self) -> bool:
        """Whether all has room; where passes take turns, without strips that write over others."""
        build = self._build
        return not (self._crowded or build.shortages or build.allocator.shortages()) and len(
            build.program.instructions) <= self._config.instructions

    @property
    def words(self) -> int:
        """Words that all passes compute; those that streams compute twice count twice."""
        once = sum(made.value.pixels * self._config.words_of(made.value.lanes) * len(made.chains)
                   for made in self._passes)
        return once + sum(stream.twice(self._config) for stream in self.streams)

    def emit(self):
        """Emit the chains of all layers; the result goes to the host."""
        build, config, around = self._build, self._config, self._around
        if build.shortages:
            return
        strips = [strip for made in self._passes for strip in made.strips]
        holed = overwritten_gaps(config, self.demands.numbers, strips)
        for made in self._passes:
            for numbers in (one for one in holed if one.buffer.first == made.time):
                with build.program.section(f"{numbers.buffer.name}, zeros between its parts", made.chains[0].layer):
                    fill_gaps(build, numbers, self._zeros)
            for one in around.first_in(made):
                self._emit_border(one, made, borders.runs(one))
            stream = next((stream for stream in self.streams if made in stream.passes), None)
            if any(feeder(stream, self._passes) is made for stream in self.streams):
                continue
            if wave := next((wave for wave in self.waves if made in wave.passes), None):
                if made is wave.passes[-1]:
                    wave.emit(config, build.program)
                continue
            if stream is None and (not build.short or isinstance(made, TimeLoop)):
                made.emit(config, build.program)
            elif stream is None:
                roll(build, [partial(self._emit_strip_at, made, first) for first in made.firsts])
            elif made is stream.passes[-1]:
                self._emit_stream(stream)
            for one in around.behind(made):
                self._emit_border(one, made, borders.runs(one))
        self.host = {
            **self._layouts(),
            "entries": (borders.real_entries if build.real else borders.entries)(config, around.brought),
            "steps": self._steps}

    def _layouts(self) -> dict[str, Layout | int | tuple[ReadDirection, ...]]:
        """How the input comes and the result leaves; several tensors of a machine beside this one have no layout."""
        config, network, found = self._config, self._network, {}
        if network.sender:
            found["input_layout"] = network.sender.layout(config.mfu_lanes)
        elif network.steps:
            found["directions"] = tuple(ReadDirection.BACKWARD if node.name == BACKWARD else ReadDirection.AHEAD
                                        for node in network.entering)
        if not network.sender and (network.before or not self.demands.whole_vectors):
            values = [node.value for node in network.entering][:1 if network.steps else None]
            found["input_words"] = sum(value.pixels * config.words_of(value.lanes) for value in values)
        result, *others = (node.value for node in network.results)
        if not others and not (result.in_words and result.adjacent):
            channels, rows, columns = result.shape
            found["output_layout"] = Layout(channels=channels, rows=rows, columns=columns, align=config.mfu_lanes,
                                            places=runs_of(result.places))
        return found

    def _emit_border(self, one: CodeMap, made: LayerPass, runs: Sequence[borders.BorderRun]):
        """Emit the chains that write runs of the border of a map."""
        if runs:
            with self._build.program.section(f"{one.buffer.name}, border", made.chains[0].layer):
                borders.emit(self._build, one, self._constants[one], runs)

    def _emit_stream(self, stream: PassStream):
        """Emit passes strip by strip."""
        strips = [partial(self._emit_strips, stream, number, ranges) for number, ranges in enumerate(stream.strips())]
        if self._build.short:
            roll(self._build, strips)
            return
        for strip in strips:
            strip()

    def _emit_strip_at(self, made: LayerPass, first: int):
        """Emit the strip of a pass that begins with a row."""
        made.emit_strip_at(self._config, self._build.program, first)

    def _emit_strips(self, stream: PassStream, number: int, ranges: Sequence[tuple[int, int]]):
        """Emit strip `number` of each pass of a stream.

        What comes from Dram comes one strip ahead: as soon as its reader has read the strip before.
        """
        strips, brought = stream.strips(), brings(stream)
        if brought and number == 0:
            self._emit_strip(stream, 0, 0, ranges[0])
        for index in range(int(brought), len(stream.passes)):
            if brought and index == 1:
                stream.maps[0].origin = ranges[0][0]
            self._emit_strip(stream, number, index, ranges[index])
            if brought and index == 1 and number + 1 < len(strips):
                self._emit_strip(stream, number + 1, 0, strips[number + 1][0])

    def _emit_strip(self, stream: PassStream, number: int, index: int, rows: tuple[int, int]):
        """Emit strip `number` of one pass of a stream, after the rows of the network's input that it needs."""
        (low, high), made, one = rows, stream.passes[index], (*stream.maps, None)[index]
        if index == 0 and (input_pass := feeder(stream, self._passes)):
            for entering in (*[0] * (number == 0), number + 1):  # one strip ahead
                input_pass.emit_rows(self._config, self._build.program, *stream.entered(entering))
        first, stop = max(low, 0), min(high, made.value.shape[1])
        if one and (low < high or number == 0):
            one.origin = low
            self._emit_border(one, made, borders.runs_of_strip(one, high - low, number == 0))
        if first < stop:
            made.emit_rows(self._config, self._build.program, first, stop)


def gaps(config: Config, numbers: TensorNumbers) -> list[range]:
    """The words of a pixel that no part writes."""
    used = np.unique(numbers.value.places // config.mfu_lanes)
    missing = [range(int(a) + 1, int(b)) for a, b in zip(used, used[1:], strict=False)]
    return [gap for gap in missing if gap]


def overwritten_gaps(config: Config, every: Sequence[TensorNumbers],
                     others: Sequence[TensorNumbers]) -> list[TensorNumbers]:
    """The numbers with gaps whose words other numbers use as well."""
    buffers = [one.buffer for one in (*every, *others)]
    return [one for one in every if gaps(config, one) and any(
        other is not one.buffer and other.mem == one.buffer.mem and other.address < one.buffer.end
        and one.buffer.address < other.end for other in buffers)]


def longest_gap(config: Config, every: Sequence[TensorNumbers]) -> int:
    """The largest number of words of a gap."""
    return max((len(gap) for one in every for gap in gaps(config, one)), default=0)


def fill_gaps(build: ModelBuild, numbers: TensorNumbers, zeros: Slot):
    """Add the chains that write zeros between the parts of all pixels."""
    count, buffer = numbers.value.pixels, numbers.buffer
    for gap in gaps(build.config, numbers):
        registers = {Reg.ITERATIONS: count, Reg.ITERATIONS_X: count}
        if count > 1:
            registers[Reg.STRIDE_OUT] = numbers.words
        build.program.chain(
            Instruction(op=Op.V_RD, mem=zeros.mem, a=zeros.address),
            Instruction(op=Op.V_WR, mem=buffer.mem, a=buffer.address + gap.start, inc=int(count > 1)),
            rows=len(gap) * build.config.mfu_lanes, registers=registers)
