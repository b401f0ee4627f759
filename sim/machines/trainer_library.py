"""The Verilated trainer as a shared library that runs programs to their end, in the shape of golden's `Trainer`."""

import ctypes
from collections.abc import Sequence
from inspect import getsource
from pathlib import Path

import numpy as np
from concord.hw.verilog import verilog
from concord.sim.machines.build import link_models, model
from concord.sim.machines.library import Access, Fault, Memory, cached_verilog, check_faults, reset_in_register
from concord.sim.machines.watched_trainer import WATCHED, WatchedTrainer
from concord.spec.host.registers import Control
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister

SHIM = Path(__file__).with_name("trainer_shim.cpp")
BASE = 1 << 20  #: Byte address of word 0 of server memory.

MEMORY = Memory()  #: How server memory answers, where nothing else is asked for.

_POINTER, _WORD, _LONG = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
_FUNCTIONS = {  # Type of the result, and of the arguments after the handle of the chip.
    "create": (_POINTER, ()),
    "destroy": (None, ()),
    "trace": (ctypes.c_int, (ctypes.c_char_p, _LONG)),
    "dram": (None, (_LONG, _WORD, _WORD)),
    "dram_fault": (None, (_LONG, _WORD, _WORD)),
    "dram_move": (None, (_WORD, _POINTER, _LONG, _WORD)),
    "dram_bytes": (_LONG, (_WORD,)),
    "dram_bursts": (_LONG, ()),
    "dram_rule": (ctypes.c_char_p, ()),
    "read": (_WORD, (_WORD,)),
    "write": (None, (_WORD, _WORD)),
    "load": (None, (_POINTER, _LONG)),
    "start": (None, (_WORD, _WORD)),
    "run": (ctypes.c_int, (_LONG,)),
    "step": (None, (_LONG,)),
    "cycles": (_LONG, ()),
    "running": (_LONG, ()),
    "busy": (_LONG, (_WORD,)),
    "faults": (ctypes.c_int, ()),
}


def library(config: TrainerConfig, *, trace: bool = False) -> Path:
    """The shared library of a trainer."""
    text = cached_verilog(f"{getsource(WatchedTrainer)} {config}", lambda: verilog(WatchedTrainer(config), "nnp"))
    made = model(reset_in_register(text), "nnp", "Vtop", waves=trace)
    defines = [f"-DDRAM={LANES}", f"-DWATCHED={len(WATCHED)}"]
    return link_models([made], SHIM, {}, waves=trace, defines=defines)


class TrainerLibrary:
    """One Verilated trainer in this process, with server memory that is written to it ahead of a run, and read behind.

    Args:
        config:     Sizes.
        server:     Server memory from DRAM_BASE to LIMIT, uint8[words, 16], contiguous.
        seed:       Seed of the memory's stalls.
        memory:     How the memory answers.
        trace:      File to write a waveform (VCD) to.
        trace_from: Clock cycle at which the waveform begins.

    Attributes:
        server: Server memory; it may be exchanged between two runs.
    """

    def __init__(
        self,
        config: TrainerConfig,
        server: np.ndarray,
        *,
        seed: int = 0,
        memory: Memory = MEMORY,
        trace: Path | None = None,
        trace_from: int = 0,
    ):
        self.config, self.server = config, server
        self._library = ctypes.CDLL(str(library(config, trace=trace is not None)))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._library, f"nnp_{name}")
            function.restype = result
            function.argtypes = arguments if name == "create" else (_POINTER, *arguments)
        self._chip = self._library.nnp_create()
        if trace is not None:
            self._call("trace", str(trace).encode(), trace_from)
        self._call("dram", seed, memory.latency, round(memory.stall * 65536))
        self.fail(memory.fault_at, memory.fault)
        self.write_register(TrainerRegister.DRAM_BASE, BASE)

    def _call(self, name: str, *arguments):
        return getattr(self._library, f"nnp_{name}")(self._chip, *arguments)

    def load(self, program: Sequence[int]):
        """Take a program, with the errors of golden's."""
        if not 0 < len(program) <= self.config.instructions:
            raise ValueError(
                f"the program has {len(program)} words, and the instruction buffer holds {self.config.instructions}"
            )
        words = np.frombuffer(b"".join(word.to_bytes(LANES, "little") for word in program), np.uint32)
        self._call("load", words.ctypes.data, len(program))
        check_faults(self._call)

    def run(self, first: int = 0, second: int = 0, timeout: int = 1_000_000_000) -> TrainerError:
        """Execute the program.

        Args:
            first, second: What R0 and R1 begin with: words of input and of output, counted from DRAM_BASE.
            timeout:       Most clock cycles.

        Raises:
            RuntimeError:   it has not ended by then.
            AssertionError: the machine broke a rule of its ports.
        """
        self.start(first, second)
        if not self.go_on(timeout):
            raise RuntimeError(f"the program of a trainer has not ended within {timeout:,} cycles")
        return self.error

    def start(self, first: int = 0, second: int = 0):
        """Write server memory, and start the program; see `run`."""
        self.write_register(TrainerRegister.LIMIT, len(self.server))
        self._move(into=True)
        self._call("start", first % (1 << 32), second % (1 << 32))

    def go_on(self, most: int) -> bool:
        """Let at most about `most` cycles pass, until the program has ended, and read server memory; whether it has."""
        ended = self._call("run", most)
        self._move(into=False)
        check_faults(self._call)
        return bool(ended)

    def _move(self, *, into: bool):
        self._call("dram_move", BASE, self.server.ctypes.data, self.server.nbytes, into)

    def reset(self):
        """Clear bases, exponents, the error and the sequencer; memories and rates stay."""
        self.write_register(TrainerRegister.CONTROL, Control.RESET)

    def read_register(self, address: int) -> int:
        """Read a register."""
        return self._call("read", address)

    def write_register(self, register: TrainerRegister, value: int):
        """Write a register."""
        self._call("write", register, value)
        check_faults(self._call)

    @property
    def error(self) -> TrainerError:
        """Why the last program stopped."""
        return TrainerError(self.read_register(TrainerRegister.ERROR))

    @property
    def address(self) -> int:
        """Address of the instruction at which it stopped."""
        return self.read_register(TrainerRegister.ERROR_ADDRESS)

    @property
    def repeats(self) -> int:
        """How often `repeat` went back, in all programs."""
        return self.read_register(TrainerRegister.COUNTERS + 4 * TrainerCounter.REPEATS)

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up."""
        return self._call("cycles")

    @property
    def running(self) -> int:
        """Clock cycles in which a program was running."""
        return self._call("running")

    @property
    def busy(self) -> dict[str, int]:
        """Clock cycles in which each engine had a job, and in which the tensor engine took a vector ("vectors")."""
        return {name: self._call("busy", number) for number, name in enumerate(WATCHED)}

    def moved(self, *, written: bool) -> int:
        """Number of bytes that the memory has given, or taken, since power-up."""
        return self._call("dram_bytes", written)

    @property
    def bursts(self) -> int:
        """Number of bursts since power-up."""
        return self._call("dram_bursts")

    def fail(self, number: int, fault: Fault, access: Access = Access.ANY):
        """Let the response to burst `number` of this access, counted from power-up, have the `fault`."""
        self._call("dram_fault", number, fault, access)

    def step(self, cycles: int):
        """Let `cycles` cycles pass."""
        self._call("step", cycles)
        check_faults(self._call)

    def close(self):
        """End the simulation; a waveform is complete after this."""
        if self._chip is not None:
            self._call("destroy")
            self._chip = None
