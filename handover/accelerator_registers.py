"""SystemRDL and IP-XACT of the registers of an accelerator: a window of its command processor and of each core."""

from concord.handover.registers import ipxact, register_rows, rendered, system_rdl
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.accelerator.commands import CommandError
from concord.spec.accelerator.registers import WINDOW, AcceleratorControl, AcceleratorRegister, AcceleratorStatus
from concord.spec.host.registers import Control, Status
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import TrainerError
from concord.spec.trainer.registers import WRITTEN, TrainerCounter, TrainerRegister

_ACCESS = {"write": "w", "read": "r", "read, write": "rw"}


def accelerator_register_files(accelerator: Accelerator) -> dict[str, str]:
    """The text of each description, by the name of its file."""
    maps = {core: f"{'nnp_trainer' if isinstance(core, TrainerConfig) else 'nnp'}_{core.digest:08x}"
            for core in accelerator.cores}
    texts = [_trainer_rdl(core, name) if isinstance(core, TrainerConfig) else system_rdl(core, name)
             for core, name in maps.items()]
    constants = {"CORE_COUNT": len(accelerator.cores), "DIGEST": accelerator.digest,
                 "MEMORY": accelerator.memory_bytes - 1}
    texts.append(rendered("nnp_accelerator.rdl.j2", {
        "accelerator": accelerator,
        "window": WINDOW,
        "cores": [(number, maps[core]) for number, core in enumerate(accelerator.cores)],
        "registers": register_rows(AcceleratorRegister),
        "access": {register.name: _ACCESS[register.access] for register in AcceleratorRegister},
        "constants": {name: f"0x{value:x}" for name, value in constants.items()},
        "control": register_rows(AcceleratorControl),
        "status": register_rows(AcceleratorStatus),
        "errors": register_rows(CommandError),
    }))
    systemrdl = "\n".join(texts)
    return {"nnp_accelerator.rdl": systemrdl, "nnp_accelerator.xml": ipxact(systemrdl)}


def _trainer_rdl(config: TrainerConfig, name: str) -> str:
    """The register map of a core that trains in SystemRDL, under a name."""
    registers = register_rows(TrainerRegister)
    meanings = {register: meaning for _, register, meaning in registers}
    files = {
        "COUNTERS": register_rows(TrainerCounter),
        "BASES": [(k, f"R{k}", f"Base register {k}.") for k in range(config.bases)],
        "EXPONENTS": [(k, f"X{k}", f"E + 126 of exponent {k}.") for k in range(config.exponents)],
    }
    return rendered("nnp_trainer.rdl.j2", {
        "name": name,
        "registers": registers,
        "written": {register.name for register in WRITTEN},
        "errors": register_rows(TrainerError),
        "control": [row for row in register_rows(Control) if row[1] in ("START", "RESET", "CLEAR")],
        "status": [row for row in register_rows(Status) if row[1] in ("RUNNING", "DONE", "DRAM_BUSY")],
        "files": {file: (int(TrainerRegister[file]), meanings[file], rows) for file, rows in files.items()},
    })
