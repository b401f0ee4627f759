"""Memory outside the chip on the gates: golden's bits at any latency, wrong responses, and resets at any moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import numpy as np
import pytest
from concord.golden.host.messages import program_message, read_message, words_of, write_message
from concord.golden.mvm.quantizer import quantize
from concord.golden.schedule.dram import pack_tile
from concord.sim.machines.host import GoldenMachine, HardwareMachine, Machine, MachineTimeout, machine
from concord.sim.machines.library import Fault, Library, Memory
from concord.spec.host.messages import Message, MessageKind, pack, unpack
from concord.spec.host.registers import Counter, Register, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.dram import tile_words
from concord.spec.isa.instructions import Error, Op, decode
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config, preset

TINY = replace(preset("tiny"), dram_words=1 << 20, dram_bus=8)  # two words a beat
WIDE = replace(preset("wide"), dram_words=1 << 20, dram_bus=4)  # two beats a word
FAR = 70_000  #: An address of more than 16 bits.
TILES = 200  #: Address of the first tile.
READ = ((Mem.DRAM, 0, 300), (Mem.DRAM, FAR, 300), (Mem.VECTOR_RF, 0, 20))  #: What the host reads after each program.
QUIET = 20_000  #: Cycles within which every program ends.


@dataclass(frozen=True)
class Program:
    """A program, and the words that the host writes before it, by memory and address."""

    text: str
    writes: tuple[tuple[Mem, int, np.ndarray], ...] = ()

    @property
    def words(self) -> np.ndarray:
        """Its instructions, uint64."""
        return np.array(assemble(self.text), "<u8")


def numbers(rng, config: Config, count: int) -> np.ndarray:
    """Words of random numbers, uint16[count, M]."""
    return rng.normal(size=(count, config.mfu_lanes)).astype(np.float16).view(np.uint16)


def tile(rng, config: Config, *, integer: bool = False, diagonal: bool = False) -> np.ndarray:
    """The words of a random tile."""
    values = rng.normal(scale=2 if integer else 0.5, size=(config.native_dim, config.native_dim))
    mantissas, exponents = quantize(values.astype(np.float16).view(np.uint16), config.weights, integer=integer)
    mantissas = np.diag(np.diagonal(mantissas)) if diagonal else mantissas
    return pack_tile(config, mantissas, exponents, integer=integer, diagonal=diagonal)


#: A vector for products.
VECTOR = "v_rd Dram, 0\nv_wr InitialVrf, 0\nend_chain\n"


def load_tile(address: int, tile: str) -> str:
    """Instructions that load a tile from Dram."""
    return f"m_rd Dram, {address}\nm_wr MatrixRf, {tile}\nend_chain\n"


def product(operands: str, *, tap: str = "") -> str:
    """Instructions that multiply that vector by a tile."""
    return f"v_rd InitialVrf, 0\nmv_mul {operands}\nv_wr NetQ\n{tap}end_chain\n"


def programs(config: Config) -> dict[str, Program]:
    """Programs that use every way to Dram, and one that is refused."""
    rng, n, m, each = np.random.default_rng(3), config.native_dim, config.mfu_lanes, tile_words(config)
    words, tiles = (Mem.DRAM, 0, numbers(rng, config, 64)), [tile(rng, config) for _ in range(6)]
    far, first = (Mem.DRAM, FAR, words[2]), (Mem.INITIAL_VRF, 0, words[2][:config.vector_words])
    two, six = ((Mem.DRAM, TILES, np.concatenate(tiles[:count])) for count in (2, 6))
    whole, diagonal = ((Mem.DRAM, TILES, tile(rng, config, integer=True, diagonal=each)) for each in (False, True))
    return {
        "words": Program(f"""
            s_wr Rows, {8 * m}
            v_rd Dram, 3
            v_wr Dram, 100
            end_chain
            v_rd Dram, 100
            v_relu0
            v_wr Dram, 200
            v_wr NetQ
            end_chain
            end""", (words,)),
        "far": Program(f"""
            s_wr Rows, {4 * m}
            s_wr Base1, {FAR}
            set_iterations 3
            s_wr StrideX, 5
            s_wr StrideOut, 4
            v_rd_inc Dram, 3 + Base1
            v_wr_inc Dram, 100 + Base1
            end_chain
            end""", (far,)),
        "load": Program(f"""
            set_iterations 2
            m_rd_inc Dram, {TILES}
            m_wr MatrixRf, 1
            end_chain
            set_iterations 1
            {VECTOR}""" + product("1", tap="v_wr Dram, 100\n") + product("2") + "end", (words, two)),
        "diagonal": Program(load_tile(TILES, "1, integer, diagonal") + VECTOR + product("1, integer")
                            + load_tile(TILES, "1, diagonal") + product("1") + "end", (words, diagonal)),
        "stream": Program("".join(load_tile(TILES + k * each, str(k % 2)) + product(str(k % 2)) for k in range(6))
                          + "end", (words, first, six)),
        "entries": Program(f"""
            s_wr Rows, {6 * n}
            v_rd Dram, 5
            v_wr VectorRf, 0
            end_chain
            s_wr Rows, {2 * n + 1}
            s_wr StrideX, 3
            s_wr StrideOut, 20
            set_iterations 2
            v_rd_inc VectorRf, 0
            v_wr_inc Dram, 100, raw
            end_chain
            s_wr StrideX, 20
            s_wr StrideVec, 3
            v_rd_inc Dram, 100, raw
            v_wr_inc VectorRf, 7
            end_chain
            end""", (words,)),
        "bias": Program(load_tile(TILES, "1, integer") + VECTOR + "v_rd Dram, 5, raw\nv_wr BiasRf, 2\nend_chain\n"
                        + product("1, integer, bias 2") + "end", (words, whole)),
        "range": Program(f"""
            s_wr Base1, {config.dram_words - config.vector_words}
            v_rd Dram, 1 + Base1
            v_wr NetQ
            end_chain
            end"""),
    }


PROGRAMS = programs(TINY)
#: For each access, a program with it, and the operation that it belongs to.
ACCESSES = {"read": ("words", Op.V_RD), "tile": ("stream", Op.M_RD), "write": ("far", Op.V_WR)}


def load(chosen: Machine, program: Program) -> None:
    """Reset a machine, and send what the host writes and the program."""
    config = chosen.config
    chosen.reset()
    chosen.clear()
    chosen.receive()
    chosen.send(*(pack(config, Message(kind=MessageKind.WRITE, memory=memory, address=address, count=len(words),
                                       payload=words.tobytes())) for memory, address, words in program.writes),
                program_message(config, program.words))


def found(chosen: Machine) -> tuple:
    """What a machine shows after a program: status, error, outputs, memories and events."""
    config, error, outputs = chosen.config, chosen.error(), chosen.receive()
    events = {counter: value for counter, value in chosen.events().items() if not error[0]}
    chosen.send(*(pack(config, Message(kind=MessageKind.READ, memory=memory, address=address, count=count))
                  for memory, address, count in READ))
    return chosen.status() & Status.DONE, error, outputs, events, chosen.receive()


def result(chosen: Machine, program: Program) -> tuple:
    """What a machine shows after a program that it gets anew."""
    load(chosen, program)
    chosen.start()
    chosen.run(QUIET)
    return found(chosen)


@contextmanager
def library(config: Config = TINY, **options) -> Iterator[HardwareMachine]:
    """The Verilated machine with a memory of these options."""
    with HardwareMachine(Library(config, seed=1, memory=Memory(**options))) as made:
        yield made


MEMORIES = (Memory(), Memory(latency=1, stall=0.3, mixed=True), Memory(latency=400))


@pytest.mark.parametrize("config", [TINY, WIDE], ids=["tiny", "wide"])
@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: str(memory.latency))
def test_the_library_does_what_golden_does(config, memory):
    """One machine after the other program, so that each begins with what the one before has left."""
    golden = GoldenMachine(config)
    with HardwareMachine(Library(config, seed=1, gap=memory.stall, stall=memory.stall, memory=memory)) as gates:
        for name, program in programs(config).items():
            assert result(gates, program) == result(golden, program), name


@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_cocotb_does_what_golden_does(stall):
    golden = GoldenMachine(TINY)
    with machine("cocotb", TINY, seed=3, gap=stall, stall=stall) as gates:
        for name, program in PROGRAMS.items():
            assert result(gates, program) == result(golden, program), name


def test_a_base_moves_all_words():
    """A machine with another base does the same, at another address of the memory."""
    golden, program = GoldenMachine(TINY), PROGRAMS["words"]
    with library() as gates:
        gates.write_register(Register.DRAM_BASE, 5 << 12)
        assert result(gates, program) == result(golden, program)
        gates.write_register(Register.DRAM_BASE, 0)
        moved, empty = found(gates)[-1], result(GoldenMachine(TINY), Program("end"))[-1]
        assert moved[:2] == empty[:2]


def failing(gates: Machine, program: Program) -> Op | None:
    """Run a program whose memory gives a wrong response; the operation at the address of the error, if there is one."""
    load(gates, program)
    gates.start()
    assert gates.run(QUIET) & Status.DONE
    error, address = gates.error()
    if error == Error.NONE:
        return None
    instruction = decode(int(program.words[address]))
    assert (error, instruction.mem) == (Error.MEMORY, Mem.DRAM)
    return instruction.op


@cache
def numbers_of(name: str, op: Op, fault: Fault) -> list[int]:
    """The numbers of those bursts whose wrong response ends a program with an error at such an operation."""
    found_ = []
    for number in range(60):
        with library(latency=20, fault_at=number, fault=fault) as gates:
            found_ += [number] * (failing(gates, PROGRAMS[name]) == op)
    return found_


@pytest.mark.parametrize(("kind", "fault"), [
    *((kind, fault) for kind in ACCESSES for fault in (Fault.SLVERR, Fault.DECERR)),
    *((kind, fault) for kind in ("read", "tile") for fault in (Fault.EARLY, Fault.LATE))],  # writes have no such answer
    ids=lambda part: getattr(part, "name", part))
def test_a_wrong_response_ends_the_program(kind, fault):
    """With MEMORY and the address of an access to Dram; after a reset the machine gives golden's bits."""
    name, op = ACCESSES[kind]
    wanted, bursts = result(GoldenMachine(TINY), PROGRAMS[name]), numbers_of(name, op, fault)
    for number in (bursts[0], bursts[-1]):
        with library(latency=20, fault_at=number, fault=fault) as gates:
            assert failing(gates, PROGRAMS[name]) == op
            assert result(gates, PROGRAMS[name]) == wanted


