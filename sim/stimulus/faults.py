"""Faults for random programs: instructions that stop a machine, by the error that it must report."""

from concord.sim.stimulus.dram_faults import dram_faults
from concord.sim.stimulus.entry_faults import entry_faults
from concord.sim.stimulus.program_generator import ProgramGenerator
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import check
from concord.spec.isa.instructions import BASES, LOOP_DEPTH, SPECS, WORD, WRITES, Error, Op, Reg, specs
from concord.spec.isa.memories import MEMORY_NAMES, VRFS, Mem, depth
from concord.spec.machine.config import Config

ATTEMPTS = 200  #: Number of random faults that are tried before an error counts as impossible.
_COPY = "v_rd NetQ\nv_wr NetQ\nend_chain\n"


def errors(config: Config) -> tuple[Error, ...]:
    """The errors with which a program of this machine may stop."""
    # A native vector of one word is always aligned. MESSAGE comes from messages, and MEMORY from the memory outside.
    absent = {Error.NONE, Error.MESSAGE, Error.MEMORY} | ({Error.ALIGN} if config.vector_words == 1 else set())
    return tuple(error for error in Error if error not in absent)


def fault(generator: ProgramGenerator, error: Error | None = None) -> list[int]:
    """The program of a generator, followed by one fault.

    Args:
        generator: Generator with a legal program.
        error:     Error that the fault causes; a random one if left out.

    Raises:
        ValueError: no program of this machine stops with `error`, or there is no room for the fault.
    """
    config = generator.config
    choices = errors(config)
    wanted = [error]
    if error is None:
        first = int(generator.rng.integers(len(choices)))
        wanted = choices[first:] + choices[:first]
    elif error not in choices:
        raise ValueError(f"no program of this machine stops with {error.name}")
    for each in wanted:
        if program := _attempts(generator, each):
            return program
    names = ", ".join(each.name for each in wanted)
    raise ValueError(f"no fault that stops with {names} was found in {ATTEMPTS} attempts after a program of "
                     f"{len(generator.program)} instructions: the machine has {config.instructions}, give it more")


def _softmax(config, error):
    """Faults in the use of `v_softmax`, for a machine that has it."""
    if not config.softmax_words:
        return []
    rows = config.softmax_words * config.mfu_lanes + 1
    return {
        Error.ILLEGAL: [f"v_rd InitialVrf, 0\nv_softmax\n{text}" for text in (
            "v_wr InitialVrf, 0", "v_relu0", "end_chain", "v_softmax", "v_wr NetQ\nv_wr AddSubVrf0, 0")
        ] + ["v_softmax"],
        Error.SIZE: [f"s_wr Rows, {rows}\nv_rd NetQ\nv_softmax\nv_wr NetQ\nend_chain"]}.get(error, [])


def _attempts(generator, error):
    """The program of a generator, followed by a fault that causes `error`; None if no attempt succeeds."""
    config, rng = generator.config, generator.rng
    for _ in range(ATTEMPTS):
        texts = _FAULTS[error](generator)
        others = entry_faults(generator, error, _product(generator)) + _softmax(config, error)
        others += dram_faults(generator, error)
        chosen = others if others and rng.random() < 0.5 else texts
        tail = assemble(_sane(config) + str(rng.choice(chosen)) + "\n")
        if error == Error.END:
            room = config.instructions - len(generator.program) - len(tail)
            tail = assemble("s_wr Rows, 1") * room + tail
        program = generator.program + tail
        violation = check(program, config, generator.modes) if len(program) <= config.instructions else None
        if violation and violation.error == error:
            return program
    return None


def _sane(config):
    """Text that sets the registers so that a chain moves one word."""
    return (f"s_wr Rows, {config.mfu_lanes}\ns_wr Columns, 1\nset_iterations 1\n"
            "s_wr StrideX, 0\ns_wr StrideY, 0\ns_wr StrideOut, 1\n"
            "s_wr WindowVectors, 1\ns_wr WindowX, 1\ns_wr WindowY, 1\ns_wr WindowStep, 1\ns_wr WindowPitch, 0\n"
            "s_wr WindowGroup, 0\n")


