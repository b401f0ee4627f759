"""Testbenches that can fail: a line of hardware is broken, and the testbench of just that unit must go red.

`nox -s mutants -- --unit queue` breaks the lines of one unit. The repository itself stays as it is.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from concord.sim.machines.build import ROOT
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

ROOMS = ("concord", "spec", "golden", "hw", "sim")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken line.

    Attributes:
        unit:   Whose testbench must notice.
        file:   Where the line is.
        old:    Text that stands there once.
        new:    What breaks it.
        config: Preset in which it shows.
    """

    unit: str
    file: str
    old: str
    new: str
    config: str = "tiny"


MUTANTS = (
    Mutant("accumulator", "hw/mvm/accumulator.py", "self.totals.eq(valid & last)", "self.totals.eq(valid)"),
    Mutant("beat_sequencer", "hw/mvm/beat_sequencer.py", "(self.complete >= step.needed)",
           "(self.complete + 1 >= step.needed)"),
    Mutant("beat_sequencer", "hw/mvm/beat_sequencer.py", "(free >= step.words)", "(free != 0)"),
    Mutant("bias_rf", "hw/mvm/bias_rf.py",
           "write.en.eq(self.i.valid)", "write.en.eq(self.i.valid & ~self.i.p.address[3])"),
    Mutant("tensor_quantizer", "hw/lazy/tensor_quantizer.py", "now | Mux(first, 0, found)", "now | found"),
    Mutant("tensor_quantizer", "hw/lazy/tensor_quantizer.py", 'lane["rounded"][bits - 1:].any()',
           'lane["rounded"][bits:].any()'),
    Mutant("tensor_quantizer", "hw/lazy/tensor_quantizer.py",
           "(~negative).replicate(len(value))", "Const(-1, len(value))"),
    Mutant("converter", "hw/mvm/converter.py", "lane < i.lanes", "lane <= i.lanes"),
    Mutant("copy", "hw/schedule/copy.py", " | (job.serial & ~ahead.empty)", ""),
    Mutant("copy", "hw/schedule/copy.py", "source.copy.eq(self.progress)", "source.copy.eq(0)"),
    Mutant("counters", "hw/host/counters.py", "total[:BITS] | total[BITS].replicate(BITS)", "total[:BITS]"),
    Mutant("decoder", "hw/decode/decoder.py", "total > self.config.mvmq_words", "total >= self.config.mvmq_words"),
    Mutant("decoder", "hw/decode/chain_builder.py", "v.stride_out >= v.words", "v.stride_out > v.words"),
    Mutant("decoder", "hw/decode/instruction_check.py", "p.position > s.position", "p.position > s.position + 1"),
    Mutant("host_read", "hw/host/host_read.py", "(self.i.p.count - offset)[:32]", "self.i.p.count"),
    Mutant("interlock", "hw/schedule/interlock.py", "once & (write.lo <= read.lo)", "write.lo <= read.lo"),
    Mutant("interlock", "hw/schedule/interlock.py", 'y.mfu.eq(self._waits(m, c, "mfu", "copy_mfu", reads_net=net))',
           'y.mfu.eq(self._waits(m, c, "mfu", "copy_mfu", reads_net=0))'),
    Mutant("interlock", "hw/schedule/interlock.py", "(count != EPOCH - 1) | ~behind", "1"),
    Mutant("issue", "hw/schedule/issue.py", "self.latency - self.due[k])", "self.latency - self.due[k] - 1)"),
    Mutant("issue", "hw/schedule/issue.py", "| no_room |", "|"),
    Mutant("lazy_update", "hw/lazy/lazy_step.py", 'limited = e["above"] | (e["full"] & half)', 'limited = e["above"]'),
    Mutant("lazy_update", "hw/lazy/lazy_step.py", 'half & (~v[-1] | e["rounded"])', "half"),
    Mutant("lazy_update", "hw/lazy/lazy_update.py", "first.eq(self.i.p.last)", "first.eq(0)"),
    Mutant("lazy_update", "hw/lazy/exponent_search.py", "p.updated & ~p.changes & ", "~p.changes & "),
    Mutant("lazy_update", "hw/lazy/rounding.py", "(~value[-1] | value[:places - 1].any())", "~value[-1]"),
    Mutant("matrix_loader", "hw/mvm/matrix_loader.py", "(item.row == 0) & (item.group == 0)", "item.group == 0"),
    Mutant("matrix_rf", "hw/mvm/matrix_rf.py", "index + (bank > j)", "index + (bank >= j)", "wide"),
    Mutant("mfu_pipeline", "hw/mfu/mfu_pipeline.py", "second.tap.eq(first.tap_out)", "second.tap.eq(first.tap)"),
    Mutant("mode_table", "hw/decode/mode_table.py", "(disagree | differs) & ~ends", "differs & ~ends"),
    Mutant("multifunction", "hw/mfu/multifunction.py", "delay(m, self.control.mul, self.factor_at)",
           "delay(m, self.control.mul, self.factor_at - 1)"),
    Mutant("mvm", "hw/mvm/mvm.py", "delay(m, beat.integer, steering.latency)",
           "delay(m, beat.integer, steering.latency + 1)"),
    Mutant("normalizer", "hw/mvm/normalizer.py", "Cat(padded[:-12].any(), padded[-12:])", "padded[-13:]"),
    Mutant("operand_buffer", "hw/mvm/operand_buffer.py", "Cat(read_line, self.step[:high], reading)",
           "Cat(read_line, self.step[:high], filling)"),
    Mutant("operand_fetch", "hw/schedule/operand_fetch.py", "self.mfu.iteration >= source.iteration",
           "self.mfu.iteration + 1 >= source.iteration"),
    Mutant("overflow", "hw/mvm/overflow.py", "self.used > k", "self.used >= k"),
    Mutant("quantizer", "hw/mvm/quantizer.py", "(value[:11].any() | value[12])", "1"),
    Mutant("queue", "hw/lib/queue.py", "self.i.ready.eq(queue.w_rdy)", "self.i.ready.eq(1)"),
    Mutant("read_ahead", "hw/lib/read_ahead.py", "self.room.eq(under_way != self.DEPTH)",
           "self.room.eq(queue.level != self.DEPTH)"),
    Mutant("result_sequencer", "hw/mvm/result_sequencer.py", "Mux(rows > lanes, lanes, rows)", "lanes"),
    Mutant("row_tiles", "hw/mvm/row_tiles.py", "place.row_base + p.columns", "place.row_base + p.columns + 1"),
    Mutant("row_tiles", "hw/mvm/row_tiles.py", "step.last & ~told)", "step.last & self.step.ready)"),
    Mutant("scalar_registers", "hw/decode/scalar_registers.py", "shifted >= divisor", "shifted > divisor"),
    Mutant("instruction_fetch", "hw/decode/instruction_fetch.py",
           "following.eq(self.target)", "following.eq(self.target + 1)"),
    Mutant("address_generator", "hw/schedule/address_generator.py",
           "x == job.iterations_x - 1", "x == job.iterations_x"),
    Mutant("address_generator", "hw/lib/payloads.py", "(ahead == 1) & (address < low)", "(address < low)"),
    Mutant("operand_rotator", "hw/mvm/operand_rotator.py", "e < self.columns", "e <= self.columns", "wide"),
    Mutant("tile_engine", "hw/mvm/tile_engine.py", "top = place == self.digits - 1", "top = False"),
    Mutant("vector_memories", "hw/schedule/vector_memories.py",
           "other.memory == want.memory", "other.memory >= want.memory"),
    Mutant("writeback", "hw/schedule/writeback.py", "last_word & (job.tail != 0)", "last_word & last_iteration"),
    Mutant("writeback", "hw/schedule/writeback.py", "& (sent | self.net.ready) & ~fire", "& self.net.ready & ~fire"),
)


