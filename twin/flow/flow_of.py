"""Symbolic execution of firmware: the program runs once; memories and queues hold references instead of words."""

import numpy as np
from concord.firmware.check import require_single
from concord.firmware.firmware import Firmware
from concord.golden.schedule.vectorisation import WordPlan, plan
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import SPECS, Op
from concord.spec.isa.memories import QUEUES, Mem, addressed, depth
from concord.spec.machine.config import Config
from concord.twin.flow.flow import Flow, FlowStep, FlowValue, Origin, Refs
from concord.twin.flow.joined import Joined


def flow_of(firmware: Firmware, steps: int = 1, program: list[int] | None = None) -> Flow:
    """The data flow of the first run after the loading of memories.

    Args:
        firmware: The firmware.
        steps:    Time steps that the loop over time steps makes; ignored where there is none.
        program:  Words of another legal program for the same memories; that of the firmware if not given.

    Raises:
        ValueError: the loop cannot make as many steps, or the firmware takes several samples at once.
    """
    require_single(firmware, "a twin")
    modes = firmware.tiles.modes(firmware.config)
    sequencer = Sequencer(firmware.config, firmware.program(steps) if program is None else program, modes)
    execution = _Execution(firmware)
    for chain in sequencer.walk():
        execution.run(chain, sequencer.passes)
    return execution.flow()


class _Execution:
    """Memories of references, and what has been executed."""

    def __init__(self, firmware: Firmware):
        self._firmware, self._config = firmware, firmware.config
        self._memories, self._values, self._steps = {}, [], []
        for mem in (*addressed(self._config), Mem.MATRIX_RF):
            size = depth(self._config, mem)
            self._memories[mem] = Addressed(size, len(self._values))
            self._values.append(FlowValue(origin=Origin.IMAGE, mem=mem, count=size))
        self._input, self._taken = len(self._values), 0
        self._values.append(FlowValue(origin=Origin.INPUT, mem=Mem.NET_Q, count=0))
        self._queue, self._outputs = Queued(), []
        self._machines = firmware.machines if isinstance(firmware, Joined) else None
        self._links = [Queued() for _ in range(max(self._machines))] if self._machines else []
        self._machine = 0  # the one of the present chain
        self._plans: dict[Chain, WordPlan] = {}

    def flow(self) -> Flow:
        """The flow of the chains that have run."""
        self._values[self._input] = FlowValue(origin=Origin.INPUT, mem=Mem.NET_Q, count=self._taken)
        return Flow(firmware=self._firmware, steps=tuple(self._steps), values=tuple(self._values),
                    outputs=runs(self._outputs),
                    final={mem: memory.content() for mem, memory in self._memories.items()})

    def run(self, chain: Chain, passes: tuple[int, ...]):
        """Add the steps of a chain."""
        self._machine = self._machines[chain.address] if self._machines else 0
        if chain.outside:
            raise ValueError(f"{self._firmware.name}: the chain at instruction {chain.address} takes tiles, entries or "
                             "integers as they are packed in Dram, for which twins have no form")
        if chain.loads:
            self._load(chain, passes)
            return
        if chain not in self._plans:
            self._plans[chain] = plan(self._config, chain)
        addresses, operand = self._plans[chain].addresses, None
        for first, last in self._plans[chain].spans:
            if chain.product and first % chain.result_words == 0:
                operand = self._operand(chain, addresses[0], first, last)
            reads = {index: self._memories[SPECS[instruction.op].operand].read(addresses[index][first:last])
                     for index, instruction in enumerate(chain.instructions) if SPECS[instruction.op].operand}
            reads[0] = operand if chain.product else self._source(chain, addresses[0], first, last)
            makes = {index: self._write(chain, index, addresses[index], first, last)
                     for index, instruction in enumerate(chain.instructions) if instruction.op == Op.V_WR}
            tiles = None
            if chain.product:
                tiles = self._memories[Mem.MATRIX_RF].read(np.array(chain.tiles))
                tiles = shaped(tiles, chain.row_tiles, chain.registers.columns)
            self._steps.append(FlowStep(chain=chain, passes=passes, span=(first, last), reads=reads, tiles=tiles,
                                        makes=makes))

    def _load(self, chain, passes):
        """Add the step of a chain that loads native tiles, or makes them of vectors."""
        tiles, words, iterations = len(chain.tiles), chain.result_words, chain.registers.iterations
        if chain.builds:
            starts = chain.source.a + np.array([chain.source_offset(t) for t in range(iterations)])
            source = self._memories[chain.source.mem].read(starts[:, None] + np.arange(words))
        else:
            source = shaped(self._take(Mem.NET_Q, iterations * words), iterations, words)
        reads, index = {0: source}, len(chain.instructions) - 1
        makes = {index: self._made(Mem.MATRIX_RF, index, tiles)}
        self._memories[Mem.MATRIX_RF].write(np.array(chain.tiles), makes[index])
        self._steps.append(FlowStep(chain=chain, passes=passes, span=(0, iterations * words), reads=reads, tiles=None,
                                    makes=makes))

    def _operand(self, chain, addresses, first, last) -> Refs:
        """The operand of a product, for the iterations of a span that begins with an iteration."""
        begin, end = first // chain.result_words, -(-last // chain.result_words)
        if chain.source.mem in QUEUES:
            taken = self._take(chain.source.mem, (end - begin) * chain.source_words)
            return shaped(taken, end - begin, chain.source_words)
        return self._memories[chain.source.mem].read(addresses[begin:end])

    def _source(self, chain, addresses, first, last) -> Refs:
        """The source words of a chain without product, for each position and pixel."""
        if chain.source.mem in QUEUES:
            return shaped(self._take(chain.source.mem, last - first), last - first, 1)
        parts = self._config.vector_words if chain.from_entries else 1
        return self._memories[chain.source.mem].read(addresses[first:last], parts)

    def _take(self, mem, count) -> Refs:
        if mem == Mem.MVM_Q:
            return self._queue.take(count)
        if self._machine:
            return self._links[self._machine - 1].take(count)
        self._taken += count
        return runs([(self._input, self._taken - count, self._taken)])

    def _made(self, mem, index, count) -> int:
        """Index of the value that an instruction of the next step makes."""
        self._values.append(FlowValue(origin=Origin.MADE, mem=mem, step=len(self._steps), index=index, count=count))
        return len(self._values) - 1

    def _write(self, chain, index, addresses, first, last) -> int:
        """Run one `v_wr`; returns the index of its value."""
        mem = Mem(chain.instructions[index].mem)
        if mem == Mem.VECTOR_RF:
            first, last = complete_entries(self._config, chain, first), complete_entries(self._config, chain, last)
        elif mem == Mem.NET_Q and chain.normalises:
            first, last = complete_messages(chain, first), complete_messages(chain, last)
        value = self._made(mem, index, last - first)
        if mem == Mem.NET_Q and self._machine < len(self._links):
            self._links[self._machine].put(value, last - first)
        elif mem == Mem.NET_Q:
            self._outputs.append((value, 0, last - first))
        elif mem == Mem.MVM_Q:
            self._queue.put(value, last - first)
        else:
            self._memories[mem].write(addresses[first:last], value)
        return value


