"""C for the host of an accelerator: a header of its registers and commands, and a driver of lists of commands."""

from concord.handover.registers import copied, register_rows, rendered
from concord.spec.accelerator.accelerator import ALIGNED, Accelerator, dram_pages
from concord.spec.accelerator.commands import BYTES, CommandError, CommandKind
from concord.spec.accelerator.registers import WINDOW, AcceleratorControl, AcceleratorRegister, AcceleratorStatus
from concord.spec.host.registers import Control, Register, Status
from concord.spec.isa.instructions import Error
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister

#: Prefix, title and enumeration of the addresses of registers.
REGISTERS = (
    ("ACCELERATOR_REGISTER", "Registers of the command processor", AcceleratorRegister),
    ("CORE_REGISTER", "Registers in the window of a core that does not train", Register),
    ("TRAINER_REGISTER", "Registers in the window of a core that trains", TrainerRegister),
)
#: The same of codes and bits.
CODES = (
    ("ACCELERATOR_CONTROL", "Bits of CONTROL of the command processor", AcceleratorControl),
    ("ACCELERATOR_STATUS", "Bits of STATUS of the command processor", AcceleratorStatus),
    ("COMMAND", "Kinds of commands", CommandKind),
    ("COMMAND_ERROR", "Codes of ERROR of the command processor", CommandError),
    ("CORE_CONTROL", "Bits of CONTROL of a core; the host writes CLEAR alone", Control),
    ("CORE_STATUS", "Bits of STATUS of a core", Status),
    ("CORE_ERROR", "Codes of CORE_ERROR, of a core that does not train", Error),
    ("TRAINER_ERROR", "Codes of CORE_ERROR, of a core that trains", TrainerError),
    ("TRAINER_COUNTER", "Counters of a core that trains", TrainerCounter),
)


def driver_files(accelerator: Accelerator) -> dict[str, str]:
    """The text of each file, by its name."""
    values = {
        "accelerator": accelerator,
        "trainers": sum(isinstance(core, TrainerConfig) << k for k, core in enumerate(accelerator.cores)),
        "command_bytes": BYTES,
        "line_bytes": ALIGNED,
        "dram_bytes": max((dram_pages(core) for core in accelerator.cores), default=0),
        "errors": register_rows(CommandError),
        "window": WINDOW,
        "registers": [(prefix, title, register_rows(enum)) for prefix, title, enum in REGISTERS],
        "codes": [(prefix, title, register_rows(enum)) for prefix, title, enum in CODES],
    }
    header = {"nnp_accelerator.h": rendered("nnp_accelerator.h.j2", values)}
    return header | {name: copied(name) for name in ("nnp_commands.h", "nnp_commands.c")}
