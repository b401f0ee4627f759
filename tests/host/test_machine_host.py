"""The golden machine with its ports: messages, registers, errors and resets."""

import numpy as np
import pytest
from concord.golden.host.messages import (
    bias_message,
    input_message,
    packed_message,
    program_message,
    read_message,
    words_of,
    write_message,
)
from concord.golden.machine import Machine
from concord.spec.host.messages import Message, MessageKind, pack, unpack
from concord.spec.host.registers import Control, Counter, Register, Status, counters
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.machines import loaded, numbers, outputs, ran, words

TINY = preset("tiny")
COPY = "s_wr Rows, 2\nv_rd NetQ\nv_wr NetQ\nend_chain\nend"
INVALID = np.array([[0x7E00, 0], [0, 0], [0, 0], [0, 0]], np.uint16)


def errors(machine):
    return machine.read_register(Register.ERROR), machine.read_register(Register.ERROR_ADDRESS)


def test_memories_are_written_and_read():
    machine = Machine(TINY)
    machine.send(write_message(TINY, Mem.ADDSUB_VRF1, words(TINY, [1, 2, 3, 4]), 5))
    machine.send(read_message(TINY, Mem.ADDSUB_VRF1, 3, 5))
    (reply,) = (unpack(TINY, data, to_machine=False) for data in machine.receive())
    assert (reply.kind, reply.memory, reply.address, reply.count) == (MessageKind.READ, Mem.ADDSUB_VRF1, 5, 3)
    assert (words_of(TINY, reply) == words(TINY, [1, 2, 3, 4, 0, 0])).all()


def test_tiles_and_biases_are_written():
    machine = Machine(TINY)
    rng = np.random.default_rng(0)
    mantissas, exponents = rng.integers(-128, 128, (2, 8, 8)), rng.integers(0, 32, (2, 8))
    mantissas[1, :, 4:] = 0
    machine.send(packed_message(TINY, mantissas, exponents, 7, integer=True))
    machine.send(bias_message(TINY, np.array([[1, -2], [-(1 << 31), (1 << 31) - 1]]), 3))
    assert (machine.memory.matrix.mantissas[7:9] == mantissas).all()
    assert (machine.memory.matrix.exponents[7:9] == exponents).all()
    assert machine.memory.matrix.marks[7:9].tolist() == [2, 1]
    assert machine.memory.matrix.modes[6:10] == [False, True, True, False]
    assert machine.memory.biases[3:5].tolist() == [[1, -2], [-(1 << 31), (1 << 31) - 1]]


def test_a_program_message_changes_only_its_own_words():
    machine = loaded(TINY, COPY, inputs=[1, 2])
    machine.send(program_message(TINY, assemble("v_wr InitialVrf, 9"), 2))
    machine.start()
    machine.run()
    assert numbers(machine, Mem.INITIAL_VRF, 9, 2) == [1, 2]


def test_messages_other_than_input_wait_for_the_program_and_hold_back_those_behind():
    machine = loaded(TINY, COPY)
    machine.start()
    assert machine.run() & Status.WAIT_INPUT
    machine.send(read_message(TINY, Mem.INITIAL_VRF, 1))
    machine.send(input_message(TINY, words(TINY, [3, 4])))
    assert machine.run() & Status.WAIT_INPUT, "the input follows the READ"
    machine.reset()
    assert machine.receive() == []
    machine.start()
    machine.run()
    assert outputs(machine) == [[3, 4]], "the input came after the reset"


def test_messages_that_waited_are_done_when_the_program_is():
    machine = loaded(TINY, COPY)
    machine.start()
    machine.run()
    machine.send(input_message(TINY, words(TINY, [3, 4])))
    machine.send(write_message(TINY, Mem.INITIAL_VRF, words(TINY, [5, 6])))
    assert numbers(machine, Mem.INITIAL_VRF, 0, 2) == [0, 0]
    machine.run()
    assert numbers(machine, Mem.INITIAL_VRF, 0, 2) == [5, 6]


@pytest.mark.parametrize("damage", ["flip", "cut", "other machine", "output"])
def test_malformed_messages_stop_the_machine_until_reset(damage):
    machine = loaded(TINY, COPY, inputs=[1, 2])
    data = bytearray(input_message(TINY, words(TINY, [3, 4])))
    if damage == "flip":
        data[17] ^= 1
    elif damage == "cut":
        del data[16:20]
    elif damage == "other machine":
        data = input_message(preset("serial"), words(preset("serial"), [3, 4]))
    else:
        data = pack(TINY, Message(kind=MessageKind.OUTPUT, count=1, payload=bytes(4)))
    machine.send(bytes(data))
    assert errors(machine) == (Error.MESSAGE, 0)
    machine.start()
    assert machine.run() == Status(0)
    machine.reset()
    assert errors(machine) == (Error.NONE, 0)
    machine.send(input_message(TINY, words(TINY, [3, 4])))
    machine.start()
    assert machine.run() == Status.DONE
    assert outputs(machine) == [[3, 4]]