def tree(folder: Path, mutant: Mutant) -> None:
    """The repository in `folder`, with its line broken.

    Raises:
        ValueError: the line does not stand there once.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file} has {text.count(mutant.old)} times {mutant.old!r}, not once: "
                         f"choose another line for {mutant.unit} in sim/campaigns/mutants.py")
    path.write_text(text.replace(mutant.old, mutant.new))


def verdict(folder: Path, mutant: Mutant) -> tuple[str, str]:
    """"red" where the testbench fails, and its assertion; "GREEN" where it does not, "ERROR" where it cannot run."""
    tree(folder / "tree", mutant)
    words = ["concord.sim.campaigns.regress", "--unit", mutant.unit, "--config", mutant.config, "--no-coverage"]
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder / "tree", capture_output=True, text=True,
                          env=os.environ | {"CONCORD_BUILD": str(folder / "build"), "COLUMNS": "200"}, check=False)
    if done.returncode == 0:
        return "GREEN", ""
    found = re.search(r"^(?:AssertionError|\S*Timeout).*(?:\n *assert .*)?", done.stdout, re.MULTILINE)
    if not found:
        return "ERROR", (done.stdout + done.stderr)[-1000:]
    return "red", re.sub(r"\s+", " ", found[0].removeprefix("AssertionError: "))[:100]


def main(unit: Annotated[list[str] | None, typer.Option(help="Unit to break; all where left out. May be repeated.")]
         = None) -> None:
    """Break lines, one at a time, and tell which testbenches notice."""
    console, noticed = Console(), 0
    table = Table("unit", "file", "line", "broken", "testbench", "assertion", title="Mutants")
    chosen = [mutant for mutant in MUTANTS if not unit or mutant.unit in unit]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for mutant in track(chosen, console=console, transient=True):
            colour, assertion = verdict(Path(folder), mutant)
            noticed += colour == "red"
            table.add_row(*map(escape, (mutant.unit, mutant.file, mutant.old, mutant.new, colour, assertion)))
    console.print(table)
    console.print(f"{len(chosen)} lines broken, {noticed} noticed")
    raise typer.Exit(noticed < len(chosen))


if __name__ == "__main__":
    typer.run(main)
