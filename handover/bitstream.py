"""Bitstreams of a machine on a board: one netlist, placed and routed with several seeds."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

from concord.handover import floorplan
from concord.handover import global_resets as resets
from concord.handover import springs as block_springs
from concord.handover.floorplan import fix_blocks
from concord.handover.global_resets import global_resets
from concord.handover.place import (
    ECPPACK,
    NEXTPNR,
    PLACERS,
    ROUTERS,
    Placed,
    nextpnr_version,
    pack,
    packed,
    place,
    tool,
)
from concord.hw.board_top import BoardTop, clock_on, modules
from concord.hw.boards.board import DEVICES, Board, find_board
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.netlist import Mapping, synthesise
from concord.hw.serial_nnp import require_memory
from concord.hw.verilog import verilog
from concord.lib.processes import workers
from concord.spec.machine.clocks import recorded
from concord.spec.machine.config import Config

LOOK = 30  #: Seconds between two looks at the logs of seeds under way.


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A machine on a board, as a folder of files.

    Attributes:
        folder:      Folder of its netlist, and of what each seed gave; its name holds a hash of the design.
        board:       The board.
        text:        Verilog.
        mhz:         Clock in MHz.
        placer:      One of `PLACERS`.
        router:      One of `ROUTERS`.
        constraints: Sites of its ports, in Lattice's format.
        springs:     Whether all block RAMs and multipliers get sites, and not those of the matrix alone.
        timed:       Whether paths shall be fast; otherwise wires shall be short.
    """

    folder: Path
    board: Board
    text: str
    mhz: float
    placer: str = PLACERS[0]
    router: str = ROUTERS[0]
    constraints: str = ""
    springs: bool = False
    timed: bool = True

    def file(self, seed: int, kind: str) -> Path:
        """A file of what a seed gave."""
        return self.folder / f"{self.placer}-{self.router}{'' if self.timed else '-untimed'}-{seed}.{kind}"


def design(config: Config, board: Board, clock: float, folder: Path, placer: str = PLACERS[0],
           router: str = ROUTERS[0], *, springs: bool = False, timed: bool = True) -> Design:
    """The design of a machine on a board, for a clock of at most `clock` MHz, below a folder.

    Raises:
        ValueError: the machine or the clock cannot be made, or there is no such placer or router.
        RuntimeError: nextpnr or ecppack is not installed.
    """
    for kind, given, known in ("placer", placer, PLACERS), ("router", router, ROUTERS):
        if given not in known:
            raise ValueError(f"there is no {kind} {given!r}: choose one of {', '.join(known)}")
    for name in NEXTPNR, ECPPACK:
        tool(name)
    config.require_hardware()
    require_memory(config, board.memory)
    made = clock_on(board, clock, bool(config.dram_words))
    text = verilog(BoardTop(config, board, made), "top", Ecp5()) + modules(config, board, made)
    constraints = board.all_constraints(bool(config.dram_words))
    files = floorplan.__file__, resets.__file__, *[block_springs.__file__] * springs
    passes = [Path(file).read_text() for file in files]
    decides = text, Mapping().recipe(), passes, board.chip, constraints
    name = hashlib.sha256(repr(decides).encode()).hexdigest()[:12]
    return Design(folder=folder / name, board=board, text=text, mhz=made.mhz, placer=placer, router=router,
                  constraints=constraints, springs=springs, timed=timed)


def netlist(made: Design, say: Callable[[str], None] = lambda _: None) -> Path:
    """The netlist of a design, as it was kept, or made now; says now and then what Yosys is doing.

    Raises:
        RuntimeError: Yosys fails.
    """
    kept = made.folder / "top.json"
    if not kept.exists():
        made.folder.mkdir(parents=True, exist_ok=True)
        work = made.folder / f"synthesis-{os.getpid()}"
        work.mkdir()
        try:
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(synthesise, made.text, work)
                while not wait([running], LOOK).done:
                    say(phase(work / "yosys.log", "Executing "))
                found = running.result()
            whole = json.loads(found.read_text())
            fix_blocks(whole["modules"]["top"], made.board.device)
            if made.springs:
                block_springs.fix_others(whole["modules"]["top"], made.board.device)
            global_resets(whole["modules"]["top"])
            found.write_text(json.dumps(whole))
            found.replace(kept)
        finally:
            shutil.rmtree(work)
    (made.folder / "top.lpf").write_text(made.constraints)
    return kept


