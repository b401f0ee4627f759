"""The serial link: byte stuffing, frames, and machines at the end of lines that are right, and of others."""

import threading
import time

import numpy as np
import pytest
from concord.golden.host.messages import input_message, program_message, read_message, words_of, write_message
from concord.golden.machine import Machine
from concord.golden.serial_port import GoldenPort
from concord.sim.machines.host import HardwareMachine, MachineTimeout, machine
from concord.sim.machines.kinds import MachineKind
from concord.sim.machines.line import WiredBoard
from concord.sim.machines.line_faults import Faults
from concord.sim.machines.pseudo_terminal import PseudoTerminal
from concord.sim.machines.self_test import self_test
from concord.sim.machines.serial_link import HostLink
from concord.spec.host import serial
from concord.spec.host.messages import unpack
from concord.spec.host.registers import Register, Status
from concord.spec.host.serial import Frame, FrameKind, parts, stuff, unstuff
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.command_line import nnp
from hypothesis import given
from hypothesis import strategies as st

CONFIG = preset("tiny")
COPY = "s_wr Rows, 4\nv_rd NetQ\nv_wr NetQ\nend_chain\nend\n"


@given(st.binary(max_size=serial.RUN))
def test_stuffing(data):
    assert 0 not in stuff(data)
    assert unstuff(stuff(data)) == data


def test_stuffing_of_the_paper():
    assert stuff(bytes.fromhex("45 00 00 2c 4c 79 00 00 40 06 4f 37")) \
        == bytes.fromhex("02 45 01 04 2c 4c 79 01 05 40 06 4f 37")


@pytest.mark.parametrize("encoded", [b"\x03\x01", b"\x00", b"\x03\x01\x00", b"\x02\x01\x05"])
def test_damaged_stuffing(encoded):
    with pytest.raises(ValueError, match="damaged"):
        unstuff(encoded)


@given(st.integers(0, 255), st.sampled_from(FrameKind), st.booleans(), st.binary(max_size=serial.BODY))
def test_frames(number, kind, last, body):
    frame = Frame(number=number, kind=kind, last=last, body=body)
    data = serial.pack(frame)
    assert data.index(0) == len(data) - 1 <= 255
    assert serial.unpack(data[:-1]) == frame


def test_every_damaged_byte_is_noticed():
    data = serial.pack(Frame(number=3, kind=FrameKind.WRITE, body=bytes(range(7))))[:-1]
    for k in range(len(data)):
        for flip in (1, 0x80):
            with pytest.raises(ValueError, match="frame"):
                serial.unpack(data[:k] + bytes([data[k] ^ flip]) + data[k + 1:])


@given(st.integers(1, 1000), st.integers(0, 300))
def test_parts(size, number):
    message = bytes(k % 251 for k in range(size))
    made = parts(message, number)
    assert b"".join(part.body for part in made) == message
    assert [part.last for part in made] == [False] * (len(made) - 1) + [True]
    assert made[-1].number == (number + len(made) - 1) % 256


class Wire:
    """A line to a golden machine, whose time is the number of reads."""

    def __init__(self, faults=(bytes, bytes), config=CONFIG):
        self.port, self.faults, self._came, self._time = GoldenPort(Machine(config)), faults, b"", 0
        self.dead, self.hold = False, 0

    def write(self, data):
        if not self.dead:
            self._came += self.faults[1](self.port.take(self.faults[0](data)))

    def read(self, seconds):
        self._time += 1
        if self.hold:
            self.hold -= 1
            return b""
        came, self._came = self._came, b""
        return came

    def now(self):
        return self._time / 1000

    def close(self):
        pass


def board(faults=(bytes, bytes)):
    """The machine in gates; a bit of its line has four clock cycles."""
    return WiredBoard(CONFIG, clock=12.0, faults=faults)


LINES = pytest.mark.parametrize("line", [Wire, board], ids=["golden", "gates"])


def echo(link, rng, count=5):
    """Run messages of random sizes through a machine, and compare what comes back."""
    with HardwareMachine(link) as host:
        for _ in range(count):
            first = int(rng.integers(0, 32))
            words = rng.integers(0, 1 << 16, (int(rng.integers(1, 32)), CONFIG.mfu_lanes)).astype(np.uint16)
            host.send(write_message(CONFIG, Mem.INITIAL_VRF, words, first),
                      read_message(CONFIG, Mem.INITIAL_VRF, len(words), first))
            (answer,) = host.receive()
            assert (words_of(CONFIG, unpack(CONFIG, answer, to_machine=False)) == words).all()


