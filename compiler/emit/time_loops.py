"""Loops over time steps: recurrent layers, and what follows their hidden vectors in each step.

The time steps are those of an image in a vector memory, or those that the host sends. In a loop over an image, a base
register holds how far the present time step is away from the first one; another one does so for each distance between
the pixels of what the loop writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from concord.compiler.cells.arithmetics import RECURRENT
from concord.compiler.cells.time_step import TimeStep
from concord.compiler.emit.passes import LayerPass
from concord.compiler.emit.sources import FromNumbers, Region, moved_by
from concord.compiler.emit.storage import Buffer, CodesView, NumbersView
from concord.compiler.graph.entering import SequenceEntry
from concord.compiler.graph.nodes import Value
from concord.compiler.graph.wiring import RecurrentLoop
from concord.compiler.lib.build import ModelBuild
from concord.compiler.lib.program import NET, ProgramBuilder, Slot, read, write
from concord.net.layers.layer import unchecked
from concord.net.layers.recurrent import Recurrent
from concord.spec.isa.instructions import BASES, Instruction, Op, Reg
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageSteps:
    """How the vector of the present time step comes from an image.

    Attributes:
        entry: The time steps of the image.
        view:  The numbers of the image; None where the host sends one time step after the other.
        x:     Slot of the vector of the present time step.
        scale: Slot of what this vector is multiplied by, or None.
    """

    entry: SequenceEntry
    view: NumbersView | None
    x: Slot
    scale: Slot | None

    @property
    def strides(self) -> tuple[int, int]:
        """Distances in words from one time step, and from one pixel of a time step, to the next."""
        return self.entry.strides(self.view.stride)

    def take(self, program: ProgramBuilder, bases: dict[int, int]):
        """Bring the vector of the present time step to the slot where the first layer reads it."""
        count, inc = self.entry.pixels, int(self.entry.pixels > 1)
        chain, between = [Instruction(op=Op.V_RD, mem=Mem.NET_Q)], 0
        if self.view:
            step, between = self.strides
            chain = [Instruction(
                op=Op.V_RD, mem=self.view.buffer.mem, a=self.view.address(0), inc=inc, base=bases[step])]
        if self.scale is not None:
            chain.append(Instruction(op=Op.VV_MUL0, a=self.scale.address, inc=inc))
        chain.append(Instruction(op=Op.V_WR, mem=self.x.mem, a=self.x.address, inc=inc))
        moving = {Reg.STRIDE_X: between, Reg.STRIDE_OUT: self.entry.apart} if inc else {}
        program.chain(*chain, rows=self.entry.value.lanes,
                      registers={Reg.ITERATIONS: count, Reg.ITERATIONS_X: count, **moving})


@dataclass(kw_only=True, slots=True, eq=False)
class TimeLoop(LayerPass):
    """The pass of a loop over time steps. Its chains run in each step, for the pixel of the step.

    Attributes:
        loop:    The layers.
        image:   How the time steps of an image are taken; None where the host sends any number of them.
        hidden:  Slot of the hidden vector of each layer, by its name.
        opening: Chains that set the initial states.
        step:    Chains of the recurrent layers in one time step.
    """

    loop: RecurrentLoop
    image: ImageSteps | None
    hidden: dict[str, Slot] = field(default_factory=dict)
    opening: ProgramBuilder
    step: ProgramBuilder

    @classmethod
    def over_image(
        cls, build: ModelBuild, time: int, value: Value, loop: RecurrentLoop, image: Value, view: NumbersView | None,
    ) -> "TimeLoop":
        """Make the chains of the recurrent layers, and take the slots that they need.

        Args:
            value: Hidden vector of the first layer.
            image: The image that it reads.
            view:  The numbers of the image, or None.
        """
        entry = SequenceEntry(config=build.config, entry=loop.entry, value=image)
        first = entry.spread(loop.layers[0])
        build.set_content(entry.spread(build.content(loop.layers[0])))
        scale = entry.scale(first)
        if scale is not None:
            first = unchecked(first, input_quant_scale=None)
            scale = build.allocator.constant(Mem.MULTIPLY_VRF0, scale, f"{first.name}, input scale")
        # Block floating point needs the first hidden vector directly after x.
        x = build.allocator.vector(Mem.INITIAL_VRF, entry.lanes, f"{first.name}, input")
        steps = ImageSteps(entry=entry, view=view, x=x, scale=scale)
        slots = {loop.sources[0]: x}
        with build.part(ProgramBuilder.apart()) as opening:
            chains = _begun(build, (first, *loop.layers[1:]), loop, slots)
        with build.part(ProgramBuilder.apart()) as step:
            _emit(build, chains)
        return cls(time=time, value=value, loop=loop, image=steps, hidden=slots, opening=opening, step=step)

    @classmethod
    def over_inputs(
        cls, build: ModelBuild, time: int, value: Value, loop: RecurrentLoop, entering: Mapping[str, Slot], *,
        rows: int, every: bool,
    ) -> "TimeLoop":
        """Make the chains of a loop over the time steps that the host sends.

        Args:
            value:    Hidden vector of the first layer.
            entering: Slot to which each tensor that comes from NetQ is copied, by its name; NetQ where a layer reads
                it there.
            rows:     Number of elements that come for each of them.
            every:    Whether the hidden vector of the last layer is sent in every time step.
        """
        slots, last = dict(entering), loop.layers[-1]
        with build.part(ProgramBuilder()) as opening:
            chains = _begun(build, loop.layers, loop, slots)
        with build.part(ProgramBuilder()) as step:
            for slot in (slot for slot in entering.values() if slot != NET):
                with build.program.section("network input", ""):
                    build.program.chain(read(NET), write(slot), rows=rows)
            _emit(build, chains)
            if every:
                build.program.note("result")
                build.program.chain(read(slots[last.name]), write(NET), rows=last.outputs)
        return cls(time=time, value=value, loop=loop, image=None, hidden=slots, opening=opening, step=step)

    def buffers(self) -> list[Buffer]:
        return [*([self.image.view.buffer] if self.image and self.image.view else []), *LayerPass.buffers(self)]

    def emit(self, config: Config, program: ProgramBuilder):
        program.splice(self.opening)
        if self.image is None:
            with program.repeated():
                program.splice(self.step)
            return
        first, bases = self.loop.layers[0], self._bases()
        steps, back = self.loop.entry.steps, -1 if first.reverse else 1
        for distance, base in bases.items():
            program.set_base(base, steps * distance if first.reverse else 0)
        with program.repeated(steps):
            if first.reverse:
                _move(program, bases, back)
            with program.section(f"{first.name}, input", first.name):
                self.image.take(program, bases)
            program.splice(self.step)
            region = Region(row=0, rows=1, column=0, columns=1, width=1, strip=0, bases=bases)
            for planned in self.chains:
                with program.section(planned.layer, planned.layer):
                    for part in planned.parts:
                        planned.chain.emit(config, program, region, part)
            if not first.reverse:
                _move(program, bases, back)

    def _bases(self) -> dict[int, int]:
        """The base register for each distance from one time step to the next.

        Raises:
            ValueError: there are more distances than base registers.
        """
        distances = [self.image.strides[0]] if self.image.view else []
        for planned in self.chains:
            views = [step.at for step in planned.chain.steps]
            views += [planned.chain.source.view] if isinstance(planned.chain.source, FromNumbers) else []
            distances += [moved_by(view) for view in views if isinstance(view, NumbersView | CodesView)]
        found = list(dict.fromkeys(distance for distance in distances if distance is not None))
        if len(found) > len(BASES):
            raise ValueError(f"layer {self.loop.layers[0].name!r}: what follows its hidden vectors is stored at "
                             f"{len(found)} different distances, and the machine has {len(BASES)} base registers: let "
                             "fewer layers read them")
        return {distance: 1 + k for k, distance in enumerate(found)}


def _move(program: ProgramBuilder, bases: dict[int, int], sign: int):
    """Move all base registers to the next time step."""
    for distance, base in bases.items():
        program.move_base(base, sign * distance)


def _begun(build: ModelBuild, layers: Sequence[Recurrent], loop: RecurrentLoop,
           slots: dict[str, Slot]) -> list[TimeStep]:
    """Emit the chains that set the initial states of layers.

    Args:
        layers: The layers of the loop, the first one as it reads the vector of a time step.
        slots: Slot of each tensor by its name, to which the hidden vectors are added.
    """
    steps = []
    for layer, source in zip(layers, loop.sources, strict=True):
        with build.program.section(f"{layer.name}, initial state", layer.name):
            steps.append(RECURRENT[type(layer)](build, layer, slots[source]))
            steps[-1].begin()
        slots[layer.name] = steps[-1].hidden
    return steps


def _emit(build: ModelBuild, steps: Sequence[TimeStep]):
    """Emit the chains of one time step of all layers."""
    for one in steps:
        with build.program.section(f"{one.layer.name}, time step", one.layer.name, one.layer.cell.name):
            one.emit()