def complete_entries(config, chain: Chain, position: int) -> int:
    """Number of entries that a chain has completed before a position; an iteration begins with an entry."""
    iteration, word = divmod(position, chain.result_words)
    return iteration * chain.entries + word // config.vector_words


def complete_messages(chain: Chain, position: int) -> int:
    """Number of words of the messages that a chain has completed before a position."""
    return position // chain.result_words * chain.result_words


class Addressed:
    """A memory with addresses; at first, each address refers to the item of the same number of an image.

    Args:
        size:  Number of items.
        image: Index of the value of the image.
    """

    def __init__(self, size: int, image: int):
        self._value, self._item = np.full(size, image, np.int32), np.arange(size, dtype=np.int32)

    def read(self, addresses: np.ndarray, parts: int = 1) -> Refs:
        """References at addresses.

        Args:
            addresses: int[...], indices of items; or of their parts, part k of item i having the index i * parts + k.
            parts:     Number of parts of an item.

        Returns:
            References to items, or to parts if there are several, numbered in the same way.
        """
        if parts == 1:
            return Refs(value=self._value[addresses], item=self._item[addresses])
        item, part = np.divmod(addresses, parts)
        return Refs(value=self._value[item], item=self._item[item] * parts + part.astype(np.int32))

    def write(self, addresses: np.ndarray, value: int):
        """Let addresses refer to the items of a value in order; where an address stands twice, the later item stays."""
        self._value[addresses] = value
        self._item[addresses] = np.arange(len(addresses), dtype=np.int32)

    def content(self) -> Refs:
        """References at all addresses."""
        return Refs(value=self._value.copy(), item=self._item.copy())


class Queued:
    """A first-in first-out queue."""

    def __init__(self):
        self._runs: list[tuple[int, int, int]] = []  # value, first and last item of what waits, the oldest first

    def put(self, value: int, count: int):
        """Add the items of a value."""
        self._runs.append((value, 0, count))

    def take(self, count: int) -> Refs:
        """Remove the oldest items, which the checks of the program have found to be there."""
        taken = []
        while count:
            value, first, last = self._runs.pop(0)
            size = min(count, last - first)
            taken.append((value, first, first + size))
            if first + size < last:
                self._runs.insert(0, (value, first + size, last))
            count -= size
        return runs(taken)


def runs(parts: list[tuple[int, int, int]]) -> Refs:
    """References to ranges of values, each a value with its first and last item, one after the other."""
    if not parts:
        return Refs(value=np.zeros(0, np.int32), item=np.zeros(0, np.int32))
    return Refs(value=np.concatenate([np.full(last - first, value, np.int32) for value, first, last in parts]),
                item=np.concatenate([np.arange(first, last, dtype=np.int32) for _, first, last in parts]))


def shaped(refs: Refs, *shape: int) -> Refs:
    """The same references in another shape."""
    return Refs(value=refs.value.reshape(shape), item=refs.item.reshape(shape))


def built(config: Config, chain: Chain) -> np.ndarray:
    """Where the elements of the tiles lie that a chain makes of vectors.

    Returns:
        int64[tiles, N, N], index of each element among those of the words of all iterations; -1 for a zero.
    """
    registers, size = chain.registers, config.native_dim
    count, first = chain.tile_iterations, chain.source.a % config.vector_words * config.mfu_lanes
    found = np.full((len(chain.tiles), size, size), -1, np.int64)
    vectors = np.arange(registers.iterations).reshape(-1, count, 1) * chain.result_words * config.mfu_lanes
    found[:, :count, first:first + registers.rows] = vectors + np.arange(registers.rows)
    return found.swapaxes(1, 2) if chain.target.transposed else found
