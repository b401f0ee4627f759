"""A board with an ECP5, as a TOML file describes it: chip, clock, pins, and an SDRAM if it has one."""

import tomllib
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path

from concord.hw.boards.sdram_pins import SdramPins

DEVICES = {"12k": 24_288, "25k": 24_288, "45k": 43_848, "85k": 83_640}  #: Lookup tables, by nextpnr's names of chips.
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Pins of the chip.

    Attributes:
        clock:  The oscillator.
        rx, tx: The serial port: to the machine, and from it.
        lights: Up to eight lights, the first one first.
        reset:  A button that is high while it is pressed; empty for none.
        high:   Pins that are held high.
    """

    clock: str
    rx: str
    tx: str
    lights: tuple[str, ...] = ()
    reset: str = ""
    high: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A board.

    Attributes:
        name:    Its name, which is that of its file.
        device:  Name of the chip for nextpnr-ecp5.
        package: Package of the chip.
        speed:   Speed grade of the chip, 6, 7 or 8.
        clock:   MHz of the oscillator.
        baud:    Bits per second of the serial port.
        pins:    Pins of the chip.
        loader:  Name of the board in openFPGALoader; empty if it has none.
        sdram:   Its SDRAM; None if it has none.
    """

    name: str
    device: str
    package: str
    speed: int
    clock: float
    baud: int
    pins: Pins
    loader: str = ""
    sdram: SdramPins | None = None

    @property
    def chip(self) -> list[str]:
        """Options of nextpnr-ecp5 for the chip."""
        return [f"--{self.device}", "--package", self.package, "--speed", str(self.speed)]

    @property
    def memory(self) -> int:
        """Bytes of its SDRAM; 0 if it has none."""
        return self.sdram.described.bytes if self.sdram else 0

    def all_constraints(self, dram: bool) -> str:
        """Sites of all ports of `hw.board_top.BoardTop`, in Lattice's format, for machines with or without Dram."""
        return self.constraints + (self.sdram.constraints if self.sdram and dram else "")

    @property
    def constraints(self) -> str:
        """Sites of the ports of `hw.board_top.BoardTop` but those of the SDRAM, in Lattice's format."""
        pins = self.pins
        ports = {"clock": pins.clock, "rx": pins.rx, "tx": pins.tx}
        for name, several in ("lights", pins.lights), ("high", pins.high):
            ports |= {f"{name}[{k}]" if len(several) > 1 else name: pin for k, pin in enumerate(several)}
        ports |= {"button": pins.reset} if pins.reset else {}
        lines = [f'FREQUENCY PORT "clock" {self.clock:g} MHZ;']
        for port, pin in ports.items():
            pull = " PULLMODE=DOWN" if port == "button" else ""
            lines += [f'LOCATE COMP "{port}" SITE "{pin}";', f'IOBUF PORT "{port}" IO_TYPE=LVCMOS33{pull};']
        return "\n".join(lines) + "\n"


def names() -> list[str]:
    """Names of the boards that come with Concord."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_board(name: str) -> Board:
    """The board of a name or of a TOML file.

    Raises:
        ValueError: there is no such board, or its file does not describe one.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        raise ValueError(f"there is no board {name!r}: choose one of {', '.join(names())}, or copy "
                         f"{FOLDER / 'ulx3s.toml'} to a file of your own and name that")
    try:
        values = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML file: {error}") from None
    pins, sdram = values.pop("pins", {}), values.pop("sdram", None)
    _check(path, "", values, Board, "name", "pins", "sdram")
    _check(path, "pins.", pins, Pins)
    if sdram is not None:
        _check(path, "sdram.", sdram, SdramPins)
    board = Board(name=path.stem, pins=Pins(**_tuples(pins)), sdram=sdram and SdramPins(**_tuples(sdram)), **values)
    _check_values(path, board)
    return board


def _tuples(values: dict) -> dict:
    """The values of a table, with tuples for lists."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def _check(path: Path, prefix: str, given: dict, kind: type, *others: str) -> None:
    """Refuse names that a table does not take, missing ones, and values of another type."""
    known = {field.name: field for field in fields(kind) if field.name not in others}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{path}: {prefix}{name} is unknown; write one of {', '.join(known)}")
        wanted = known[name].type
        texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not (texts if wanted == tuple[str, ...] else isinstance(value, (int, float) if wanted is float else wanted)):
            raise ValueError(f"{path}: {prefix}{name} is {value!r}, and must be "
                             f"{'a list of pins' if wanted == tuple[str, ...] else f'of type {wanted.__name__}'}")
    for name, field in known.items():
        if name not in given and field.default is MISSING:
            raise ValueError(f"{path}: {prefix}{name} is missing; {FOLDER / 'ulx3s.toml'} is an example")


def _check_values(path: Path, board: Board) -> None:
    if board.device not in DEVICES:
        raise ValueError(f"{path}: device is {board.device!r}, and must be one of {', '.join(DEVICES)}")
    if board.speed not in (6, 7, 8):
        raise ValueError(f"{path}: speed is {board.speed}, and must be 6, 7 or 8")
    if not 8 <= board.clock <= 400:
        raise ValueError(f"{path}: clock is {board.clock:g} MHz, and must be from 8 to 400")
    if len(board.pins.lights) > 8:
        raise ValueError(f"{path}: pins.lights has {len(board.pins.lights)} pins, and may have 8")
    if not 9_600 <= board.baud <= 12_000_000:
        raise ValueError(f"{path}: baud is {board.baud}, and must be from 9,600 to 12,000,000")
    if board.sdram and board.sdram.wrong():
        raise ValueError(f"{path}: sdram.{board.sdram.wrong()}")
    used = [board.pins.clock, board.pins.rx, board.pins.tx, *board.pins.lights, *board.pins.high,
            *filter(None, [board.pins.reset]), *(board.sdram.ports.values() if board.sdram else ())]
    double = sorted({pin for pin in used if used.count(pin) > 1})
    if double:
        raise ValueError(f"{path}: pin {double[0]} has several uses")


def text(board: Board) -> str:
    """What a board is, for digests."""
    return repr(asdict(board))