def test_a_malformed_message_stops_a_program():
    machine = loaded(TINY, COPY)
    machine.start()
    machine.run()
    machine.send(b"1234")
    assert machine.run() == Status.DONE
    assert errors(machine)[0] == Error.MESSAGE


def test_an_error_stops_the_program_and_the_next_start_is_clean():
    machine = loaded(TINY, "s_wr Rows, 0\nv_rd NetQ\nv_wr NetQ\nend_chain\nend", inputs=[1, 2])
    machine.start()
    assert machine.run() == Status.DONE
    assert errors(machine) == (Error.SIZE, 1)
    machine.send(program_message(TINY, assemble(COPY)))
    assert errors(machine) == (Error.SIZE, 1)
    machine.start()
    assert errors(machine) == (Error.NONE, 0)
    machine.run()
    assert outputs(machine) == [[1, 2]]


def test_registers_start_over_with_every_program():
    text = "v_rd InitialVrf, 0\nv_wr NetQ\nend_chain\ns_wr Rows, 2\nend"
    machine = ran(TINY, text)
    machine.start()
    machine.run()
    assert [len(message) for message in outputs(machine)] == [8, 8]


def test_a_loop_left_by_an_error_is_forgotten():
    machine = loaded(TINY, "loop 2\nv_relu0")
    machine.start()
    machine.run()
    machine.send(program_message(TINY, assemble("end")))
    machine.start()
    assert machine.run() == Status.DONE
    assert errors(machine) == (Error.NONE, 0)


def test_reset_in_the_middle_keeps_memories_and_modes():
    text = "m_rd NetQ\nm_wr MatrixRf, 4, integer\nend_chain\n"
    text += "s_wr Rows, 6\nv_rd NetQ\nv_wr InitialVrf, 0\nend_chain\nend"
    machine = loaded(TINY, text, inputs=[*[1] * 64, 7, 8])
    machine.start()
    assert machine.run() & Status.WAIT_INPUT
    machine.reset()
    assert machine.status == Status(0)
    assert numbers(machine, Mem.INITIAL_VRF, 0, 4) == [7, 8, 0, 0]
    assert machine.memory.matrix.modes[4]
    assert machine.read_register(Register.COUNTERS + 4 * Counter.CHAINS) == 2
    machine.send(program_message(TINY, assemble(COPY)))
    machine.send(input_message(TINY, words(TINY, [1, 2])))
    machine.start()
    machine.run()
    assert outputs(machine) == [[1, 2]]


def test_reset_forgets_unfinished_output():
    machine = loaded(TINY, COPY.replace("2", "4"), inputs=[1, 2])
    machine.start()
    machine.run()
    machine.reset()
    machine.send(input_message(TINY, words(TINY, [5, 6, 7, 8])))
    machine.start()
    machine.run()
    assert outputs(machine) == [[5, 6, 7, 8]]


@pytest.mark.parametrize(("text", "flag"), [
    ("v_rd NetQ\nmv_mul 0\nv_wr NetQ\nend_chain\nend", Status.INVALID_VECTOR),
    ("m_rd NetQ\nm_wr MatrixRf, 0\nend_chain\nend", Status.INVALID_MATRIX),
    ("v_rd NetQ\nv_relu0\nv_wr NetQ\nend_chain\nend", Status(0)),
])
def test_invalid_flags_stay_until_reset(text, flag):
    machine = loaded(TINY, text)
    machine.send(input_message(TINY, np.concatenate([INVALID, np.zeros((28, 2), np.uint16)])))
    machine.start()
    assert machine.run() == Status.DONE | flag
    machine.send(program_message(TINY, assemble("end")))
    machine.start()
    assert machine.run() == Status.DONE | flag
    machine.reset()
    assert machine.status == Status(0)


def test_a_start_while_a_program_runs_changes_nothing():
    machine = loaded(TINY, COPY.replace("2", "4"), inputs=[1, 2])
    machine.start()
    machine.run()
    machine.start()
    machine.send(input_message(TINY, words(TINY, [3, 4])))
    machine.run()
    assert outputs(machine) == [[1, 2, 3, 4]]


def test_the_control_port():
    machine = loaded(TINY, COPY, inputs=[1, 2])
    machine.write_register(Register.CONTROL, Control.START)
    machine.run()
    assert machine.read_register(Register.STATUS) == Status.DONE
    assert machine.read_register(Register.COUNTERS + 4 * Counter.INSTRUCTIONS) == 5
    machine.write_register(Register.STATUS, 0)
    machine.write_register(Register.CONTROL, Control.CLEAR | Control.RESET)
    assert machine.read_register(Register.STATUS) == 0
    assert machine.read_register(Register.COUNTERS) == 0
    assert machine.read_register(Register.COUNTERS + 4 * Counter.CYCLES) == 0
    assert machine.read_register(Register.CONTROL) == 0
    facts = {Register.DIGEST: TINY.digest, Register.NATIVE_DIM: 8, Register.LANES: 4, Register.TILE_ENGINES: 1,
             Register.MFU_LANES: 2, Register.MATRIX_TILES: 32, Register.INSTRUCTIONS: 512,
             Register.COUNTER_COUNT: len(counters(TINY))}
    assert {register: machine.read_register(register) for register in facts} == facts
