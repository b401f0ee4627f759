"""Testbench of hw.mvm.matrix_rf: side-by-side tiles from any first tile, and their zero marks."""

from collections import deque

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.mvm.matrix_rf import MatrixRf, mark_write, record, record_write
from concord.hw.mvm.row_groups import lateness
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal
from concord.sim.drivers.stream import clock, start

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "index + (bank > j)", "new": "index + (bank >= j)", "config": "wide"},
)

N, ENGINES, TILES, GROUPS = CONFIG.native_dim, CONFIG.tile_engines, CONFIG.matrix_tiles, CONFIG.groups
WRITE, MARK, RECORD = Packer(record_write(CONFIG)), Packer(mark_write(CONFIG)), Packer(record(CONFIG))
READ = Packer(data.ArrayLayout(data.ArrayLayout(RECORD.width, N), ENGINES))
LATE = lateness(CONFIG)
MARKS = Packer(data.ArrayLayout(range(GROUPS + 1), ENGINES))


def beside(tile: int) -> dict[int, int]:
    """The tile that each bank shows when the tiles from `tile` on are read; banks beyond the last tile are left out."""
    return {t % ENGINES: t for t in range(tile, min(tile + ENGINES, TILES))}


@cocotb.test()
async def reads_what_was_written(dut):
    """Records and marks in random order, some tiles written repeatedly, while any tile and group is read."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    rows = [(int(t), r, g) for t in range(TILES) for r in range(N) for g in range(GROUPS)]
    writes = [rows[k] for k in rng.permutation(len(rows))[:3000]]
    again = [writes[k] for k in rng.integers(0, len(writes), 1500)]
    records, marks = {}, {}
    await start(dut, "write", "mark", "tile", "group", "mark_tile")
    checked = 0
    # What reads must show, the oldest one first, and the first rows first.
    due, wanted_marks = deque({} for _ in range(MatrixRf.latency + LATE[-1])), {}
    for tile, row, group in writes + again:
        value, mark, target = int.from_bytes(rng.bytes(RECORD.width // 8 + 1)), int(rng.integers(GROUPS + 1)), tile
        value &= (1 << RECORD.width) - 1
        written, marked = rng.random() < 0.9, rng.random() < 0.3
        dut.write.value = WRITE.join({"valid": written, "tile": tile, "row": row, "group": group,
                                      "record": RECORD.of(value)})
        dut.mark.value = MARK.join({"valid": marked, "tile": target, "mark": mark})
        asked, part, other = (int(rng.integers(limit)) for limit in (TILES, GROUPS, TILES))
        dut.tile.value, dut.group.value, dut.mark_tile.value = asked, part, other
        await clock(dut)
        got, got_marks = READ.of(int(dut.o.value)), MARKS.of(int(dut.marks.value))
        wanted = {(bank, r): want for age in set(LATE) for (bank, r), want in due[LATE[-1] - age].items()
                  if LATE[r] == age}
        due.popleft()
        for (bank, r), want in wanted.items():
            assert_equal(f"row {r} of bank {bank}", got[bank][r], want)
        for bank, want in wanted_marks.items():
            assert_equal(f"mark of bank {bank}", got_marks[bank], want)
        checked += len(wanted) + len(wanted_marks)
        # The result of a read in the cycle of a write to the same address is undefined.
        due.append({(bank, r): records[t, r, part] for bank, t in beside(asked).items() for r in range(N)
                    if (t, r, part) in records and not (written and (t, r, part) == (tile, row, group))})
        wanted_marks = {bank: marks[t] for bank, t in beside(other).items()
                        if t in marks and not (marked and t == target)}
        if written:
            records[tile, row, group] = value
        if marked:
            marks[target] = mark
    assert checked > 2000
