"""A link from `sim.machines.host` to a cocotb simulation in another process: each call is one line of JSON."""

import json
import shutil
import socket
import tempfile
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import partialmethod
from pathlib import Path

from amaranth.lib.wiring import Component
from concord.hw.cascade import Cascade
from concord.hw.verilog import verilog
from concord.sim.drivers.configs import to_text
from concord.sim.machines.build import build, simulate
from concord.sim.machines.library import build_library, nnp_verilog
from concord.spec.machine.config import Config

START = 60  #: Seconds within which a simulation must begin.


def build_simulation(config: Config, *, dut: Component | None = None, waves: bool = False) -> Path:
    """Verilate the NNP, or `dut` if given, for cocotb, and return the folder of the build."""
    text = nnp_verilog(config) if dut is None else verilog(dut, "nnp")
    return build_library(text, config, trace=waves).parent


def build_cascade(configs: Sequence[Config]) -> Path:
    """Verilate a pipeline of machines for cocotb, with the top module `cascade`, and return the folder of the build."""
    row = Cascade(configs)
    texts = [verilog(row, "cascade"), *(nnp_verilog(config, name) for config, name in row.modules.items())]
    return build("\n".join(texts), "cascade")


class Simulation:
    """One cocotb simulation, of one machine or of a pipeline.

    Args:
        built:   Folder of the build.
        configs: Configurations of the machines.
        seed, gap, stall, trace: As in `sim.machines.library.Library`.
    """

    def __init__(self, built: Path, configs: Sequence[Config], *, seed: int = 0, gap: float = 0.0, stall: float = 0.0,
                 trace: Path | None = None):
        self._trace, self._failure, self._name = trace, None, "nnp" if len(configs) == 1 else "cascade"
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            address = str(Path(folder) / "link")
            listener.bind(address)
            listener.listen(1)
            env = {"LINK": address, "CONFIGS": json.dumps([to_text(config) for config in configs]),
                   "GAP": str(gap), "STALL": str(stall)}
            self._thread = threading.Thread(target=self._simulate, args=(built, seed, env), daemon=True)
            self._thread.start()
            self._socket = self._accept(listener)
        self._file = self._socket.makefile("rw")
        # If nobody calls `close`, the simulation ends with this object.
        self._hang_up = weakref.finalize(self, _hang_up, self._socket, self._file)

    def _simulate(self, built: Path, seed: int, env: dict[str, str]) -> None:
        """Run the simulation to its end. Its folder is kept only on failure, when the message names it."""
        where = Path(tempfile.mkdtemp(prefix="concord-"))
        try:
            simulate(built, self._name, "concord.sim.machines.cocotb_server", seed=seed, waves=self._trace is not None,
                     env=env, where=where)
        except AssertionError as error:
            self._failure = error
            return
        if self._trace is not None:
            shutil.move(where / "dump.vcd", self._trace)
        shutil.rmtree(where)

    def _accept(self, listener: socket.socket) -> socket.socket:
        listener.settimeout(0.5)
        for _ in range(2 * START):
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self._failure:
                    raise self._failure from None
        raise TimeoutError(f"the simulation has not begun within {START} seconds")

    def call(self, number: int, name: str, *arguments):
        """Call a method of the bus of a machine."""
        self._file.write(json.dumps([number, name, arguments]) + "\n")
        self._file.flush()
        answer = self._file.readline()
        if not answer:
            self._thread.join()
            self._tell()
            raise AssertionError("the simulation has ended")
        return json.loads(answer)

    def _tell(self) -> None:
        """Raise the failure of the simulation, if any, once."""
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure

    def close(self) -> None:
        """End the simulation; a waveform is complete after this."""
        self._hang_up()
        self._thread.join()
        self._tell()


class CocotbClient:
    """A machine in a cocotb simulation. Its arguments and methods are those of `sim.machines.library.Library`.

    Args:
        simulation: Simulation of several machines, of which this is number `number`; None for a simulation of its own.
    """

    def __init__(self, config: Config, *, dut: Component | None = None, simulation: Simulation | None = None,
                 number: int = 0, trace: Path | None = None, **options):
        self.config, self._number = config, number
        self._simulation = simulation or Simulation(
            build_simulation(config, dut=dut, waves=trace is not None), [config], trace=trace, **options)

    def _call(self, name: str, *arguments):
        return self._simulation.call(self._number, name, *arguments)

    def send(self, data: bytes) -> None:
        """Queue one message of whole beats."""
        if not data or len(data) % self.config.message_bytes:
            raise ValueError(f"{len(data)} bytes are not whole beats of {self.config.message_bytes} bytes")
        self._call("send", data.hex())

    def receive(self) -> list[bytes]:
        """The complete messages that have come out since the last call."""
        return [bytes.fromhex(message) for message in self._call("receive")]

    read = partialmethod(_call, "read")
    write = partialmethod(_call, "write")
    step = partialmethod(_call, "step")
    settle = partialmethod(_call, "settle")
    run = partialmethod(_call, "run")

    @property
    def queued(self) -> int:
        """Number of messages that the machine has not taken completely."""
        return self._call("queued")

    @property
    def cycles(self) -> int:
        """Clock cycles since reset."""
        return self._call("cycles")

    def close(self) -> None:
        """End the simulation; a waveform is complete after this."""
        self._simulation.close()


def linked(configs: Sequence[Config], **options) -> list[CocotbClient]:
    """A pipeline of machines in one simulation, see `sim.machines.library.linked`."""
    simulation = Simulation(build_cascade(configs), configs, **options)
    return [CocotbClient(config, simulation=simulation, number=k) for k, config in enumerate(configs)]


def _hang_up(link: socket.socket, file) -> None:
    with suppress(OSError):  # The simulation may have gone already.
        link.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        file.close()
    link.close()