@LINES
def test_a_program(line):
    """A program, its input in two pieces, its output and registers travel over the link."""
    with HardwareMachine(HostLink(CONFIG, line())) as host:
        words = np.arange(8, dtype=np.uint16).reshape(4, 2)
        host.send(program_message(CONFIG, assemble(COPY)))
        for _ in range(2):
            host.start()
            assert host.run() & Status.WAIT_INPUT
            host.send(input_message(CONFIG, words[:1]))
            assert host.run() & Status.WAIT_INPUT
            host.send(input_message(CONFIG, words[1:2]))
            assert host.run() == Status.DONE
            (answer,) = host.receive()
            assert (words_of(CONFIG, unpack(CONFIG, answer, to_machine=False)) == words[:2]).all()
        assert host.error() == (Error.NONE, 0)
        host.send(bytes(8))
        host.settle()
        assert host.error()[0] == Error.MESSAGE


@LINES
@pytest.mark.parametrize("kinds", ["lose", "double", "flip", "delay", "lose double flip delay"])
def test_a_line_that_is_wrong(line, kinds):
    rng = np.random.default_rng(1)
    faults = [Faults(seed=seed, rate=2e-3, kinds=kinds.split()) for seed in range(2)]
    link = HostLink(CONFIG, line(faults), patience=20)
    echo(link, rng, 40 if line is Wire else 12)
    assert sum(each.count for each in faults) > 5


@LINES
def test_a_clear_line_repeats_nothing(line):
    link = HostLink(CONFIG, line())
    echo(link, np.random.default_rng(2))
    assert (link.damaged, link.repeated) == (0, 0)


@pytest.mark.parametrize("drift", [0.98, 1.02])
def test_another_baud_rate(drift):
    echo(HostLink(CONFIG, WiredBoard(CONFIG, clock=12.0, drift=drift)), np.random.default_rng(3))


def test_throughput():
    """At least 85 % of what the line carries, in both directions."""
    line = board()
    link = HostLink(CONFIG, line)
    host, words = HardwareMachine(link), np.arange(120, dtype=np.uint16).reshape(60, 2)
    write, read = write_message(CONFIG, Mem.INITIAL_VRF, words), read_message(CONFIG, Mem.INITIAL_VRF, 60)
    begin = line.now()
    host.send(*[write] * 60)
    host.settle()
    inward = 60 * len(write) / (line.now() - begin) / 300_000
    begin = line.now()
    host.send(*[read] * 60)
    answers = host.receive()
    outward = sum(map(len, answers)) / (line.now() - begin) / 300_000
    host.close()
    assert len(answers) == 60
    assert inward > 0.85
    assert outward > 0.85


def test_messages_of_an_earlier_host_are_forgotten():
    """A host goes in the middle of a message; the next one begins as if nothing had been."""
    line = board()
    first = HostLink(CONFIG, line)
    first._line.write(serial.pack(Frame(number=0, kind=FrameKind.DATA, body=bytes(range(1, 100)))))
    line.read(0.01)
    echo(HostLink(CONFIG, line), np.random.default_rng(4), 2)


def test_lights():
    line = board()
    assert line.lights & 2 == 0
    HostLink(CONFIG, line)
    assert line.lights & 2


@LINES
def test_another_machine(line):
    with pytest.raises(ValueError, match="compile for this one"):
        HostLink(preset("wide"), line())


def test_nobody_answers():
    wire = Wire()
    wire.dead = True
    with pytest.raises(MachineTimeout, match="has not answered for 2 s: check its power"):
        HostLink(CONFIG, wire, patience=2)


def test_a_host_that_rests_for_longer_than_its_patience():
    wire = Wire()
    link = HostLink(CONFIG, wire, patience=2)
    wire._time += 3000
    wire.hold = 5  # the answer takes its time
    assert link.read(Register.DIGEST) == CONFIG.digest


@pytest.mark.parametrize("before", [1, 255, 256])
def test_a_machine_that_starts_anew_is_noticed(before):
    """As by a press of the board's button: it has forgotten the messages that it has had."""
    wire, words = Wire(), np.ones((4, CONFIG.mfu_lanes), np.uint16)
    host = HardwareMachine(HostLink(CONFIG, wire, patience=2))
    for _ in range(before):
        host.send(write_message(CONFIG, Mem.INITIAL_VRF, words))
        host.settle()
    wire.port = GoldenPort(Machine(CONFIG))
    host.send(write_message(CONFIG, Mem.INITIAL_VRF, 2 * words), read_message(CONFIG, Mem.INITIAL_VRF, 4))
    with pytest.raises(MachineTimeout, match="reset"):
        host.receive()