def _illegal(generator):
    rng, known = generator.rng, specs(generator.config)
    order = [op.name.lower() + " 0" * bool(spec.operand) for op, spec in known.items() if spec.operation]
    later, earlier = sorted(rng.integers(0, len(order), 2))[::-1]
    operations = [*order[later:later + 1], *order[earlier:earlier + 1]]
    return [
        ".word 0x0", f".word {int(rng.integers(max(Op) + 1, 256))}", f".word {int(rng.integers(1 << 63))}",
        f".word {Op.END | 1 << int(rng.integers(8, WORD))}", f".word {_word(Op.V_RD, Mem.MATRIX_RF)}",
        f".word {_word(Op.V_WR, Mem.BIAS_RF)}", f".word {_word(Op.M_RD, Mem.VECTOR_RF)}",
        f".word {_word(Op.V_RD, Mem.NET_Q) | 1 << 40}", f".word {_word(Op.V_RD, Mem.MVM_Q) | 1 << 8}",
        f".word {_word(Op.S_ADD, int(rng.integers(min(BASES))))}", f".word {_word(Op.V_RD, Mem.NET_Q) | 1 << 14}",
        f"v_rd NetQ\n.word {Op.MV_MUL | 1 << 16}", "v_rd NetQ\ns_add Base1, 1",
        f".word {_word(Op.S_WR, int(rng.integers(max(Reg) + 1, 256)))}", "s_wr OutScale, 32", "s_wr OutScale, -33",
        "v_relu0", "mv_mul 0", "v_wr NetQ", "end_chain", "m_wr MatrixRf, 0",
        "v_rd NetQ\nv_rd NetQ", "v_rd NetQ\nend", "v_rd NetQ\ns_wr Rows, 1", "v_rd NetQ\nloop 1",
        "v_rd MvmQ\nmv_mul 0", "v_rd NetQ\nmv_mul 0\nmv_mul 0", "v_rd NetQ\nv_wr NetQ\nmv_mul 0",
        f"v_rd NetQ\n.word {_word(Op.MV_MUL, 0) | 1 << 50}", f"v_rd NetQ\n{operations[0]}\n{operations[1]}",
        "v_rd NetQ\nv_wr NetQ\nv_wr NetQ", "v_rd NetQ\nv_wr MvmQ", "v_rd NetQ\nmv_mul 0\nv_relu1\nv_wr MvmQ",
        "v_rd NetQ\nmv_mul 0\nv_wr MvmQ\nv_wr NetQ", "v_rd NetQ\nm_wr MatrixRf, 0", "m_rd NetQ\nv_wr NetQ",
        "m_rd NetQ\nend_chain", "m_rd NetQ\nm_wr MatrixRf, 0\nm_wr MatrixRf, 1", "v_rd NetQ\nend_chain",
        "v_rd NetQ\nv_wr NetQ\nv_relu0\nend_chain",
        "v_rd NetQ\n" + "".join(f"v_wr {MEMORY_NAMES[mem]}, 0\n" for mem in VRFS[1:WRITES + 2]),
        *(f"v_rd NetQ\n.word {op}" for op in SPECS if op not in known),
        *["v_rd NetQ\nvv_add0 0, held"] * (not generator.config.more_functions),
    ]


def _word(op, mem):
    return int(op) | int(mem) << 16


def _align(generator):
    config = generator.config
    step = int(generator.rng.integers(1, config.vector_words))
    product = f"mv_mul {_product(generator)}\nv_wr NetQ\nend_chain"
    return [f"v_rd InitialVrf, {step}\n{product}", f"s_wr Base3, {step}\nv_rd InitialVrf, 0 + Base3\n{product}",
            f"s_wr Base1, 0\nloop 3\nv_rd InitialVrf, 0 + Base1\n{product}\ns_add Base1, {step}\nend_loop\nend",
            f"s_wr StrideX, {step}\nv_rd_inc AddSubVrf0, 0\n{product}",
            f"s_wr StrideY, {step + config.vector_words}\nv_rd_inc MultiplyVrf1, 0\n{product}"]


