"""The same host protocol on all three machines."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.host.messages import input_message, program_message, read_message, words_of, write_message
from concord.sim.machines.build import simulate
from concord.sim.machines.host import MachineTimeout, build, machine
from concord.sim.machines.kinds import SOON
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.programs import random_program
from concord.spec.host.messages import MessageKind, unpack
from concord.spec.host.registers import Counter, Register, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset

TINY = preset("tiny")
COPY = "v_rd NetQ\nv_wr NetQ\nend_chain\n"


def words(count, seed=0):
    return np.random.default_rng(seed).integers(0, 1 << 16, (count, TINY.mfu_lanes), dtype=np.uint16)


@pytest.fixture(params=SOON)
def nnp(request):
    with machine(request.param, TINY, seed=3, gap=0.3, stall=0.3) as made:
        yield made


def test_a_word_goes_in_and_out(nnp):
    """The smallest program gives the same result on every machine."""
    sent = words(2)
    nnp.send(program_message(TINY, assemble("s_wr Rows, 4\n" + COPY + "end")), input_message(TINY, sent))
    nnp.start()
    assert nnp.run() & Status.DONE
    assert nnp.error() == (Error.NONE, 0)
    (message,) = (unpack(TINY, data, to_machine=False) for data in nnp.receive())
    assert message.kind == MessageKind.OUTPUT
    assert (words_of(TINY, message) == sent).all()
    assert nnp.counter(Counter.READ_NET_Q) == nnp.counters()[Counter.WRITE_NET_Q] == 2
    nnp.clear()
    assert not any(nnp.events().values())
    assert nnp.read_register(Register.DIGEST) == TINY.digest


def test_memories_are_read_by_messages(nnp):
    image = words(20)
    nnp.send(write_message(TINY, Mem.MULTIPLY_VRF1, image, 5), read_message(TINY, Mem.MULTIPLY_VRF1, 20, 5))
    (reply,) = (unpack(TINY, data, to_machine=False) for data in nnp.receive())
    assert (reply.kind, reply.memory, reply.address) == (MessageKind.READ, Mem.MULTIPLY_VRF1, 5)
    assert (words_of(TINY, reply) == image).all()
    assert nnp.receive() == []


def test_results_for_a_peer_are_its_input_messages(nnp):
    """With PEER, the machine sends the very bytes that a host would send to that machine; a reset keeps the peer."""
    peer, sent = replace(TINY, matrix_tiles=64), words(2)
    nnp.write_register(Register.PEER, peer.digest)
    nnp.reset()
    nnp.send(program_message(TINY, assemble("s_wr Rows, 4\n" + COPY + "end")), input_message(TINY, sent))
    nnp.start()
    assert nnp.run() & Status.DONE
    assert nnp.receive() == [input_message(peer, sent)]
    assert nnp.read_register(Register.PEER) == peer.digest


def test_waiting_for_input_is_a_status(nnp):
    """`run` returns when a program waits for input, and the program continues when the host sends it."""
    nnp.send(program_message(TINY, assemble("s_wr Rows, 2\n" + COPY * 2 + "end")), input_message(TINY, words(1)))
    nnp.start()
    assert nnp.run() & (Status.RUNNING | Status.WAIT_INPUT) == Status.RUNNING | Status.WAIT_INPUT
    assert len(nnp.receive()) == 1
    nnp.send(input_message(TINY, words(1)))
    assert nnp.run() & Status.DONE
    assert len(nnp.receive()) == 1


def test_reset_stops_a_program(nnp):
    nnp.send(program_message(TINY, assemble(COPY + "end")))
    nnp.start()
    nnp.run()
    nnp.reset()
    assert not nnp.status() & (Status.RUNNING | Status.DONE)
    nnp.send(input_message(TINY, words(4)))
    nnp.start()
    assert nnp.run() & Status.DONE


def test_errors_have_an_address(nnp):
    nnp.send(program_message(TINY, assemble("s_wr Rows, 0\n" + COPY + "end")))
    nnp.start()
    assert nnp.run() & Status.DONE
    assert nnp.error() == (Error.SIZE, 1)


@pytest.mark.parametrize("kind", ["library", "cocotb"])
def test_a_program_may_take_too_long(kind):
    with machine(kind, TINY) as nnp:
        nnp.send(program_message(TINY, assemble(
            "s_wr Rows, 32\nloop 200\nv_rd InitialVrf, 0\nv_relu0\nv_wr InitialVrf, 0\nend_chain\nend_loop\nend")))
        nnp.start()
        with pytest.raises(MachineTimeout, match="has not ended after 300 cycles"):
            nnp.run(300)
        assert nnp.run() & Status.DONE


@pytest.mark.parametrize("kind", ["library", "cocotb"])
def test_half_a_beat_is_refused(kind):
    with machine(kind, TINY) as nnp, pytest.raises(ValueError, match="not whole beats"):
        nnp.send(bytes(7))


def test_a_waveform_is_written(tmp_path):
    case = random_program(TINY, np.random.default_rng(0), length=3)
    with machine("library", TINY, trace=tmp_path / "run.vcd") as nnp:
        assert compare(case, nnp) is None
    text = (tmp_path / "run.vcd").read_text()
    assert "s_axis_tdata" in text
    assert text.count("\n#") > 1000


def test_unknown_machine():
    with pytest.raises(ValueError, match="choose one of golden, library, cocotb"):
        machine("paper", TINY)


def test_random_programs_through_bus_models():
    """The testbench of the whole machine passes, with pauses on every bus."""
    simulate(build("cocotb", TINY), "nnp", "concord.sim.nnp", seed=5, env={"CONFIG": "tiny", "PROGRAMS": "6"})
