"""What the driver of a core in an accelerator sees of it, besides its ports."""

from amaranth.lib import data
from concord.spec.isa.instructions import END_BITS

#: State of a core. `running`: a program runs or is about to start. `refused`: a message was malformed; held until
#: reset. `wait_input`: a chain waits for a word of NetQ. `unused`: NetQ holds words. `replying`: a message has begun to
#: leave. `busy`: a message of another kind than INPUT has no effect yet, or an access to Dram is under way. `error` and
#: `error_address` are those of the registers.
Watch = data.StructLayout({
    "running": 1, "refused": 1, "wait_input": 1, "unused": 1, "replying": 1, "busy": 1, "error": 4,
    "error_address": END_BITS})
