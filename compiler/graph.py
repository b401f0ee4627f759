"""Compile the graph of a model: the order of its layers, and the place of each result.

Recurrent layers share one loop over time steps; the chains of all other layers follow the loop. A result is stored in
each vector memory from which a consumer reads it. A result that only a concatenation reads is written directly to its
place in the concatenation.
"""

from concord.compiler.layers.registry import COMPILERS
from concord.compiler.lib.allocation import NET, Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.neighbours import ALONE, Neighbours
from concord.compiler.lib.program import read, write
from concord.compiler.lib.received import entering
from concord.compiler.lib.tensors import Tensor
from concord.compiler.recurrent.time_step import cell_name
from concord.golden.host.firmware import Direction
from concord.model.layers.layer import Layer
from concord.model.model import INPUT, Model
from concord.spec.memories import Mem

#: Name of the network's input when it comes in reverse order, from the last time step to the first one.
BACKWARD = "backward"


class Graph:
    """The compilation of one model.

    Args:
        build:      Collects chains and places.
        model:      A model of which all layers can be compiled.
        neighbours: The machines before and behind, where the model is a part.
    """

    def __init__(self, build: Build, model: Model, neighbours: Neighbours = ALONE):
        self._build, self._model, self._neighbours = build, model, neighbours
        self._made: dict[str, Tensor] = {}
        self._places: dict[tuple[str, Mem], Place] = {}
        #: Fields of the firmware about the input: there are no images.
        self.host = {"input_words": sum(map(build.config.words_of, entering(model)))} if neighbours.before else {}
        #: Names of the layers whose results are sent, in order.
        self.sent: list[str] = []

    def emit(self):
        """Emit the chains of all layers; the result goes to the host."""
        model = self._model
        self._made |= {name: self._entry(name) for name in self._inputs()}
        recurrent = [layer for layer in model.layers if layer.sequence]
        if recurrent:
            self._emit_recurrent(recurrent)
        else:
            self._take_input()
        for layer in model.layers:
            if not layer.sequence:
                self._emit_layer(layer)
            if layer.name in self._neighbours.sends[:-1]:
                self._send(layer)
        last = model.layers[-1]
        if last.sequence and not self._neighbours.steps:
            self._send(last)
        elif not last.sequence:
            self.sent.append(last.name)

    def _send(self, layer: Layer):
        """Send the result of a layer, the hidden vector of a recurrent one."""
        self._build.program.note("result")
        self._build.program.chain(read(self._made[layer.name].place), write(NET), rows=layer.outputs)
        self.sent.append(layer.name)

    def _emit_recurrent(self, layers: list[Layer]):
        """Emit the initial states, and then one loop over time steps with the chains of all recurrent layers."""
        build, states = self._build, {}
        for layer in layers:
            with build.program.section(f"{layer.name}, initial state", layer.name):
                state = COMPILERS[type(layer)].begin(build, layer, self._sources(layer)[0].place)
            states[layer.name] = state
            self._made[layer.name] = Tensor(
                name=layer.name, elements=layer.outputs, places={state.hidden.mem: state.hidden})
        build.program.begin_loop()
        self._take_input()
        for layer in layers:
            with build.program.section(f"{layer.name}, time step", layer.name, cell_name(layer)):
                COMPILERS[type(layer)].step(build, layer, states[layer.name], self._sources(layer)[0].place)
        if self._neighbours.steps:
            self._send(self._model.layers[-1])
        build.program.end_loop()

    def _emit_layer(self, layer: Layer):
        with self._build.program.section(layer.name, layer.name):
            targets = self._targets(layer)
            COMPILERS[type(layer)].emit(self._build, layer, self._sources(layer), targets)
        places = {target.mem: target for target in targets}
        self._made[layer.name] = Tensor(name=layer.name, elements=layer.outputs, places=places)

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The vectors that the host brings for each time step, in order."""
        return tuple(self._inputs().values())

    def _inputs(self) -> dict[str, Direction]:
        """The network's inputs and their directions: layers that begin with the last time step have their own input."""
        names = {INPUT: Direction.AHEAD, BACKWARD: Direction.BACKWARD}
        return {name: direction for name, direction in names.items() if self._uses(name)}

    def _entry(self, name: str) -> Tensor:
        """An input tensor. It stays in NetQ if one layer takes all of it there, otherwise it is copied to memories."""
        uses, elements = self._uses(name), self._model.inputs
        places = {Mem.NET_Q: NET}
        whole = not self._neighbours.before or elements % self._build.config.native_dim == 0
        if len(uses) > 1 or len(self._inputs()) > 1 or not whole or not COMPILERS[type(uses[0][0])].from_queue:
            places = {mem: self._place(name, mem, elements, "network input") for mem in self._memories(name)}
        return Tensor(name="network input", elements=elements, places=places)

    def _take_input(self):
        """Copy the network's input from NetQ to its places; from the host, it comes in whole native vectors."""
        for tensor in [self._made[name] for name in self._inputs()]:
            if Mem.NET_Q not in tensor.places:
                whole = tensor.place.words * self._build.config.mfu_lanes
                rows = self._model.inputs if self._neighbours.before else whole
                self._build.program.note("network input")
                self._build.program.chain(read(NET), *map(write, tensor.places.values()), rows=rows)

    def _names(self, layer: Layer) -> list[str]:
        """Names of the tensors that enter a layer."""
        return [BACKWARD if layer.reverse and name == INPUT else name for name in self._model.sources_of(layer)]

    def _sources(self, layer: Layer) -> list[Tensor]:
        return [self._made[name] for name in self._names(layer)]

    def _uses(self, name: str) -> list[tuple[Layer, int]]:
        """The layers that read a result, each with the index at which it enters."""
        return [(layer, index) for layer in self._model.layers
                for index, source in enumerate(self._names(layer)) if source == name]

    def _memories(self, name: str) -> list[Mem]:
        """The memories from which a result is read; consumers that can read from any memory use InitialVrf."""
        needed = [COMPILERS[type(layer)].reads(index) or Mem.INITIAL_VRF for layer, index in self._uses(name)]
        return sorted(set(needed)) or [Mem.INITIAL_VRF]

    def _targets(self, layer: Layer) -> tuple[Place, ...]:
        """The places to which the result of a layer is written."""
        if layer is self._model.layers[-1]:
            return (NET,)
        uses = self._uses(layer.name)
        if len(uses) == 1 and (slot := self._slot(*uses[0])):
            return (slot,)
        memories = self._memories(layer.name)
        return tuple(self._place(layer.name, mem, layer.outputs, f"{layer.name}, output") for mem in memories)

    def _slot(self, layer: Layer, index: int) -> Place | None:
        """The place of the tensor entering at `index` in a layer's result; None if the result does not contain it."""
        offsets = COMPILERS[type(layer)].offsets(layer, self._build.config)
        if offsets is None or layer is self._model.layers[-1]:
            return None
        memory = self._memories(layer.name)[0]
        return self._place(layer.name, memory, layer.outputs, f"{layer.name}, output").at(offsets[index])

    def _place(self, name: str, mem: Mem, elements: int, what: str) -> Place:
        """The place of a result in a memory, the same at every call."""
        if (name, mem) not in self._places:
            self._places[name, mem] = self._build.allocator.vector(mem, elements, what)
        return self._places[name, mem]
