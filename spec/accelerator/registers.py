"""The control port of an accelerator: 32-bit registers over AXI4-Lite, 16-bit byte addresses.

The window of 4,096 bytes at 0 belongs to the command processor; that at `window(k)` holds the registers of core k, as
`spec.host.registers` has them. The host reads those at any time. It writes them only where no command of the core is
under way; CONTROL there takes CLEAR alone, and programs are started by commands.

The ring has 2^RING_SIZE commands. HEAD and TAIL count commands, modulo 2^32; command k lies at RING + 32 * (k mod the
size). The processor takes commands while HEAD is not TAIL; TAIL - HEAD is at most the size.
"""

from enum import IntEnum, IntFlag

ADDRESS_BITS = 16  #: Bits of a byte address.
WINDOW = 4096  #: Bytes of a window.
LARGEST_RING = 16  #: Logarithm of the largest number of commands of a ring.


class AcceleratorRegister(IntEnum):
    """Byte address in the window of the command processor. Writing a read-only register changes nothing."""

    CONTROL = 0x00  #: Takes the bits of `AcceleratorControl` when written; reads as 0.
    STATUS = 0x04  #: Holds the bits of `AcceleratorStatus`.
    ERROR = 0x08  #: Holds a code of `spec.accelerator.commands.CommandError` until reset.
    ERROR_INDEX = 0x0C  #: Number of the command with the error, as HEAD counts.
    ERROR_ORIGIN = 0x10  #: Core with the error; `PROCESSOR` (255) for a command that was refused, and for its own.
    CORE_ERROR = 0x14  #: With PROGRAM: code of `spec.isa.instructions.Error`, or of
    #: `spec.trainer.instructions.TrainerError`.
    ERROR_ADDRESS = 0x18  #: With PROGRAM: address of the instruction.
    RING = 0x20  #: Byte address of the ring, a multiple of 64. Written while HEAD is TAIL.
    RING_SIZE = 0x24  #: Logarithm of its number of commands, 1 to 16. Written while HEAD is TAIL.
    HEAD = 0x28  #: Number of commands that were taken since the last reset: executed, or given to a core's queue. It
    #: stays at a command that was refused before it moved anything.
    TAIL = 0x2C  #: Number of commands that the host has written since the last reset.
    BUSY_CORES = 0x30  #: Mask of cores that have commands under way or in their queue.
    RESET_CORES = 0x34  #: Resets the cores of the mask that is written, whose commands are forgotten; reads as 0.
    CORE_COUNT = 0x38  #: Number of cores.
    DIGEST = 0x3C  #: Digest of the accelerator.
    MEMORY = 0x40  #: Bytes of the memory less one.

    @property
    def access(self) -> str:
        """What the host may do: "write", "read" or "read, write"."""
        return _ACCESS.get(self, "read")


_ACCESS = {AcceleratorRegister.CONTROL: "write", AcceleratorRegister.RESET_CORES: "write",
           **dict.fromkeys((AcceleratorRegister.RING, AcceleratorRegister.RING_SIZE, AcceleratorRegister.TAIL),
                           "read, write")}


class AcceleratorControl(IntFlag):
    """Commands; writing a 1 runs the command once."""

    RESET = 1  #: Resets command processor and cores: HEAD, TAIL, errors, queues, the interrupt. Memories stay, and so
    #: do RING, RING_SIZE, and the cores' PEER and DRAM_BASE.
    ACKNOWLEDGE = 2  #: Lowers the interrupt.


class AcceleratorStatus(IntFlag):
    """State of the accelerator."""

    BUSY = 1  #: HEAD is not TAIL and no error has stopped the dispatch, or a command is under way.
    FAILED = 2  #: A command has an error. No later one is begun; those before it, and those under way, end.
    INTERRUPT = 4  #: The interrupt is up: after a SIGNAL, and when the accelerator has failed and is no longer busy.
    MEMORY_BUSY = 8  #: Bursts are under way; what is taken after a reset waits for them.


def window(core: int) -> int:
    """Byte address of the registers of a core."""
    return (core + 1) * WINDOW
