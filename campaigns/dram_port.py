"""The port of Dram under random transactions, and ports that break one of its rules each, which the monitor must name.

`nox -s dram_port` runs 100,000 bursts on each width of the bus, half of them with words of 4 bytes and half with words
of 16, and each broken port. `--bus 8 --transactions 5000` runs less, `--broken none` no broken ones.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from concord.campaigns.broken_lines import Mutant, tree
from concord.sim.machines.port import Port, PortCounts
from concord.spec.machine.config import preset
from rich.console import Console
from rich.table import Table

BUSES = (4, 8, 16, 32, 64)  #: Bytes of a beat.
WORDS = {4: "tiny", 16: "vision"}  #: For each size of a word in bytes, a preset that has it.
WIDTH = 150  #: Columns of the tables.
_PORT, _READER, _WRITER = (f"hw/dram/{name}.py" for name in ("dram_port", "burst_reader", "burst_writer"))


@dataclass(frozen=True, slots=True)
class Broken:
    """A port with one broken line.

    Attributes:
        rule: The rule that it breaks, as the monitor names it.
        file: Path of the file, from the root of the repository.
        old:  Text that occurs once in the file.
        new:  Text that replaces it.
    """

    rule: str
    file: str
    old: str
    new: str


#: For each rule, a port that breaks it.
BROKEN = (
    Broken("ARVALID was dropped before ARREADY", _PORT,
           "with m.If(free):", "with m.If(~free):\n            m.d.sync += self.m_axi_arvalid.eq(0)\n"
           "        with m.Else():"),
    Broken("AWVALID was dropped before AWREADY", _WRITER, "with m.If(aw.ready):", "with m.If(1):"),
    Broken("WVALID was dropped before WREADY", _WRITER, "with m.Elif(w.ready):", "with m.Else():"),
    Broken("AR changed while ARVALID waited", _PORT, "with m.If(free):", "with m.If(1):"),
    Broken("AW changed while AWVALID waited", _WRITER, "& (~aw.valid | aw.ready) & ~self.reset", "& ~self.reset"),
    Broken("W changed while WVALID waited", _WRITER, "(~full | ~w.valid | w.ready)", "1"),
    Broken("a burst crosses 4,096 bytes", _READER, "Mux(before_edge < longest, before_edge, longest)", "longest"),
    Broken("an address is no multiple of the bus", _WRITER,
           "low = Cat(Const(0, exact_log2(self.bus))", "low = Cat(Const(1, exact_log2(self.bus))"),
    Broken("SIZE is not the width of the bus", _PORT,
           "size.eq(exact_log2(self.config.dram_bus))", "size.eq(exact_log2(self.config.dram_bus) - 1)"),
    Broken("BURST is not INCR", _PORT, "kind.eq(INCR)", "kind.eq(0)"),
    Broken("a burst has more than 64 beats", _READER, "LONGEST = 64", "LONGEST = 128"),
    Broken("AWID is not 0", _PORT, "self.m_axi_awaddr.eq(aw.p.addr)",
           "self.m_axi_awaddr.eq(aw.p.addr), self.m_axi_awid.eq(aw.p.len[0])"),
    Broken("WLAST is not at the last beat alone", _WRITER, "w.p.last.eq(last)", "w.p.last.eq(0)"),
    Broken("W has a beat of no burst", _WRITER, "self.jobs.i.valid.eq(self.asked)",
           "self.jobs.i.valid.eq((state == State.GIVE) & self.enough)"),
    Broken("a write was asked for before its data were there", _WRITER, "(waiting >= self.length)", "C(1)"),
    Broken("RREADY fell while a read was under way", _PORT,
           "self.m_axi_rready.eq(words.r.ready & tiles.r.ready)",
           "self.m_axi_rready.eq(words.r.ready & tiles.r.ready & self.words.ready)"),
    Broken("BREADY fell while a write was under way", _WRITER, "self.b.ready.eq(1)", "self.b.ready.eq(ended.any())"))


def transactions(bus: int, size: int, count: int, seed: int = 1) -> tuple[PortCounts, Counter[str]]:
    """Run bursts on a port whose words have `size` bytes: counts, and how often each rule was broken."""
    with Port(replace(preset(WORDS[size]), dram_words=1 << 20, dram_bus=bus), seed) as port:
        return port.run(count), port.violations()


def broken_rules(broken: Broken, folder: Path, bus: int = 8, count: int = 2000) -> Counter[str]:
    """How often a broken port breaks each rule; it is made in a copy of the repository in `folder`.

    Raises:
        ValueError: its text does not occur exactly once in the file.
        RuntimeError: the broken port cannot be built.
    """
    tree(folder, Mutant(unit="dram_port", file=broken.file, old=broken.old, new=broken.new))
    words = [sys.executable, "-m", "concord.campaigns.dram_port", "--bus", str(bus), "--transactions", str(count),
             "--word", "4", "--broken", "none", "--json"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=os.environ, check=False)
    if not done.stdout.startswith("["):
        raise RuntimeError(f"the port that breaks the rule {broken.rule!r} does not run: {done.stderr[-1000:]}")
    return sum((Counter(row["violations"]) for row in json.loads(done.stdout)), Counter())


def chosen_ports(text: str) -> list[Broken]:
    """The broken ports that `--broken` names: `all` of them, `none`, or those with this part in their rule.

    Raises:
        ValueError: no rule has it.
    """
    found = [one for one in BROKEN if text == "all" or text in one.rule]
    if not found and text != "none":
        rules = "; ".join(one.rule for one in BROKEN)
        raise ValueError(f"--broken {text}: give all, none, or a part of one of these rules: {rules}")
    return found


def main(
    transactions_: Annotated[int, typer.Option("--transactions", help="Bursts for each width of the bus.")] = 100_000,
    buses: Annotated[list[int] | None, typer.Option("--bus", help="Bytes of the bus; all widths by default.")] = None,
    sizes: Annotated[list[int] | None, typer.Option("--word", help="Bytes of a word; 4 and 16 by default.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of ranges, stalls, latencies and resets.")] = 1,
    broken: Annotated[str, typer.Option(help="`all` broken ports, `none`, or a part of the name of a rule.")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="Print counts and broken rules as JSON.")] = False,
) -> None:
    """Run transactions and broken ports; the exit code is 1 if a byte or a rule is wrong, or a broken port is not seen.

    A burst is a transaction. Pauses, latencies of 1 to 400 cycles, and resets are drawn anew for each few ranges.
    """
    try:
        ports, chosen = chosen_ports(broken), sizes or list(WORDS)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    rows: list[dict[str, Any]] = [{"bus": bus, "word": size, "counts": counts, "violations": violations}
            for bus in buses or BUSES for size in chosen
            for counts, violations in [transactions(bus, size, -(-transactions_ // len(chosen)), seed)]]
    if as_json:
        print(json.dumps([row | {"counts": asdict(row["counts"])} for row in rows]))
        return
    console = Console(width=WIDTH)
    right = _print_transactions(console, rows)
    named = _print_broken(console, ports)
    raise typer.Exit(not (named and right))


def _print_transactions(console: Console, rows: list[dict]) -> bool:
    """Print a row for each port; whether all is right."""
    table = Table("bus, bytes", "word, bytes", "reads", "writes", "bytes read", "bytes written", "resets", "violations",
                  "differing bytes", "wrong errors", "hangs", title="Random transactions", box=None)
    right = True
    for row in rows:
        counts, violations = row["counts"], row["violations"].total()
        wrong = (violations, counts.differing, counts.errors, counts.hangs)
        right &= not any(wrong)
        table.add_row(*(f"{value:,}" for value in (
            row["bus"], row["word"], counts.reads, counts.writes, counts.bytes_read, counts.bytes_written,
            counts.resets, *wrong)))
    console.print(table)
    for row in rows:
        for name, count in row["violations"].items():
            console.print(f"bus of {row['bus']} bytes: {name}, {count} times")
    return right


def _print_broken(console: Console, chosen: list[Broken]) -> bool:
    """Print a row for each broken port; whether the monitor has named all rules."""
    table = Table("file", "broken line", "rule", "named", title="Broken ports", box=None)
    named = 0
    with tempfile.TemporaryDirectory(prefix="port-") as folder:
        for one in chosen:
            found = broken_rules(one, Path(folder) / "tree")
            named += one.rule in found
            table.add_row(one.file, one.new.splitlines()[-1].strip(), one.rule,
                          f"{found[one.rule]} times" if one.rule in found else f"NO: {dict(found)}")
    if chosen:
        console.print(table)
        console.print(f"{len(chosen)} broken ports, {named} named by the monitor")
    return named == len(chosen)


if __name__ == "__main__":
    typer.run(main)