def crowding(made: Design) -> str:
    """A sentence where a design fills more of its chip than each machine whose clock was measured; else an empty one.

    Raises:
        RuntimeError: nextpnr fails: the machine does not fit, for one.
    """
    kept = made.folder / "packed.json"
    if not kept.exists():
        kept.write_text(json.dumps(packed(made.folder / "top.json", [*made.board.chip, "--lpf", "top.lpf"])))
    used, there = json.loads(kept.read_text())["TRELLIS_COMB"], DEVICES[made.board.device]
    routed = {name: row.cells / DEVICES[find_board(row.board).device] for name, row in recorded().items()}
    most = max(routed, key=routed.__getitem__, default="")
    if not most or used / there <= routed[most]:
        return ""
    return (f"the machine fills {used / there:.0%} of the chip, {used:,} of {there:,} COMB, and the fullest one that "
            f"was routed, {most}, {routed[most]:.0%}: the router may take hours, or never end")


def placed(made: Design, seed: int) -> Placed:
    """What a seed gives, as this version of nextpnr left it, or placed now.

    Raises:
        RuntimeError: nextpnr fails: the machine does not fit, for one.
    """
    path = made.file(seed, "json")
    if path.exists():
        kept = Placed(**json.loads(path.read_text()))
        if kept.tool == nextpnr_version():
            return kept
    done = place(made.folder / "top.json", [*made.board.chip, "--lpf", "top.lpf"], target=made.mhz, seed=seed,
                 name=path.stem, placer=made.placer, router=made.router, timed=made.timed)
    path.write_text(json.dumps(asdict(done)))
    return done


def all_placed(
    made: Design, seeds: list[int], processes: int, say: Callable[[str], None]
) -> Iterator[tuple[int, Placed]]:
    """Place seeds side by side; gives each when it ends, and says now and then what those under way are doing.

    Raises:
        RuntimeError: nextpnr fails.
    """
    begin = time.monotonic()
    with workers(processes) as pool:
        running = {pool.submit(placed, made, seed): seed for seed in seeds}
        while running:
            done, _ = wait(running, LOOK, FIRST_COMPLETED)
            for one in done:
                yield running.pop(one), one.result()
            for seed in sorted(running.values()):
                say(f"seed {seed}, {time.monotonic() - begin:.0f} s: {phase(made.file(seed, 'log'))}")


def phase(log: Path, mark: str = "Info:") -> str:
    """What a tool is doing, by the last line of its log with a mark."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line.partition(mark)[2].strip() for line in reversed(lines) if mark in line), "waits")


def write_bitstream(made: Design, rows: dict[int, Placed], path: Path) -> tuple[int, str]:
    """Write the bitstream of the fastest seed. Returns that seed, and the bitstream's SHA-256.

    Raises:
        ValueError: no seed reaches the machine's clock.
        RuntimeError: ecppack fails.
    """
    best = max(rows, key=lambda seed: rows[seed].clock)
    if rows[best].clock < made.mhz:
        raise ValueError(f"no bitstream is written: the fastest seed, {best}, reaches {rows[best].clock:.1f} MHz of "
                         f"{made.mhz:g}; try --clock {rows[best].clock * 0.95:.0f}, or other seeds")
    packed = made.file(best, "bit")
    pack(made.file(best, "config"), packed)
    data = packed.read_bytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return best, hashlib.sha256(data).hexdigest()
