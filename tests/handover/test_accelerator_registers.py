"""The register map of an accelerator says where each register of each window lies, and what the host may do there."""

from xml.etree import ElementTree

import pytest
from concord.handover.accelerator_registers import accelerator_register_files
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.accelerator.registers import AcceleratorRegister, window
from concord.spec.host.registers import Register, counters
from concord.spec.machine.config import preset
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.registers import WRITTEN, TrainerCounter, TrainerRegister
from systemrdl import RDLCompiler
from systemrdl.node import RegNode

TINY, SMALL = preset("tiny"), TrainerConfig(words=256, bases=4, exponents=16)
ACCELERATOR = Accelerator(cores=(SMALL, TINY, TINY, TrainerConfig()), memory_bytes=1 << 20)


@pytest.fixture(scope="module")
def files():
    return accelerator_register_files(ACCELERATOR)


@pytest.fixture(scope="module")
def registers(files, tmp_path_factory):
    """Every register of the SystemRDL text, by its path."""
    path = tmp_path_factory.mktemp("rdl") / "accelerator.rdl"
    path.write_text(files["nnp_accelerator.rdl"])
    compiler = RDLCompiler()
    compiler.compile_file(str(path))
    top = compiler.elaborate().top
    return {node.get_path().removeprefix("nnp_accelerator."): node
            for node in top.descendants() if isinstance(node, RegNode)}


def machine_addresses(core: int) -> dict[str, int]:
    own = {register.name: int(register) for register in Register if register is not Register.COUNTERS}
    own |= {f"COUNTERS.{counter.name}": Register.COUNTERS + 4 * counter for counter in counters(TINY)}
    return {f"CORE{core}.{name}": window(core) + address for name, address in own.items()}


def trainer_addresses(core: int, config: TrainerConfig) -> dict[str, int]:
    names = {"COUNTERS": [counter.name for counter in TrainerCounter], "BASES": [f"R{k}" for k in range(config.bases)],
             "EXPONENTS": [f"X{k}" for k in range(config.exponents)]}
    own = {register.name: int(register) for register in TrainerRegister if register.name not in names}
    own |= {f"{file}.{name}": TrainerRegister[file] + 4 * k for file, members in names.items()
            for k, name in enumerate(members)}
    return {f"CORE{core}.{name}": window(core) + address for name, address in own.items()}


def test_every_window_has_its_registers(registers):
    expected = {f"PROCESSOR.{register.name}": int(register) for register in AcceleratorRegister}
    expected |= trainer_addresses(0, SMALL) | machine_addresses(1) | machine_addresses(2)
    expected |= trainer_addresses(3, TrainerConfig())
    assert {name: node.absolute_address for name, node in registers.items()} == expected


def test_what_the_host_may_do(registers):
    for register in AcceleratorRegister:
        node = registers[f"PROCESSOR.{register.name}"]
        assert (node.has_sw_readable, node.has_sw_writable) == ("read" in register.access, "write" in register.access)
    written = {TrainerRegister[name.partition(".")[2]] for name, node in registers.items()
               if name.startswith("CORE0.") and node.has_sw_writable}
    assert written == set(WRITTEN)


def test_values_that_never_change(registers):
    for name, value in (("CORE_COUNT", 4), ("DIGEST", ACCELERATOR.digest), ("MEMORY", (1 << 20) - 1)):
        (field,) = registers[f"PROCESSOR.{name}"].fields()
        assert field.get_property("reset") == value


def test_ipxact_has_every_register(files, registers):
    space = {"x": "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"}
    component = ElementTree.fromstring(files["nnp_accelerator.xml"])
    assert len(component.findall(".//x:register", space)) == len(registers)