def _range(generator):
    config, rng = generator.config, generator.rng
    mem = VRFS[rng.integers(len(VRFS))]
    name, size = MEMORY_NAMES[mem], depth(config, mem)
    operations = [f"{op.name.lower()} {depth(config, spec.operand)}" for op, spec in SPECS.items() if spec.operand]
    operation = operations[rng.integers(len(operations))]
    tiles, biases = config.matrix_tiles, config.bias_words
    last = (size // config.vector_words - 1) * config.vector_words
    return [
        f".word {_word(Op.V_RD, rng.integers(max(Mem) + 1, 256))}", f".word {_word(Op.V_WR, 0)}",
        "s_wr Base1, 65535\ns_add Base1, 1", "s_wr Base2, 7\ns_add Base2, -8",
        f"s_wr Base3, {size - 1}\nv_rd {name}, 1 + Base3\nv_wr NetQ\nend_chain",
        f"s_wr Base2, 3\nloop {int(rng.integers(5, 9))}\ns_add Base2, -1\nend_loop\nend",
        (f"s_wr Base1, {size - 6}\nloop 2\nloop 2\nv_rd {name}, 0 + Base1\nv_wr NetQ\nend_chain\n"
         "s_add Base1, 1\nend_loop\ns_add Base1, 2\nend_loop\nloop 1\nv_rd NetQ\n"
         f"v_wr {name}, 0 + Base1\nend_chain\nend_loop\nend"),
        f"s_wr Base3, 2\nloop {size}\nv_rd NetQ\nv_wr {name}, 0 + Base3\nend_chain\ns_add Base3, 2\nend_loop\nend",
        f"v_rd {name}, {size}\nv_wr NetQ\nend_chain", f"v_rd NetQ\nv_wr {name}, {size}\nend_chain",
        f"set_iterations 4\ns_wr StrideX, {size // 3 + 1}\nv_rd_inc {name}, 0\nv_wr NetQ\nend_chain",
        f"set_iterations 4, 2\ns_wr StrideY, {size}\nv_rd_inc {name}, 0\nv_wr NetQ\nend_chain",
        f"set_iterations 3\ns_wr StrideOut, {size // 2 + 1}\nv_rd NetQ\nv_wr_inc {name}, 0\nend_chain",
        f"v_rd NetQ\n{operation}\nv_wr NetQ\nend_chain", f"v_rd NetQ\nmv_mul {tiles}\nv_wr NetQ\nend_chain",
        f"s_wr Columns, 2\nv_rd NetQ\nmv_mul {tiles - 1}\nv_wr NetQ\nend_chain",
        f"s_wr Columns, 2\nv_rd {name}, {last}\nmv_mul 0\nv_wr NetQ\nend_chain",
        f"v_rd NetQ\nmv_mul 0, integer, bias {biases}\nv_wr NetQ\nend_chain",
        f"set_iterations 2\nm_rd NetQ\nm_wr MatrixRf, {tiles - 1}\nend_chain",
    ]


def _size(generator):
    config = generator.config
    product = f"v_rd NetQ\nmv_mul {_product(generator)}\nv_wr NetQ\nend_chain"
    zeros = [f"s_wr {name}, 0\n{_COPY}" for name in ("Rows", "Columns", "Iterations", "IterationsX")]
    return [*zeros, "s_wr Rows, 0\nm_rd NetQ\nm_wr MatrixRf, 0\nend_chain",
            f"s_wr Rows, {config.accumulator_rows + 1}\n{product}",
            f"s_wr Columns, {config.operand_columns + 1}\n{product}"]


def _queue(generator):
    config, held = generator.config, generator.state().held
    product = f"mv_mul {_product(generator)}"
    push = f"v_rd NetQ\n{product}\nv_wr MvmQ\nend_chain\n"
    return [f"set_iterations {held + 1}\nv_rd MvmQ\nv_wr NetQ\nend_chain",
            f"{push}v_rd NetQ\n{product}\nv_wr NetQ\nend_chain",
            f"set_iterations {config.mvmq_words - held + 1}\n{push}"]


def _format(generator):
    tile = int(generator.rng.integers(generator.config.matrix_tiles))
    other = f"{tile}{'' if generator.state().modes[tile] else ', integer'}"
    return [f"v_rd NetQ\nmv_mul {operand}\nv_wr NetQ\nend_chain" for operand in ("0, unsigned", "0, bias 0", other)]


def _product(generator):
    """Operands of an `mv_mul` of one tile."""
    tile = int(generator.rng.integers(generator.config.matrix_tiles))
    return f"{tile}{', integer' if generator.state().modes[tile] else ''}"


#: For each error, a function that makes texts; on most machines, each of them causes the error.
_FAULTS = {
    Error.ILLEGAL: _illegal,
    Error.ALIGN: _align,
    Error.RANGE: _range,
    Error.SIZE: _size,
    Error.QUEUE: _queue,
    Error.FORMAT: _format,
    Error.WINDOW: lambda _: [f"set_iterations 3, 2\n{_COPY}", f"set_iterations 2, 3\n{_COPY}"],
    Error.LOOP: lambda _: ["loop 0", "end_loop", "loop 1\n" * (LOOP_DEPTH + 1), "loop 1\nend",
                           f"loop 2\n{_COPY}end_loop\nend_loop"],
    Error.END: lambda _: ["s_wr Rows, 1", "v_rd NetQ", "v_rd NetQ\nv_wr NetQ\nend_chain"],
}
