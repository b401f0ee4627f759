"""The whole machine, which takes messages and register accesses and returns messages."""

from collections.abc import Iterator

import numpy as np
from concord.golden.host.counters import Counters
from concord.golden.host.messages import entries_message, entries_of, words_of
from concord.golden.mvm.elements import unpack_tiles
from concord.golden.mvm.overflow import wrap
from concord.golden.schedule.chain import Executor
from concord.golden.schedule.memory import MachineMemory
from concord.spec.host.messages import HEADER, Message, MessageKind, announced, pack, unpack
from concord.spec.host.registers import ADDRESSES, Control, Counter, Register, Status, counters
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import Config


class Machine:
    """A neural network processor in numpy, with the same host protocol as hardware.

    A program runs when `run` is called, on the words that the host has sent. If NetQ is empty, it waits for more words
    and another `run`.

    Attributes:
        config:   Configuration of the machine.
        memory:   Memories of the machine.
        counters: Event counters of the machine.
        executor: Executor of chains; its `trace` may be set.
    """

    def __init__(self, config: Config):
        self.config = config
        self.memory = MachineMemory(config)
        self.counters = Counters()
        self.executor = Executor(config, self.memory, self.counters)
        self._sent: list[bytes] = []
        self._waiting: list[bytes] = []
        self._sequencer: Sequencer | None = None
        self._run: Iterator[None] | None = None
        self._counted = 0  # Instructions of this run that have been counted.
        self._done, self._error, self._error_address = False, Error.NONE, 0
        self._refused = False  # Whether a message was malformed since the last reset.
        # Registers that hold what is written to them.
        self._held = {Register.PEER: 0} | ({Register.DRAM_BASE: 0} if config.dram_words else {})

    def send(self, data: bytes):
        """Take one message. A malformed one stops the machine until reset; most kinds wait while a program runs."""
        if self._run and self._waiting:
            self._waiting.append(data)  # nobody has looked at it yet
        else:
            self._take(data)

    def _take(self, data: bytes):
        """Execute a message that has come to the front, or let it wait for the program that runs, behind its header."""
        try:
            if self._run and len(data) > HEADER.size and (
                    announced(self.config, data, to_machine=True).kind != MessageKind.INPUT):
                self._waiting.append(data)
            else:
                self._apply(unpack(self.config, data, to_machine=True))
        except ValueError:
            self._refused = True
            if self._error == Error.NONE:
                self._stop(Error.MESSAGE, 0)

    def receive(self) -> list[bytes]:
        """The messages that the machine has sent since the last call."""
        sent, self._sent = self._sent, []
        return sent

    def start(self):
        """Start the program at instruction 0, unless one runs, or a message was malformed since the last reset."""
        if self._run or self._refused:
            return
        self._done, self._error, self._error_address = False, Error.NONE, 0
        self.memory.mvm.clear()
        if self._sequencer is None:
            self._sequencer = Sequencer(self.config, self.memory.program, self.memory.matrix.modes)
            self.executor.forget()
        self._counted = 0
        self._run = self._chains(self._sequencer)

    def run(self) -> Status:
        """Run until the program is done or waits for input."""
        if self._run and (sequencer := self._sequencer):
            try:
                next(self._run)
            except StopIteration:
                self._finish()
            except Violation as violation:
                self._stop(violation.error, violation.address)
            self._count(sequencer)  # a program that waited until this one was done has replaced that of the machine
            self._send_outputs()
        return self.status

    def reset(self):
        """Reset everything except memories and counters."""
        self._run, self._refused = None, False
        self._done, self._error, self._error_address = False, Error.NONE, 0
        self.memory.net_in.clear()
        self.memory.mvm.clear()
        self.executor.reset()
        # The first waiting message has begun and is lost; those after it have not begun.
        waiting, self._waiting = self._waiting[1:], []
        for data in waiting:
            self._take(data)

    def clear(self):
        """Clear the counters."""
        self.counters.clear()

    def write_register(self, address: int, value: int):
        """Write a register of the control port."""
        address &= ADDRESSES
        if address in self._held:
            self._held[Register(address)] = value
        if address != Register.CONTROL:
            return
        if value & Control.RESET:
            value &= ~Control.START
        for control, command in ((Control.RESET, self.reset), (Control.CLEAR, self.clear), (Control.START, self.start)):
            if value & control:
                command()

    def read_register(self, address: int) -> int:
        """Read a register of the control port; time counters read as 0."""
        address &= ADDRESSES
        config, index = self.config, (address - Register.COUNTERS) // 4
        if index in self.counters.values:
            return self.counters.values[Counter(index)]
        return {
            Register.STATUS: int(self.status), Register.ERROR: int(self._error),
            Register.ERROR_ADDRESS: self._error_address, Register.DIGEST: config.digest,
            Register.NATIVE_DIM: config.native_dim, Register.LANES: config.lanes,
            Register.TILE_ENGINES: config.tile_engines, Register.MFU_LANES: config.mfu_lanes,
            Register.MATRIX_TILES: config.matrix_tiles, Register.INSTRUCTIONS: config.instructions,
            Register.COUNTER_COUNT: len(counters(config)), **self._held}.get(address, 0)

    @property
    def status(self) -> Status:
        """State of the machine. A program that is not done after `run` waits for input."""
        state = Status.RUNNING | Status.WAIT_INPUT if self._run else Status(0)
        return state | self.executor.flags | (Status.DONE if self._done else Status(0))

    def _chains(self, sequencer: Sequencer) -> Iterator[None]:
        for chain in sequencer.walk():
            yield from self.executor.run(chain)

    def _count(self, sequencer: Sequencer):
        self.counters.add(Counter.INSTRUCTIONS, sequencer.executed - self._counted)
        self._counted = sequencer.executed

    def _stop(self, error: Error, address: int):
        self._error, self._error_address = error, address
        self._finish()

    def _finish(self):
        self._done, self._run = self._done or self._run is not None, None
        self._send_outputs()
        while self._waiting:
            self._take(self._waiting.pop(0))

    def _send_outputs(self):
        peer = self._held[Register.PEER]  # digest of the machine that takes the results; 0 for the host
        for words in self.executor.outputs:
            if peer:
                self._reply(MessageKind.INPUT, 0, 0, words, peer)
            else:
                self._reply(MessageKind.OUTPUT, 0, 0, words)
        self.executor.outputs.clear()

    def _reply(self, kind, memory, address, words, digest=None):
        self._sent.append(pack(self.config, Message(
            kind=kind, memory=memory, address=address, count=len(words), payload=words.astype("<u2").tobytes()),
            digest=digest))

    def _apply(self, message: Message):
        """Execute a well-formed message."""
        config, first, last = self.config, message.address, message.address + message.count
        match message.kind:
            case MessageKind.INPUT:
                self.memory.net_in.put(words_of(config, message))
            case MessageKind.WRITE | MessageKind.READ if message.memory == Mem.VECTOR_RF:
                self._access_entries(message)
            case MessageKind.WRITE:
                self.memory.vectors[Mem(message.memory)][first:last] = words_of(config, message)
            case MessageKind.READ:
                words = self.memory.vectors[Mem(message.memory)][first:last]
                self._reply(MessageKind.READ, message.memory, first, words)
            case MessageKind.BIAS:
                biases = np.frombuffer(message.payload, "<i4").astype(np.int64).reshape(-1, config.mfu_lanes)
                self.memory.biases[first:last] = wrap(biases, config.bias_bits)
            case MessageKind.PACKED:
                self.memory.matrix.store(first, *unpack_tiles(config, message.payload))
                self.memory.matrix.modes[first:last] = [message.integer] * message.count
            case MessageKind.UPDATE:
                self._update(message)
            case MessageKind.PROGRAM:
                self.memory.program[first:last] = np.frombuffer(message.payload, "<u8").tolist()
                self._sequencer = None

    def _access_entries(self, message: Message):
        """Write or read entries of VectorRf."""
        entries, chosen = self.memory.entries, slice(message.address, message.address + message.count)
        if message.kind == MessageKind.WRITE:
            entries.mantissas[chosen], entries.exponents[chosen] = entries_of(self.config, message)
        else:
            self._sent.append(entries_message(self.config, entries.mantissas[chosen], entries.exponents[chosen],
                                              message.address, kind=MessageKind.READ))

    def _update(self, message: Message):
        """Run one pass of the lazy update; only a final pass is counted."""
        from concord.golden.lazy.lazy_update import one_pass
        from concord.golden.lazy.update_messages import update_of, updated_message

        old, update, exponent, change = update_of(self.config, message)
        done = one_pass(old, update, exponent, change)
        self._sent.append(updated_message(self.config, message.address, done))
        if not done.repeat:
            for counter, count in ((Counter.LAZY_STEPS, done.steps), (Counter.LAZY_CHANGES, int(change != 0)),
                                   (Counter.LAZY_ROUNDED, done.rounded), (Counter.LAZY_SATURATIONS, done.saturations)):
                self.counters.add(counter, count)
