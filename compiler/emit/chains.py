"""Chains: a source, operations and writes, which are emitted for all pixels or for some rows of them."""

from dataclasses import dataclass, field, replace

from concord.compiler.emit.sources import Region, Source
from concord.compiler.emit.storage import CodesView, NumbersView
from concord.compiler.lib.program import ProgramBuilder, Slot, clipped
from concord.compiler.lib.tiling import LARGEST, RowPart
from concord.spec.isa.instructions import Instruction, Op, Reg, opcode
from concord.spec.isa.memories import Mem
from concord.spec.isa.operations import ACTIVATIONS, Operation, Stage, next_mfu, position
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainStep:
    """An operation or a write of a chain.

    Attributes:
        op:     Opcode.
        at:     Constant operand, operand or target in a vector memory, target in VectorRf, or None (NetQ, or none).
        held:   Whether a constant is one number for all elements.
    """

    op: Op
    at: Slot | NumbersView | CodesView | None = None
    held: bool = False


@dataclass(kw_only=True, slots=True, eq=False)
class OpenChain:
    """A chain under construction.

    Attributes:
        source:   Source.
        steps:    Operations and writes, in order.
        position: Position of the last stage in use, -1 for none.
        stride:   Words from a pixel to the next one in all operands and results with addresses that move, or None.
    """

    source: Source
    steps: list[ChainStep] = field(default_factory=list)
    position: int = -1
    stride: int | None = None

    def stage(self, stage: Stage) -> int | None:
        """The MFU of the next free stage of this kind, or None where there is none."""
        return next_mfu(stage, self.position)

    def apply(self, operation: Operation, mfu: int, at: Slot | NumbersView | None = None, *, held: bool = False):
        """Add an operation."""
        self.position = position(operation.stage, mfu)
        self.steps.append(ChainStep(op=opcode(operation, mfu), at=at, held=held))
        if isinstance(at, NumbersView) and not at.still:
            self.stride = at.stride

    def activate(self, kind: Activation) -> bool:
        """Add an activation function, if a stage is left for it."""
        if kind not in ACTIVATIONS:
            return True
        mfu = self.stage(Stage.ACT)
        if mfu is not None:
            self.apply(ACTIVATIONS[kind], mfu)
        return mfu is not None

    def takes(self, view: NumbersView) -> bool:
        """Whether an operand or result in a vector memory can move as all others of this chain."""
        return self.stride is None or self.stride == view.stride

    def may_write(self, mem: Mem) -> bool:
        """Whether the chain can write another memory, and it is this one."""
        written = [_memory(step) for step in self.steps if step.op == Op.V_WR]
        return len(written) < 3 and mem not in written

    def write(self, target: NumbersView | CodesView | None):
        """Add a write; None stands for NetQ."""
        self.steps.append(ChainStep(op=Op.V_WR, at=target))
        if isinstance(target, NumbersView):
            self.stride = target.stride

    @property
    def moves_words(self) -> bool:
        """Whether an operand or result in a vector memory moves, which it does by one distance only."""
        return self.stride is not None

    def emit(self, config: Config, program: ProgramBuilder, region: Region, part: RowPart):
        """Add the instructions for some pixels and lanes to a program."""
        if self.moves_words and region.columns < region.width and region.rows > 1:
            for row in range(region.row, region.row + region.rows):
                self.emit(config, program, replace(region, row=row, rows=1), part)
            return
        instructions, registers = self.source.read(config, region, part)
        if region.inc and self.moves_words:
            registers[Reg.STRIDE_OUT] = self.stride
        for step in self.steps:
            instructions.append(_instruction(config, step, region, part))
            if isinstance(step.at, CodesView) and region.inc:
                skip = step.at.pitch(region.width) - region.columns * step.at.stride
                registers |= {Reg.STRIDE_VEC: step.at.stride, Reg.SKIP_VEC: skip if region.rows > 1 else 0}
        program.chain(*instructions, rows=part.rows, registers={
            Reg.ITERATIONS: region.count, Reg.ITERATIONS_X: region.columns, **registers})


class Sending(OpenChain):
    """A chain that sends neighbouring pixels of a vector memory as one long vector, so that one message holds them."""

    def emit(self, config: Config, program: ProgramBuilder, region: Region, part: RowPart):
        view = self.source.view
        first, lanes = region.pixel(view.numbers), view.stride * config.mfu_lanes
        most = max(1, LARGEST // lanes)  # pixels of a message
        for done in range(0, region.count, most):
            program.chain(
                Instruction(op=Op.V_RD, mem=view.buffer.mem, a=view.address(first + done)),
                Instruction(op=Op.V_WR, mem=Mem.NET_Q), rows=min(most, region.count - done) * lanes)


def _memory(step: ChainStep) -> Mem:
    """The memory that a write goes to."""
    return Mem.NET_Q if step.at is None else step.at.buffer.mem


def _instruction(config: Config, step: ChainStep, region: Region, part: RowPart) -> Instruction:
    """One operation or write of a chain."""
    words = part.row // config.mfu_lanes
    mem = _memory(step) if step.op == Op.V_WR else 0
    match step.at:
        case Slot():
            return Instruction(op=step.op, a=step.at.address + words * (not step.held), held=int(step.held))
        case NumbersView(still=True):
            return Instruction(op=step.op, a=step.at.address(0) + words)
        case NumbersView(held=True):
            address = step.at.address(region.pixel(step.at.numbers)) + step.at.numbers.words - 1
            return Instruction(op=step.op, a=address, held=1, inc=region.inc, base=region.base(step.at))
        case NumbersView():
            address = step.at.address(region.pixel(step.at.numbers)) + words
            return Instruction(op=step.op, mem=mem, a=address, inc=region.inc, base=region.base(step.at))
        case CodesView():
            address = step.at.address(region.row, region.column, region.width) + part.row // config.native_dim
            codes = step.at.codes
            made = Instruction(op=step.op, mem=mem, a=address, inc=region.inc, integer=int(codes.integer),
                               unsigned=int(codes.unsigned), base=region.base(step.at))
            return clipped(made, codes.clip)
    return Instruction(op=step.op, mem=mem)
