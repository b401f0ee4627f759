"""Runs the chains of firmware in full precision: the same program, addresses and order, with quantisers off.

Each of three roundings can be put back alone: that of weights (by other `FullPrecision` images), that of vectors in
front of products, and that of all results to binary16. With all three, the results are the machine's bits.
"""

from collections.abc import Callable, Iterable

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.full_precision import FullPrecision
from concord.golden.host.counters import Counters
from concord.golden.lib.float16 import to_real
from concord.golden.schedule.arithmetic import RealArithmetic
from concord.golden.schedule.chain import Executor
from concord.golden.schedule.memory import MachineMemory, WordQueue
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.memories import Mem, depth
from concord.spec.machine.config import Config

#: Called with the name of a layer, the chain, the address of an instruction and its words float64[n, M].
Watch = Callable[[str, Chain, int, np.ndarray], None]


class UnquantizedMachine:
    """A machine that runs one firmware in float64.

    Args:
        firmware:    The firmware.
        images:      Content of its memories in real numbers; that which the firmware carries if it is None.
        activations: Whether vectors are quantised all the same.
        binary16:    Whether results are rounded to binary16 all the same.
        watch:       Function that is called with the result of every instruction.

    Raises:
        ValueError: no images are given, and the firmware carries none.
    """

    def __init__(self, firmware: Firmware, images: FullPrecision | None = None, *, activations: bool = False,
                 binary16: bool = False, watch: Watch | None = None):
        images = images or firmware.full_precision
        if images is None:
            raise ValueError(f"{firmware.name} holds no numbers in full precision: compile its model with "
                             "--full-precision")
        images.check(firmware.config, firmware)
        self._firmware, config, self._images = firmware, firmware.config, images
        arithmetic = RealArithmetic(config, activations=activations, binary16=binary16, clips=images.clips)
        self._chosen = _Chosen(frozenset(), self._images, self._images)
        self._arithmetic, self._memory = arithmetic, RealMemory(config, images, arithmetic)
        self._executor = Executor(config, self._memory, Counters(), arithmetic)
        self._sequencers: dict[int, Sequencer] = {}
        if watch:
            self._executor.trace = lambda chain, address, _, words: watch(
                firmware.layer_at(address), chain, address, words)

    def round_layers(self, layers: Iterable[str], images: FullPrecision):
        """Let the chains of some layers, and of these alone, compute with all roundings from now on.

        Args:
            layers: Names of the layers; none for no layer. "" has the chains that quantise the network's input.
            images: Content of the memories, of quantised weights and constants of binary16, for these chains.
        """
        images.check(self._firmware.config, self._firmware)
        self._chosen = _Chosen(frozenset(layers), self._images, images)

    def infer(self, sample: np.ndarray) -> np.ndarray:
        """The result float64[outputs] of one input.

        Args:
            sample: uint16[inputs], or uint16[steps, inputs] where the network is recurrent.

        Raises:
            ValueError: `sample` has another shape.
        """
        firmware, executor = self._firmware, self._executor
        executor.memory.net_in.put(to_real(firmware.words_of(sample)))
        for chain in self._sequencer(len(sample) if firmware.loop is not None else 1).walk():
            self._chosen.switch(firmware.layer_at(chain.address), self._arithmetic, self._memory)
            for _ in executor.run(chain):
                raise ValueError(f"{firmware.name} waits for more words than one input has: compile again")
        words = np.concatenate([np.zeros(0), *(message.ravel() for message in executor.outputs)])
        executor.outputs.clear()
        self._chosen.switch(None, self._arithmetic, self._memory)
        return firmware.result(words)

    def _sequencer(self, steps: int) -> Sequencer:
        """The walk through the program of as many time steps."""
        if steps not in self._sequencers:
            firmware = self._firmware
            self._executor.forget()
            self._sequencers = {steps: Sequencer(
                firmware.config, firmware.program(steps), firmware.tiles.modes(firmware.config))}
        return self._sequencers[steps]


