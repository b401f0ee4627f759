"""Where an update of weights lies on the chip: groups of weights, tiles of samples, and the regions of both."""

from dataclasses import dataclass, replace
from itertools import product

from concord.compiler.training import patches
from concord.compiler.training.arrivals import Arrivals
from concord.compiler.training.emitter import Span
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import MemoryMap
from concord.compiler.training.regions import ChipRoom, rounded
from concord.compiler.training.shares import share
from concord.compiler.training.tiles import (
    MOST_PRODUCTS,
    MOST_TAPS,
    Strip,
    TileSizes,
    block_cycles,
    choose,
    heights,
    window_strips,
)
from concord.spec.trainer.config import LANES, PARAMETER_PLANES, TrainerConfig


@dataclass(frozen=True, slots=True)
class Groups:
    """How the gradients of weights are cut: all those of some blocks of channels and some taps at a time.

    Attributes:
        blocks:   Blocks of channels.
        taps:     Rows of a kernel, or pixels of a dense layer.
        ways:     Number of regions that groups take in turn.
        resident: Whether all inputs and gradients stay on the chip.
        parted:   Whether an update takes some outputs of one tap at a time.
    """

    blocks: int
    taps: int
    ways: int = 1
    resident: bool = False
    parted: bool = False


class UpdateRoom:
    """Chooses groups and tiles, and finds their regions.

    Args:
        memory_map: Where everything lies outside of the chip.
        config:     The core.
        layer:      The layer.
        channels:   Blocks of channels whose weights the core updates.
        units:      Rows of a kernel, or pixels of a dense layer, whose weights it updates.
        least:      Rows of the accumulators for the gradients of one unit and one block.
        added:      Whether cores add up what each has made from its samples.

    Attributes:
        pixels:   Pixels of a dense layer's inputs that come to the chip; None for whole inputs.
        held:     Whether the accumulators hold the gradients of all weights.
        groups:   How the gradients of weights are cut.
        tiles:    Sizes of the tiles of samples.
        arrivals: Gradients of outputs, which come to the chip tile by tile.
        inputs:   Regions of inputs, for each tile that is there at a time, or for each group.
        lines:    Regions of rows of pixels, one for each of these where patches are made of them.
        rows:     Rows of parameters that are updated at a time.
        records:  Addresses of old and new rows of parameters, for each way.
        bias:     Addresses of old and new rows of the bias.

    Raises:
        ValueError: the core is too small.
    """

    def __init__(
        self,
        memory_map: MemoryMap,
        config: TrainerConfig,
        layer: Product,
        channels: Span,
        units: Span,
        least: int,
        *,
        added: bool,
    ):
        self.memory_map, self.config, self.layer, self.channels, self.units = memory_map, config, layer, channels, units
        self.least, self.added = least, added
        self.pixels = units if layer.dense and units.count < layer.taps else None
        self.heights = [] if layer.dense else heights(layer.height, layer.pool.stride if layer.pool else 1)
        self.held = least * units.count * channels.count <= config.accumulator_rows and units.count <= MOST_TAPS
        self.groups = self._groups()
        self._plan(self.groups)

    @property
    def passing(self) -> bool:
        """Whether gradients stay on the chip, and each block of inputs comes with the only group that needs it."""
        return self._passing(self.groups)

    def _passing(self, groups: Groups) -> bool:
        return groups.resident and groups.taps >= self.units.count and groups.blocks * groups.ways < self.channels.count

    def _groups(self) -> Groups:
        """Groups that fit with the least traffic: with all tensors on the chip, or else as few as possible."""
        channels, units, found = self.channels.count, self.units.count, {}
        if self.held:
            whole = Groups(channels, units)
            return whole if self._room(whole) <= self.config.words else replace(whole, parted=True)
        for ways, resident, parted in product((2, 1), (True, False), (False, True)):
            most = self.config.accumulator_rows // ways // self.least
            for taps in range(min(most, units, MOST_TAPS), 0, -1):
                for blocks in range(min(most // taps, channels), 0, -1):
                    groups = Groups(blocks, taps, ways, resident, parted)
                    if self._room(groups) <= self.config.words:
                        count = -(-units // taps) * -(-channels // blocks)
                        clash = not self.apart
                        found[groups] = (not resident, 0 if resident else count, parted, -ways, clash, count)
        return min(found, key=lambda groups: found[groups]) if found else Groups(1, 1, parted=True)

    def _room(self, groups: Groups) -> int:
        """Words on the chip that groups need at least; groups of several cores are those of the first one."""
        if groups.resident:
            most = share(self.memory_map.whole, 0, self.memory_map.cores).count if self.added else self.memory_map.whole
            return self._chip(TileSizes(1, most, 1, 1), groups)
        return min(self._chip(TileSizes(1, 1, 1, 1, rows), groups) for rows in (0, *self.heights[-1:]))

    def _plan(self, groups: Groups):
        """Find the tiles of samples that fit beside what a group needs."""
        batch, layer = self.memory_map.batch, self.layer
        self.tiles = TileSizes(1, batch, 1, 1)
        if not groups.resident:
            blocks = layer.x.blocks * layer.taps
            self.tiles = choose(
                f"layer {layer.name!r}, update,",
                self.config,
                (1, batch),
                lambda each: self._chip(each, groups),
                lambda each: (
                    -(-batch // each.samples)
                    * block_cycles(blocks * -(-each.samples * layer.pixels // LANES), layer.outputs, 2)
                ),
                lambda each: MOST_PRODUCTS,
                self.heights,
            )
        self._chip(self.tiles, groups)

    def _chip(self, tiles: TileSizes, groups: Groups) -> int:
        """Find regions: what is read in the same cycles in different memories, and updates beside products, if it fits.

        Returns: the number of words that are needed, of the closest regions if others do not fit.
        """
        for apart, behind in (True, True), (False, True), (False, not self.held):
            self.apart, memory = apart, self.config.memory if apart else 0
            used = self._regions(tiles, groups, ChipRoom(memory=memory), behind)
            if used <= self.config.words:
                break
        return used

    def _regions(self, tiles: TileSizes, groups: Groups, chip: ChipRoom, behind: bool) -> int:
        layer, x = self.layer, self.layer.x
        self.arrivals, self.inputs = [], []
        height, width = max(strip.high - strip.low for strip in self.strips(tiles.rows)), x.width
        if self.pixels:
            height, width = 1, self.pixels.count
        for _ in range(tiles.inner):
            self.arrivals.append(Arrivals(self.memory_map, layer, chip, tiles.samples, tiles.rows))
        chip.apart()
        for _ in range(tiles.inner):
            blocks = self.channels.count if groups.resident and not self._passing(groups) else groups.blocks
            self.inputs.append(chip.images(tiles.samples, height, width, blocks))
        if self._passing(groups):
            self.inputs += [chip.images(tiles.samples, height, width, groups.blocks) for _ in range(1, groups.ways)]
        remade = self.inputs if layer.patch and self.memory_map.remakes else []
        self.lines = [patches.lines(chip, self.memory_map, tiles.samples) for _ in remade]
        # If updates begin when all products are done, both may lie at the same address.
        room = ChipRoom(chip.used, chip.memory) if behind else ChipRoom()
        self.rows = groups.blocks * groups.taps * self.least
        if groups.parted:
            most = (self.config.words - room.used) // (2 * PARAMETER_PLANES * groups.ways) - 2 * LANES
            self.rows = max(min(most, layer.outputs), LANES)
        old = [room.words(PARAMETER_PLANES * self.rows) for _ in range(groups.ways)]
        room.apart()
        self.records = [[address, room.words(PARAMETER_PLANES * self.rows)] for address in old]
        size, used = rounded(PARAMETER_PLANES * layer.blocks), max(chip.used, room.used)
        # Behind all else, if there is room: then it does not wait until new weights are stored.
        address = used if used + 2 * size <= self.config.words else 0
        self.bias = [address, address + size]
        return max(used, 2 * size)

    def strips(self, rows: int) -> list[Strip]:
        """Strips of the gradient, and the rows of inputs that they take."""
        layer = self.layer
        if layer.dense:
            return [Strip(0, 1, 0, layer.x.height)]
        return window_strips(layer.height, rows, layer.x.height, layer.rows, layer.stride, layer.padding)
