"""What goes between the command processor and a core's driver."""

from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out
from concord.spec.accelerator.commands import CommandError, CommandKind

ADDRESS = 32  #: Bits of an address, of a number of bytes, and of a value.

#: A command that has been checked: LOAD, RUN or SET. `index` is its number, as HEAD counts. The `second` of a SET,
#: which has no second address, is its value.
Order = data.StructLayout({
    "kind": CommandKind.SET.bit_length(), "index": 32, "first": ADDRESS, "count": ADDRESS, "second": ADDRESS,
    "room": ADDRESS})

#: How a command has ended. With an `error`, `index` is that of the command, and `core_error` and `address` are those of
#: the registers CORE_ERROR and ERROR_ADDRESS.
Ending = data.StructLayout({
    "error": max(CommandError).bit_length(), "index": 32, "core_error": 4, "address": 32})


def driver_side() -> dict:
    """The wires of a driver, as the driver has them, on the side of the command processor.

    Members:
        order: In(stream Order). Commands, one after the other; the next one is taken when the one before has ended.
            `valid` also falls when the command is forgotten: with `reset`, or after an error.
        ended: Out({valid, p: Ending}). Pulse, a cycle after the command was taken at the earliest: it has ended, and
            what it and its core wrote is answered. After an error the driver takes no command until `reset`.
        stop: In(1). No command will be taken until `reset`: one before them has an error.
        reset: In(1). Pulse: resets the core, and forgets the command under way. Bursts that were given to a port end.
        idle: Out(1). No burst is under way, and no command.
    """
    return {"order": In(stream.Signature(Order)),
            "ended": Out(data.StructLayout({"valid": 1, "p": Ending})),
            "stop": In(1), "reset": In(1), "idle": Out(1)}