@pytest.mark.parametrize("kind", ACCESSES)
def test_a_response_that_does_not_come_holds_up_the_next_start(kind):
    """The program waits; a reset ends it, and the next one starts once the response has come."""
    name, op = ACCESSES[kind]
    program, busy = PROGRAMS[name], Status.RUNNING | Status.DRAM_BUSY
    wanted, number = result(GoldenMachine(TINY), program), numbers_of(name, op, Fault.SLVERR)[0]
    with library(latency=20, fault_at=number, fault=Fault.SILENT) as gates:
        load(gates, program)
        gates.start()
        with pytest.raises(MachineTimeout):
            gates.run(QUIET)
        gates.reset()
        gates.clear()
        gates.receive()
        assert gates.status() & busy == Status.DRAM_BUSY
        gates.start()  # answers behind the one that does not come are not waited for
        gates.pause(1000)
        assert gates.status() & busy == busy
        assert gates.counter(Counter.INSTRUCTIONS) == 0
        gates.link.answer()
        assert gates.run(QUIET) & Status.DONE
        assert found(gates) == wanted
        assert not gates.status() & Status.DRAM_BUSY
        assert result(gates, program) == wanted


def test_a_start_waits_while_a_slow_memory_takes_the_words_of_the_host():
    """The message waits for more cycles than any other does, and the program finds its last words."""
    words = numbers(np.random.default_rng(4), TINY, 3000)
    program = Program("s_wr Rows, 40\nv_rd Dram, 2970\nv_wr NetQ\nend_chain\nend", ((Mem.DRAM, 0, words),))
    with library(latency=1, stall=0.97) as gates:
        assert result(gates, program) == result(GoldenMachine(TINY), program)


