import numpy as np
from concord.golden.host.messages import input_message, program_message, words_of
from concord.sim.machines.accelerators import accelerator_machine
from concord.spec.accelerator.accelerator import Accelerator
from concord.spec.accelerator.commands import Command, CommandKind
from concord.spec.host.messages import unpack
from concord.spec.host.registers import Register
from concord.spec.isa.assembler import assemble
from concord.spec.machine.config import preset

config = preset("tiny")  # words of two numbers
program = program_message(config, assemble("""
    s_wr Rows, 2
    v_rd NetQ
    v_wr MultiplyVrf0, 0
    end_chain
    v_rd MultiplyVrf0, 0
    vv_mul0 0
    v_wr NetQ
    end_chain
    end
"""))
numbers = input_message(config, np.array([[-3, 2]], np.float16).view(np.uint16))

machine = accelerator_machine("golden", Accelerator(cores=(config, config), memory_bytes=1 << 16))
machine.set_ring(0, 4)  # 16 commands at address 0
machine.write_memory(0x1000, program)
machine.write_memory(0x2000, numbers)
runs = [Command(kind=CommandKind.RUN, core=0, first=0x2000, count=len(numbers), second=0x3000, room=256),
        Command(kind=CommandKind.RUN, core=1, first=0x3040, count=len(numbers), second=0x4000, room=256)]
commands = [
    Command(kind=CommandKind.LOAD, core=0, first=0x1000, count=len(program)),
    Command(kind=CommandKind.LOAD, core=1, first=0x1000, count=len(program)),
    Command(kind=CommandKind.SET, core=0, first=Register.PEER, value=config.digest), runs[0],
    Command(kind=CommandKind.WAIT, value=0b01),  # without it, core 1 would read what core 0 writes: a race
    runs[1], Command(kind=CommandKind.WAIT, value=0b11),
    Command(kind=CommandKind.SIGNAL, first=0x5000, value=1)]
machine.execute([command.pack() for command in commands])
for run in runs:
    (answer,) = machine.answers(run)
    print(words_of(config, unpack(config, answer, to_machine=False)).view(np.float16)[0].tolist())
