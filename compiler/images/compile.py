"""Compiles networks of images: plan, addresses, program, and what the host must know about images."""

from concord.compiler.images import borders, layouts
from concord.compiler.images.demands import Demands
from concord.compiler.images.network import Network
from concord.compiler.images.passes import Pass
from concord.compiler.images.planner import Planner
from concord.compiler.images.storage import CodeMap
from concord.compiler.lib.allocation import Place
from concord.compiler.lib.build import Build
from concord.golden.host.firmware import Direction, Entries
from concord.golden.host.layout import Layout
from concord.model.model import Model
from concord.spec.memories import Mem


class Images:
    """The compilation of a network with images.

    Args:
        build: Collects chains and places.
        model: A model of which all layers can be compiled.

    Attributes:
        host: Fields of the firmware on how the host sends and receives images, and on the borders that it brings.
    """

    directions = (Direction.AHEAD,)

    def __init__(self, build: Build, model: Model):
        self._build, self._config = build, build.config
        self._network = Network(model, build.config)
        self._demands = Demands(build.config, self._network)
        self.host: dict[str, Layout | tuple[Entries, ...]] = {}

    def emit(self):
        """Emit the chains of all layers; the result goes to the host."""
        build, config, maps = self._build, self._config, self._demands.maps
        passes = Planner(build, self._demands).passes
        over = layouts.settle(config, maps, passes)
        around = borders.Borders(config, maps, passes, over)
        constants = {one: build.allocator.constant(Mem.INITIAL_VRF, borders.border_words(config, one), "borders")
                     for one in around.written}
        build.shortages += layouts.place_numbers(config, build.allocator, self._demands, passes)
        build.allocator.take(Mem.VECTOR_RF, max((one.buffer.end for one in maps), default=0), "maps")
        if build.shortages:
            return
        for made in passes:
            for one in around.first_in(made):
                self._emit_border(one, made, constants[one])
            made.emit(config, build.program)
            for one in around.behind(made):
                self._emit_border(one, made, constants[one])
        channels, rows, columns = self._network.last.value.shape
        self.host = {
            "input_layout": self._network.sender.layout(config.mfu_lanes),
            "output_layout": Layout(channels=channels, rows=rows, columns=columns, align=config.mfu_lanes),
            "entries": borders.entries(config, around.brought)}

    def _emit_border(self, one: CodeMap, made: Pass, constant: Place):
        """Emit the chains that write the border of a map."""
        with self._build.program.section(f"{one.buffer.name}, border", made.chains[0].layer):
            borders.emit(self._build, one, constant)
