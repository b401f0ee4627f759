"""The machine of a testbench's run."""

import os

from concord.sim.drivers.configs import from_text

#: The machine whose unit is tested, from the environment of the simulation.
CONFIG = from_text(os.environ.get("CONFIG", "tiny"))