def test_answers_are_not_made_while_one_leaves():
    """Messages whose last frame comes while the answer to the one before it is on the line."""
    link = HostLink(CONFIG, board())
    for _ in range(5):
        link.send(write_message(CONFIG, Mem.INITIAL_VRF, np.ones((56, CONFIG.mfu_lanes), np.uint16)))
        link.settle(0, 0, 0)
    assert link.damaged == 0
    link.close()


def test_a_machine_that_answers_and_keeps_its_messages():
    wire = Wire()
    link = HostLink(CONFIG, wire, patience=2)
    answer = wire.port._answer

    def keep():
        wire.port._sent = len(wire.port._made)  # it believes that it has sent what it has not
        return answer()
    wire.port._answer = keep
    link.send(read_message(CONFIG, Mem.INITIAL_VRF, 1))
    with pytest.raises(MachineTimeout, match="answers, but no message has come through for 2 s"):
        link.settle(0, 0, 0)


def test_no_such_port():
    with pytest.raises(ValueError, match="serial port /dev/none cannot be opened"):
        machine("serial:/dev/none", CONFIG)


@pytest.mark.parametrize("name", ["serial:", "gold", ""])
def test_no_such_kind(name):
    with pytest.raises(ValueError, match="there is no machine"):
        MachineKind(name)


def test_a_pulled_cable():
    """The cable is pulled in the middle of the work, and put back."""
    with PseudoTerminal(Wire()) as terminal, machine(f"serial:{terminal.name}", CONFIG) as host:
        words = np.arange(120, dtype=np.uint16).reshape(60, 2)

        def pull():
            time.sleep(0.2)
            terminal.pulled = True
            time.sleep(0.5)
            terminal.pulled = False

        thread = threading.Thread(target=pull)
        thread.start()
        while thread.is_alive():
            host.send(write_message(CONFIG, Mem.INITIAL_VRF, words), read_message(CONFIG, Mem.INITIAL_VRF, 60))
            (answer,) = host.receive()
            assert (words_of(CONFIG, unpack(CONFIG, answer, to_machine=False)) == words).all()
        assert host.read_register(Register.DIGEST) == CONFIG.digest


@pytest.mark.parametrize("faults", [(bytes, bytes), (Faults(seed=5, rate=1e-3), Faults(seed=6, rate=1e-3))])
def test_the_self_test(faults):
    with HardwareMachine(HostLink(CONFIG, board(faults))) as host:
        found = self_test(host)
    assert found.bits == 0
    assert found.carried > 4000


def test_the_self_test_finds_a_wrong_memory():
    wire = Wire()
    with HardwareMachine(HostLink(CONFIG, wire)) as host:
        take = wire.port.machine.send

        def send(data):
            take(data)
            wire.port.machine.memory.vectors[Mem.INITIAL_VRF][3, 1] &= 0xFF
        wire.port.machine.send = send
        assert self_test(host).bits


def test_verify_and_doctor_over_a_terminal(tmp_path):
    """Commands drive the gates at a pseudo-terminal as they drive a board."""
    (tmp_path / "copy.asm").write_text(COPY)
    np.save(tmp_path / "in.npy", np.arange(8).reshape(2, 4) / 8)
    firmware, inputs = str(tmp_path / "copy.fw"), ["--inputs", str(tmp_path / "in.npy")]
    assert nnp("asm", str(tmp_path / "copy.asm"), "--preset", "tiny", "-o", firmware).exit_code == 0
    with PseudoTerminal(board()) as terminal:
        at = ["--machine", f"serial:{terminal.name}"]
        there, here = nnp("run", firmware, *inputs, *at), nnp("run", firmware, *inputs)
        assert (there.exit_code, there.stdout) == (0, here.stdout)
        tested = nnp("doctor", *at, "--preset", "tiny")
        assert tested.exit_code == 0, tested.output
        assert "0 differing bits" in tested.stdout
        other = nnp("doctor", *at, "--preset", "wide")
        assert other.exit_code == 2
        assert "compile for this one" in other.output
