"""Firmware: a program for one machine, and the content of the memories before it starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from concord.firmware.check import check_program, check_shapes
from concord.firmware.full_precision import FullPrecision
from concord.firmware.layout import Layout
from concord.golden.host import messages
from concord.lib.input_axes import InputAxes, check_table
from concord.lib.several import Results, check
from concord.spec.host.messages import MessageKind, unpack
from concord.spec.isa.instructions import Instruction, Op, decode, decoded, encode
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config, preset_name


class ReadDirection(StrEnum):
    """Direction in which the host reads a sequence for a time step."""

    AHEAD = "ahead"  #: from its start: the vector of the time step
    BACKWARD = "backward"  #: from its end: the vector of the mirrored time step


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """The instructions of one layer.

    Attributes:
        layer: Name of the layer.
        first: Address of the first instruction.
        last:  Address of the last instruction.
        kind:  What the layer is, such as `lstm`; a hint for people, which the machine ignores, or empty.
        names: Addresses of chains and the names of what they compute, such as the gates of a cell; hints, too.
    """

    layer: str
    first: int
    last: int
    kind: str = ""
    names: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tiles:
    """Content of MatrixRf, from tile 0 up.

    Attributes:
        mantissas: int16[tiles, N, N], row by row.
        exponents: int8[tiles, N], exponent E of each row; ignored in integer mode.
        integer:   bool[tiles], whether each tile is in integer mode.
    """

    mantissas: np.ndarray
    exponents: np.ndarray
    integer: np.ndarray

    def modes(self, config: Config) -> list[bool]:
        """Whether each tile of a machine is in integer mode before the program starts."""
        return self.integer.tolist() + [False] * (config.matrix_tiles - len(self.integer))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Entries:
    """Content of a range of VectorRf. An entry has no mode; integers have the exponent `e_min` of the activations.

    Attributes:
        address:   First entry.
        mantissas: int16[entries, N].
        exponents: int8[entries], exponent E of each entry.
    """

    address: int
    mantissas: np.ndarray
    exponents: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Firmware:
    """A compiled network.

    Attributes:
        name:              Name of the network.
        config:            Machine that the firmware is for.
        data:              Name of the network's test set.
        classes:           Names of the outputs; may be empty.
        inputs:            Elements of one input vector.
        outputs:           Elements of the result.
        loop:              Address of the loop over time steps, or None where an input is one vector or the number of
            time steps is fixed. The instructions before it set the states; all others stand after it.
        text:              Program text.
        instruction_words: uint64[instructions], the program; its loop makes one step.
        sections:          Instructions of each layer, in rising order of addresses; a layer may have several sections.
        vectors:           uint16[words, M], the content of each vector memory in use, and of Dram, from address 0 up.
        tiles:             Content of MatrixRf.
        biases:            int32[words, M], the content of BiasRf.
        input_words:       Words of one input vector, padded with zeros; None for whole native vectors.
        directions:        Directions of the vectors that the host sends for each time step, in order.
        entries:           Contents of ranges of VectorRf.
        batch:             Number of samples that one run takes, each a vector.
        constant_words:    Number of words of Dram, from address 0 up, that the program never writes.
        input_layout:      Order in which the elements of an image are sent; None for the order of the sample.
        output_layout:     Order in which the elements of the result come; None for the order of the result.
        steps:             Number of time steps of every input, which is sent as an image of one row; None for vectors,
            images, and sequences of any length.
        description:       Text that says how the network's data are read, as its model has it; may be empty.
        axes:              Axes of an input, in the file of the network and as the machine reads them; None where the
            network comes from no file.
        results:           Names and numbers of elements of the tensors that lie one after the other in the result;
            empty for one.
        table:             Vectors float32[rows, size] of an embedding, which the host looks up; None for none.
        full_precision:    The content of the memories before any rounding, if the firmware carries it.

    Raises:
        ValueError: parts do not fit the machine or each other, or the program is illegal.
    """

    name: str
    config: Config
    data: str
    classes: tuple[str, ...]
    inputs: int
    outputs: int
    loop: int | None
    text: str
    instruction_words: np.ndarray
    sections: tuple[Section, ...]
    vectors: Mapping[Mem, np.ndarray]
    tiles: Tiles
    biases: np.ndarray
    input_words: int | None = None
    directions: tuple[ReadDirection, ...] = (ReadDirection.AHEAD,)
    entries: tuple[Entries, ...] = ()
    batch: int = 1
    constant_words: int = 0
    input_layout: Layout | None = None
    output_layout: Layout | None = None
    steps: int | None = None
    description: str = ""
    axes: InputAxes | None = None
    results: Results = ()
    table: np.ndarray | None = None
    full_precision: FullPrecision | None = None

    def __post_init__(self):
        check_shapes(self)
        check(self.results, self.outputs)
        check_table(self.table, self.inputs)
        check_program(self)
        if self.full_precision is not None:
            self.full_precision.check(self.config, self)

    @property
    def recurrent(self) -> bool:
        """Whether an input is a sequence of vectors."""
        return self.loop is not None or self.steps is not None

    @property
    def image(self) -> tuple[int, int, int] | None:
        """Channels, rows and columns of the input, if the host sends it as an image; otherwise None."""
        layout = None if self.recurrent or self.batch > 1 else self.input_layout
        return (layout.channels, layout.rows, layout.columns) if layout else None

    @property
    def uses_entries(self) -> bool:
        """Whether the program reads or writes VectorRf."""
        instructions = decoded(self.instruction_words.tolist())
        return any(i.op in (Op.V_RD, Op.V_WR) and i.mem == Mem.VECTOR_RF for i in instructions)

    @property
    def output_words(self) -> int:
        """Number of words of the OUTPUT messages of one input."""
        layout, config = self.output_layout, self.config
        return config.words_of(layout.order().size if layout else self.outputs)

    def layer_at(self, address: int) -> str:
        """Name of the layer that the instruction at `address` belongs to; empty where it belongs to none."""
        return next((s.layer for s in self.sections if s.first <= address <= s.last), "")

    def program(self, steps: int = 1, *, keep_state: bool = False) -> list[int]:
        """The instruction words.

        Args:
            steps:      Time steps of the loop.
            keep_state: Whether to begin at `resumes`, so that the first step goes on from the states that the last run
                left in the vector memories.

        Raises:
            ValueError: the loop cannot make as many steps, or there are no states.
        """
        if keep_state and self.steps is not None:
            raise ValueError(f"{self.name} takes whole sequences of {self.steps} time steps and keeps no state after "
                             "them: leave out --keep-state")
        if keep_state and self.loop is None:
            raise ValueError(f"{self.name} takes one vector at a time and has no state to keep: leave out --keep-state")
        if keep_state and ReadDirection.BACKWARD in self.directions:
            raise ValueError(f"{self.name} reads a sequence from its end, too, so that it cannot go on: leave out "
                             "--keep-state")
        words = [int(word) for word in self.instruction_words]
        if self.loop is None:
            return words
        if not 1 <= steps <= 65535:
            raise ValueError(f"a sequence has 1 to 65535 time steps, not {steps}; cut it")
        words[self.loop] = encode(Instruction(op=Op.LOOP, a=steps))
        return words[self.resumes :] if keep_state else words

    @property
    def resumes(self) -> int:
        """Where the program begins if states are kept: the loop, with the registers that are set directly before."""
        first = self.loop or 0
        while first and (one := decode(int(self.instruction_words[first - 1]))) and one.op is Op.S_WR:
            first -= 1
        return first

    def memory_messages(self) -> list[bytes]:
        """The messages that fill the memories; they are sent before the program."""
        sent = [messages.write_message(self.config, mem, words) for mem, words in self.vectors.items()]
        lowest = self.config.activations.e_min
        sent += [messages.entries_message(self.config, part.mantissas, part.exponents.astype(np.int64) - lowest,
                                          part.address) for part in self.entries]
        for first, last in _runs(self.tiles.integer):
            integer = bool(self.tiles.integer[first])
            stored = self.tiles.exponents[first:last].astype(np.int64) - self.config.weights.e_min
            sent.append(
                messages.packed_message(
                    self.config, self.tiles.mantissas[first:last], stored * (not integer), first, integer=integer
                )
            )
        return sent + [messages.bias_message(self.config, self.biases)] * bool(len(self.biases))

    def program_message(self, steps: int = 1, *, keep_state: bool = False) -> bytes:
        """The message that sends the program. It has the arguments of `program`."""
        return messages.program_message(self.config, self.program(steps, keep_state=keep_state))

    def input_message(self, sample: np.ndarray) -> bytes:
        """The message that sends one input, with the argument and the errors of `words_of`."""
        return messages.input_message(self.config, self.words_of(sample))

    def words_of(self, sample: np.ndarray) -> np.ndarray:
        """The words uint16[words, M] that the host sends for one input, or for a batch.

        Args:
            sample: uint16[inputs], or uint16[steps, inputs] where the network is recurrent, or uint16[samples, inputs]
                where a run takes a batch: missing ones are zeros.

        Raises:
            ValueError: `sample` has another shape.
        """
        if self.batch > 1:
            return self._words_of_batch(sample if sample.ndim == 2 else sample.reshape(1, -1))
        shape = (self.steps or len(sample), self.inputs) if self.recurrent else (self.inputs,)
        if sample.shape != shape or sample.dtype != np.uint16:
            wanted = f"[{self.steps or 'steps'}, {self.inputs}]" if self.recurrent else f"[{self.inputs}]"
            raise ValueError(f"{self.name} takes uint16{wanted}, not {sample.dtype}{list(sample.shape)}")
        if self.steps is not None:
            sample = sample.T
        elif self.recurrent:
            ordered = {ReadDirection.AHEAD: sample, ReadDirection.BACKWARD: sample[::-1]}
            sample = np.stack([ordered[direction] for direction in self.directions], axis=1).reshape(-1, self.inputs)
        sample = sample.reshape(-1, self.inputs * (self.steps or 1))
        if self.input_layout:
            return self.input_layout.laid(sample).reshape(-1, self.config.mfu_lanes)
        words = self.input_words or self.config.vectors_of(self.inputs) * self.config.vector_words
        padded = np.zeros((len(sample), words * self.config.mfu_lanes), np.uint16)
        padded[:, : self.inputs] = sample
        return padded.reshape(-1, self.config.mfu_lanes)

    def _words_of_batch(self, samples: np.ndarray) -> np.ndarray:
        """The words of samples uint16[samples, inputs], which are columns of an image of one row."""
        if samples.shape[1] != self.inputs or not 1 <= len(samples) <= self.batch or samples.dtype != np.uint16:
            raise ValueError(f"{self.name} takes uint16[1 to {self.batch}, {self.inputs}], not "
                             f"{samples.dtype}{list(samples.shape)}")
        assert self.input_layout is not None  # see `check_program`
        columns = np.pad(samples.T, ((0, 0), (0, self.batch - len(samples))))
        return self.input_layout.laid(columns.reshape(-1)).reshape(-1, self.config.mfu_lanes)

    def output(self, received: Sequence[bytes]) -> np.ndarray:
        """uint16[outputs] from the OUTPUT messages of one input, or uint16[batch, outputs] from those of a batch.

        Raises:
            ValueError: the messages hold too few or too many words.
        """
        payloads = [unpack(self.config, data, to_machine=False) for data in received]
        words = b"".join(message.payload for message in payloads if message.kind == MessageKind.OUTPUT)
        return self.result(np.frombuffer(words, "<u2").astype(np.uint16))

    def result(self, values: np.ndarray) -> np.ndarray:
        """The result [outputs] from the elements of all words of one input, in any type; of a batch [batch, outputs].

        Raises:
            ValueError: there are too few or too many elements.
        """
        layout, lanes, wanted = self.output_layout, self.config.mfu_lanes, self.output_words
        if len(values) != wanted * lanes:
            raise ValueError(f"{self.name} gives {wanted} words for one input, {len(values) // lanes} came")
        if layout is None:
            return values[: self.outputs]
        taken = layout.taken(values)
        return taken.reshape(self.outputs, self.batch).T if self.batch > 1 else taken


def _machine_name(config: Config) -> str:
    """Name of a machine for messages: its preset, if it has one, and its digest."""
    name = preset_name(config)
    return f"{name} ({config.digest:08x})" if name else f"{config.digest:08x}"


def check_machine(firmware: Firmware, config: Config):
    """Refuse firmware for another machine.

    Raises:
        ValueError: the firmware is for another machine; the sentence names both.
    """
    if firmware.config.digest != config.digest:
        raise ValueError(
            f"firmware {firmware.name!r} is for machine {_machine_name(firmware.config)}, "
            f"this one is {_machine_name(config)}: compile the model for it"
        )


def _runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """Range [first, last) of each run of equal flags."""
    cuts = [0, *(np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist(), len(flags)]
    return [(first, last) for first, last in zip(cuts, cuts[1:], strict=False) if last > first]