class _Chosen:
    """Layers whose chains compute with all roundings, on memories of their own.

    Only constants differ from one content of the vector memories and of VectorRf to the other, and nothing is written
    over these. Those of VectorRf are the borders of images, which the layer that reads an image has rounded or not.

    Args:
        layers: Names of the layers.
        others: Content of the memories for all other chains.
        own:    Content of the memories for the chains of these layers.
    """

    def __init__(self, layers: frozenset[str], others: FullPrecision, own: FullPrecision):
        self._layers, self._contents, self._on = layers, (others, own), False
        self._differing = {mem: np.nonzero(words != own.vectors[mem]) for mem, words in others.vectors.items()}
        self._borders = [(one.address, np.nonzero(one.values != rounded.codes), one.values, rounded.codes)
                         for one, rounded in zip(others.entries, own.entries, strict=True)]

    def switch(self, layer: str | None, arithmetic: RealArithmetic, memory: "RealMemory"):
        """Choose the arithmetic and the contents for a chain of a layer; None for those between two inferences."""
        on = layer in self._layers
        if on == self._on:
            return
        self._on, content = on, self._contents[on]
        arithmetic.activations = arithmetic.binary16 = on
        kept = np.flatnonzero(~memory.matrix.made[:len(content.tiles)])
        memory.matrix.values[kept] = content.tiles[kept]
        memory.biases[:len(content.biases)] = content.biases
        for mem, at in self._differing.items():
            memory.vectors[mem][:len(content.vectors[mem])][at] = content.vectors[mem][at]
        for address, at, values, codes in self._borders:
            memory.entries.values[address:address + len(values)][at] = (codes if on else values)[at]


class RealVectorRf:
    """VectorRf in full precision.

    Attributes:
        values: float64[entries, N].
    """

    def __init__(self, config: Config, arithmetic: RealArithmetic):
        self._config, self._arithmetic = config, arithmetic
        self.values = np.zeros((config.vector_rf, config.native_dim))

    def store(self, addresses: np.ndarray, vectors: np.ndarray, **mode):
        """Write vectors float64[n, N] to entries, quantised where the arithmetic quantises vectors."""
        self.values[addresses] = self._arithmetic.quantized(vectors, **mode)

    def operands(self, addresses: np.ndarray) -> tuple[np.ndarray, None]:
        """Numbers float64[..., N] of entries, and nothing instead of exponents."""
        return self.values[addresses], None

    def numbers(self, words: np.ndarray, **_mode) -> np.ndarray:
        """Words float64[..., M] of entries; word k of entry a has the index a * N/M + k."""
        return self._arithmetic.rounded(self.values.reshape(-1, self._config.mfu_lanes)[words])


class RealMatrixRf:
    """MatrixRf in full precision.

    Attributes:
        values: float64[tiles, N, N].
        made:   bool[tiles], those that the program has made of vectors.
        marks:  Zeros, because nothing counts the cycles of such a machine.
    """

    def __init__(self, config: Config, arithmetic: RealArithmetic):
        self._arithmetic = arithmetic
        self.values = np.zeros((config.matrix_tiles, config.native_dim, config.native_dim))
        self.made = np.zeros(config.matrix_tiles, bool)
        self.marks = np.zeros(config.matrix_tiles, np.int64)

    def load(self, tile: int, words: np.ndarray, *, integer: bool, full: bool = False):
        """Store the rows float64[N, N] of one tile; `full`: they are vectors that the program has computed."""
        self.values[tile] = self._arithmetic.tile(words, integer=integer) if full else words
        self.made[tile] = full

    def weights(self, tiles: range, row_tiles: int) -> tuple[np.ndarray, None]:
        """Weights float64[row_tiles, columns, N, N] of a product's tiles, and nothing instead of exponents."""
        n = self.values.shape[-1]
        return self.values[tiles.start:tiles.stop].reshape(row_tiles, -1, n, n), None


class RealMemory(MachineMemory):
    """All memories of a machine, with words of float64.

    Args:
        config:     The machine.
        images:     What the memories hold at first.
        arithmetic: Arithmetic that quantises what VectorRf stores.
    """

    dtype = np.float64
    entries: RealVectorRf
    matrix: RealMatrixRf

    def __init__(self, config: Config, images: FullPrecision, arithmetic: RealArithmetic):
        lanes, self.vectors = config.mfu_lanes, self.blank_vectors(config)
        for mem, words in images.vectors.items():
            self.vectors[mem][:len(words)] = arithmetic.rounded(words)
        self.entries = RealVectorRf(config, arithmetic)
        for part in images.entries:
            chosen = slice(part.address, part.address + len(part.values))
            self.entries.values[chosen] = part.codes if arithmetic.activations else part.values
        self.matrix = RealMatrixRf(config, arithmetic)
        self.matrix.values[:len(images.tiles)] = images.tiles
        self.biases = np.zeros((depth(config, Mem.BIAS_RF), lanes))
        self.biases[:len(images.biases)] = images.biases
        self.net_in, self.mvm = WordQueue(lanes, self.dtype), WordQueue(lanes, self.dtype)
