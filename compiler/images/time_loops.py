"""Loops over the time steps of an image: recurrent layers, and what follows their hidden vectors in each step.

The image lies in a vector memory. A base register holds how far the present time step is away from the first one;
another one does so for each distance between the pixels of what the loop writes.
"""

from dataclasses import dataclass, field

from concord.compiler.images.buffers import Buffer
from concord.compiler.images.entries import Entry
from concord.compiler.images.passes import Pass
from concord.compiler.images.sources import FromNumbers, Region, moved_by
from concord.compiler.images.storage import CodesView, NumbersView
from concord.compiler.images.values import Value
from concord.compiler.images.wiring import Loop
from concord.compiler.lib.allocation import Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.program import Program
from concord.compiler.recurrent.registry import RECURRENT
from concord.compiler.recurrent.time_step import cell_name
from concord.model.layers.layer import unchecked
from concord.spec.config import Config
from concord.spec.isa import BASES, Instruction, Op, Reg
from concord.spec.memories import Mem


@dataclass(kw_only=True, slots=True, eq=False)
class TimeLoop(Pass):
    """The pass of a loop over time steps. Its chains run in each step, for the pixel of the step.

    Attributes:
        loop:    The layers.
        entry:   The time steps of the image.
        view:    The numbers of the image; None where the host sends one time step after the other.
        x:       Place of the vector of the present time step.
        scale:   Place of what this vector is multiplied by, or None.
        hidden:  Place of the hidden vector of each layer, by its name.
        opening: Chains that set the initial states.
        step:    Chains of the recurrent layers in one time step.
    """

    loop: Loop
    entry: Entry
    view: NumbersView | None
    x: Place
    scale: Place | None
    hidden: dict[str, Place] = field(default_factory=dict)
    opening: Program
    step: Program

    @classmethod
    def begin(
        cls, build: Build, time: int, value: Value, loop: Loop, image: Value, view: NumbersView | None,
    ) -> "TimeLoop":
        """Make the chains of the recurrent layers, and take the places that they need.

        Args:
            value: Hidden vector of the first layer.
            image: The image that it reads.
            view:  The numbers of the image, or None.
        """
        entry = Entry(config=build.config, entry=loop.entry, value=image)
        first = entry.spread(loop.layers[0])
        build.set_content(entry.spread(build.content(loop.layers[0])))
        scale = entry.scale(first)
        if scale is not None:
            first = unchecked(first, input_quant_scale=None)
            scale = build.allocator.constant(Mem.MULTIPLY_VRF0, scale, f"{first.name}, input scale")
        # Block floating point needs the first hidden vector directly behind x.
        x = build.allocator.vector(Mem.INITIAL_VRF, entry.lanes, f"{first.name}, input")
        hidden, states, sources = {}, {}, {first.name: x}
        with build.part() as opening:
            for layer, source in zip((first, *loop.layers[1:]), (None, *loop.sources[1:]), strict=True):
                sources[layer.name] = hidden.get(source, x)
                with build.program.section(f"{layer.name}, initial state", layer.name):
                    states[layer.name] = RECURRENT[type(layer)].begin(build, layer, sources[layer.name])
                hidden[layer.name] = states[layer.name].hidden
        with build.part() as step:
            for layer in (first, *loop.layers[1:]):
                with build.program.section(f"{layer.name}, time step", layer.name, cell_name(layer)):
                    RECURRENT[type(layer)].step(build, layer, states[layer.name], sources[layer.name])
        return cls(time=time, value=value, loop=loop, entry=entry, view=view, x=x, scale=scale, hidden=hidden,
                   opening=opening, step=step)

    def buffers(self) -> list[Buffer]:
        return [*([self.view.buffer] if self.view else []), *Pass.buffers(self)]

    def emit(self, config: Config, program: Program):
        first, bases = self.loop.layers[0], self._bases()
        steps, back = self.loop.entry.steps, -1 if first.reverse else 1
        program.splice(self.opening)
        for distance, base in bases.items():
            program.set_base(base, steps * distance if first.reverse else 0)
        with program.repeated(steps):
            if first.reverse:
                self._move(program, bases, back)
            with program.section(f"{first.name}, input", first.name):
                self._take(program, bases)
            program.splice(self.step)
            region = Region(row=0, rows=1, column=0, columns=1, width=1, strip=0, bases=bases)
            for planned in self.chains:
                with program.section(planned.layer, planned.layer):
                    for part in planned.parts:
                        planned.chain.emit(config, program, region, part)
            if not first.reverse:
                self._move(program, bases, back)

    def _bases(self) -> dict[int, int]:
        """The base register for each distance from one time step to the next.

        Raises:
            ValueError: there are more distances than base registers.
        """
        distances = [self._strides[0]] if self.view else []
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

    @property
    def _strides(self) -> tuple[int, int]:
        """Distances in words from one time step, and from one pixel of a time step, to the next."""
        return self.entry.strides(self.view.stride)

    def _move(self, program: Program, bases: dict[int, int], sign: int):
        """Move all base registers to the next time step."""
        for distance, base in bases.items():
            program.move_base(base, sign * distance)

    def _take(self, program: Program, bases: dict[int, int]):
        """Bring the vector of the present time step to the place where the first layer reads it."""
        count, inc = self.entry.pixels, int(self.entry.pixels > 1)
        chain, between = [Instruction(op=Op.V_RD, mem=Mem.NET_Q)], 0
        if self.view:
            step, between = self._strides
            chain = [Instruction(
                op=Op.V_RD, mem=self.view.buffer.mem, a=self.view.address(0), inc=inc, base=bases[step])]
        if self.scale is not None:
            chain.append(Instruction(op=Op.VV_MUL0, a=self.scale.address, inc=inc))
        chain.append(Instruction(op=Op.V_WR, mem=self.x.mem, a=self.x.address, inc=inc))
        moving = {Reg.STRIDE_X: between, Reg.STRIDE_OUT: self.entry.apart} if inc else {}
        program.chain(*chain, rows=self.entry.value.lanes,
                      registers={Reg.ITERATIONS: count, Reg.ITERATIONS_X: count, **moving})
