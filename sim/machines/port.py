"""The port of Dram alone as a Verilated library, between random ranges and a memory with a monitor, all in C++."""

import ctypes
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path

from concord.hw.dram.dram_port import DramPort
from concord.hw.verilog import verilog
from concord.sim.machines.build import build
from concord.spec.isa.instructions import ADDRESS_BITS
from concord.spec.machine.config import Config

SHIM = Path(__file__).with_name("port_shim.cpp")
_POINTER, _WORD, _LONG = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64


@dataclass(frozen=True, kw_only=True)
class PortCounts:
    """What a port has done.

    Attributes:
        cycles:        Clock cycles.
        ranges:        Ranges of words that it was given.
        reads:         Bursts that read.
        writes:        Bursts that write.
        bytes_read:    Bytes that it has given, all of which were compared.
        bytes_written: Bytes that the memory has taken.
        differing:     Bytes that were wrong, of words and of the memory. An answer too many counts as one.
        errors:        Errors that it has reported, none of which is right.
        resets:        Resets, each of them at a random moment.
        hangs:         1 if it has stopped before all words had come and all answers.
    """

    cycles: int
    ranges: int
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    differing: int
    errors: int
    resets: int
    hangs: int


class Port:
    """A port under random ranges, stalls, latencies and resets.

    Args:
        config: A machine with Dram.
        seed:   Seed of all that is random.
    """

    def __init__(self, config: Config, seed: int = 1):
        text = verilog(DramPort(config), "dram_port")
        defines = [f"-DDRAM={config.dram_bus}", f"-DWORD={2 * config.mfu_lanes}", f"-DTAG={ADDRESS_BITS}"]
        self._library = ctypes.CDLL(str(build(text, "dram_port", shim=SHIM, defines=defines) / "dram_port.so"))
        for name, result, arguments in (("create", _POINTER, (_LONG,)), ("destroy", None, (_POINTER,)),
                                        ("run", None, (_POINTER, _LONG, _POINTER)),
                                        ("broken", _LONG, (_POINTER, _WORD)), ("rule", ctypes.c_char_p, (_WORD,))):
            function = getattr(self._library, f"port_{name}")
            function.restype, function.argtypes = result, arguments
        self._bench = self._library.port_create(seed)

    def run(self, bursts: int) -> PortCounts:
        """Run until the memory has taken that many bursts more, or the port hangs; counts of all runs."""
        names = [field.name for field in fields(PortCounts)]
        counts = (_LONG * len(names))()
        self._library.port_run(self._bench, bursts, ctypes.addressof(counts))
        return PortCounts(**dict(zip(names, counts, strict=True)))

    def rules(self) -> list[str]:
        """The names of all rules that the monitor holds."""
        names, number = [], 0
        while name := self._library.port_rule(number):
            names.append(name.decode())
            number += 1
        return names

    def violations(self) -> Counter[str]:
        """How often each rule was broken, without those that were not."""
        found = {name: self._library.port_broken(self._bench, rule) for rule, name in enumerate(self.rules())}
        return Counter({name: count for name, count in found.items() if count})

    def close(self) -> None:
        """End the simulation."""
        if self._bench is not None:
            self._library.port_destroy(self._bench)
            self._bench = None

    def __enter__(self) -> "Port":
        return self

    def __exit__(self, *_) -> None:
        self.close()
