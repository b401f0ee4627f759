"""The matrix register file, which reads one lane group of all rows of a native tile at once."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import UNCHECKED, low_high
from concord.hw.lib.payloads import lane_group
from concord.hw.lib.pipeline import delay
from concord.hw.lib.timekeeper import rows
from concord.hw.mvm.row_groups import along
from concord.spec.machine.config import Config


def record(config: Config) -> data.StructLayout:
    """One lane group of one row."""
    return lane_group(config.weights, config.lanes)


def record_write(config: Config) -> data.StructLayout:
    """A record, and the address to write it to."""
    return data.StructLayout({"valid": 1, "tile": range(config.matrix_tiles), "row": range(config.native_dim),
                              "group": range(config.groups), "record": record(config)})


def mark_write(config: Config) -> data.StructLayout:
    """The zero mark of a tile, the number of lane groups up to the last one that is not all zero."""
    return data.StructLayout({"valid": 1, "tile": range(config.matrix_tiles), "mark": range(config.groups + 1)})


class MatrixRf(wiring.Component):
    """Holds native tiles in `tile_engines` banks; tile t lies in bank t mod tile_engines.

    A read from address t yields the tiles t, t + 1 ... of all banks, each at the output of its bank. So bank j
    yields column (j - t) mod tile_engines of the step. The operands are rotated to the banks, because rows are wider.

    Args:
        config: The machine.

    Members:
        write: In {valid, tile, row, group, record}. Record to write.
        mark: In {valid, tile, mark}. Zero mark to write.
        tile, group: In. First tile and lane group to read.
        o: Out. Records that were read, [bank][row].
        mark_tile: In. First tile whose marks are read.
        marks: Out. Zero marks that were read, [bank].

    Timing:
        A row of `o` follows by `latency` cycles and the row's lateness (`hw.mvm.row_groups`), `marks` by one. What is
        written can be read from the next cycle on; what a read yields in the same cycle is undefined.
    """

    latency = 3

    def __init__(self, config: Config):
        self.config = config
        tile = range(config.matrix_tiles)
        super().__init__({
            "write": In(record_write(config)), "mark": In(mark_write(config)),
            "tile": In(tile), "group": In(range(config.groups)),
            "o": Out(data.ArrayLayout(data.ArrayLayout(record(config), rows(config)), config.tile_engines)),
            "mark_tile": In(tile), "marks": Out(data.ArrayLayout(range(config.groups + 1), config.tile_engines)),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        tiles, size = config.matrix_tiles // config.tile_engines, record(config).size
        bank, _ = low_high(self.write.tile, config.tile_engines)
        here = Cat(self.write.valid & (bank == j) for j in range(config.tile_engines))
        writes = list(zip(along(m, self.write, config), along(m, here, config, reset_less=False), strict=True))
        mark_bank, mark_index = low_high(self.mark.tile, config.tile_engines)
        for j in range(config.tile_engines):
            addresses = along(m, Cat(self.group, self.beside(j, self.tile)), config)
            for r, (address, (written, in_bank)) in enumerate(zip(addresses, writes, strict=True)):
                m.submodules[f"bank{j}_row{r}"] = memory = Memory(
                    shape=size, depth=tiles * config.groups, init=[], attrs=UNCHECKED)
                write, read = memory.write_port(), memory.read_port()
                m.d.comb += [
                    write.addr.eq(Cat(written.group, low_high(written.tile, config.tile_engines)[1])),
                    write.data.eq(written.record), write.en.eq(in_bank[j] & (written.row == r)),
                    read.addr.eq(address), Value.cast(self.o[j][r]).eq(delay(m, read.data, 1))]
            m.submodules[f"marks{j}"] = memory = Memory(
                shape=range(config.groups + 1), depth=tiles, init=[], attrs=UNCHECKED)
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.addr.eq(mark_index), write.data.eq(self.mark.mark),
                write.en.eq(self.mark.valid & (mark_bank == j)),
                read.addr.eq(self.beside(j, self.mark_tile)), self.marks[j].eq(read.data)]
        return m

    def beside(self, j: int, tile):
        """Address in bank j of the first tile at or after `tile` that lies in this bank."""
        bank, index = low_high(tile, self.config.tile_engines)
        return (index + (bank > j))[:len(index)] if len(bank) else index
