"""The descriptions of the registers say what `spec.host.registers` says, to their own readers."""

import re
import subprocess
from xml.etree import ElementTree

import pytest
from concord.handover.registers import constants, register_files, rendered
from concord.spec.host.messages import MessageKind
from concord.spec.host.registers import Control, Register, Status, counters
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import preset
from systemrdl import RDLCompiler
from systemrdl.node import RegNode

TINY = preset("tiny")
ADDRESSES = {register.name: int(register) for register in Register if register != Register.COUNTERS} | {
    f"COUNTERS.{counter.name}": Register.COUNTERS + 4 * counter for counter in counters(TINY)}


@pytest.fixture(scope="module")
def files():
    return register_files(TINY)


@pytest.fixture(scope="module")
def registers(files, tmp_path_factory):
    """Every register of the SystemRDL text, by its path."""
    path = tmp_path_factory.mktemp("rdl") / "nnp.rdl"
    path.write_text(files["nnp.rdl"])
    compiler = RDLCompiler()
    compiler.compile_file(str(path))
    top = compiler.elaborate().top
    return {node.get_path().removeprefix("nnp."): node for node in top.descendants() if isinstance(node, RegNode)}


def test_systemrdl_has_every_register(registers):
    assert {name: node.absolute_address for name, node in registers.items()} == ADDRESSES
    for name, node in registers.items():
        assert node.has_sw_writable == (name in ("CONTROL", "PEER"))
        assert node.has_sw_readable == (name != "CONTROL")


@pytest.mark.parametrize(("name", "bits"), [("CONTROL", Control), ("STATUS", Status)])
def test_systemrdl_has_every_bit(registers, name, bits):
    assert {field.inst_name: 1 << field.low for field in registers[name].fields()} == {b.name: int(b) for b in bits}


def test_systemrdl_has_errors_and_constants(registers):
    (code,) = registers["ERROR"].fields()
    assert {member.name: member.value for member in code.get_property("encode")} == {e.name: int(e) for e in Error}
    for name, value in constants(TINY).items():
        (field,) = registers[name].fields()
        assert field.get_property("reset") == value


def test_ipxact_has_every_register(files):
    space = {"x": "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"}
    component = ElementTree.fromstring(files["nnp.xml"])
    assert component.findtext("x:name", namespaces=space) == "nnp"
    found = {}

    def collect(parent, prefix, base):
        for kind in ("register", "registerFile"):
            for node in parent.findall(f"x:{kind}", space):
                address = base + int(node.findtext("x:addressOffset", namespaces=space).replace("'h", ""), 16)
                name = prefix + node.findtext("x:name", namespaces=space)
                if kind == "register":
                    found[name] = address
                else:
                    collect(node, f"{name}.", address)

    collect(component.find(".//x:addressBlock", space), "", 0)
    assert found == ADDRESSES


def test_the_c_header_has_every_code(files, tmp_path):
    """The compiler says the value of each name of the header."""
    wanted = {f"NNP_REGISTER_{register.name}": int(register) for register in Register}
    for prefix, codes in (("CONTROL", Control), ("STATUS", Status), ("ERROR", Error), ("MESSAGE", MessageKind),
                          ("COUNTER", counters(TINY))):
        wanted |= {f"NNP_{prefix}_{code.name}": int(code) for code in codes}
    wanted |= {"NNP_HEADER_BYTES": 16, "NNP_HEADER_ADDRESS": 4, "NNP_HEADER_COUNT": 8, "NNP_HEADER_DIGEST": 12}
    wanted |= {"NNP_DIGEST": TINY.digest, "NNP_BEAT_BYTES": TINY.message_bytes, "NNP_MFU_LANES": TINY.mfu_lanes}
    (tmp_path / "nnp_machine.h").write_text(files["nnp_machine.h"])
    source = '#include "nnp_machine.h"\n' + "".join(f"_{name} = {name};\n" for name in wanted)
    done = subprocess.run(["gcc", "-E", "-P", "-I", tmp_path, "-"], input=source, capture_output=True, text=True,
                          check=True)
    found = {name: int(re.sub(r"[uU]+$|^__UINT32_C\((.*)\)$", r"\1", value), 0)
             for name, value in re.findall(r"^_(NNP_\w+) = (.+);$", done.stdout, re.MULTILINE)}
    assert found == wanted


def test_names_in_c_are_told_as_they_are(tmp_path):
    """A comment has neither a beginning nor an end of another one in it, and a string has every character."""
    (tmp_path / "names.j2").write_text("/* {{ comment(name) }} */\nconst char *name = {{ string(name) }};\n")
    name = "a/*b*/c/*/ \"q\" \\ ??/"
    (tmp_path / "names.c").write_text(rendered("names.j2", {"name": name}, tmp_path))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\nextern const char *name;\nint main(void) { return fputs(name, stdout) < 0; }\n')
    subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o", "names", "names.c", "main.c"],
                   cwd=tmp_path, check=True)
    assert subprocess.run(["./names"], cwd=tmp_path, capture_output=True, check=True, text=True).stdout == name