@pytest.mark.parametrize("options", [{"latency": 40}, {"latency": 5, "stall": 0.4, "mixed": True}, {"latency": 400}],
                         ids=lambda options: str(options["latency"]))
def test_a_reset_at_any_moment_leaves_nothing_behind(options):
    """Bursts are under way; the next program gives golden's bits, and no rule of the port is broken."""
    chance, golden, busy = Random(5), GoldenMachine(TINY), 0
    with library(**options) as gates:
        for number in range(20):
            program = PROGRAMS[chance.choice(("words", "far", "load", "stream", "entries", "bias"))]
            load(gates, program)
            gates.start()
            gates.pause(chance.randrange(20, 120 + options["latency"]))
            busy += bool(gates.status() & Status.DRAM_BUSY)
            assert result(gates, program) == result(golden, program), number
    assert busy > 5


@pytest.mark.parametrize("latency", [1, 400])
def test_words_of_the_host_are_in_dram_when_it_is_not_busy(latency):
    """A READ behind them is answered before; a reset after DRAM_BUSY has fallen leaves all of them."""
    words = numbers(np.random.default_rng(6), TINY, 400)
    with library(latency=latency) as gates:
        gates.send(write_message(TINY, Mem.DRAM, words), read_message(TINY, Mem.INITIAL_VRF, 1))
        while not gates.link.receive():
            gates.pause(1)
        assert gates.status() & Status.DRAM_BUSY
        while gates.status() & Status.DRAM_BUSY:
            gates.pause(1)
        gates.reset()
        gates.send(read_message(TINY, Mem.DRAM, len(words)))
        (answer,) = gates.receive()
        assert (words_of(TINY, unpack(TINY, answer, to_machine=False)) == words).all()
