"""When a product starts: how long it waits for its tiles.

Tiles are loaded by the copy pipeline, so a younger product may be ready to start before they are there. The queue of
products holds it back, and with it all younger products, until all older loads of tiles are done: the zero marks of
tiles are looked up ahead of time.
"""

from amaranth import *
from amaranth.lib import wiring
from concord.hw.lib.jobs import product_job
from concord.hw.lib.lookahead import Ahead, following, unfinished
from concord.hw.lib.queue import Queue
from concord.spec.machine.config import Config


def product_start(m: Module, config: Config, jobs, product, loads, outside=None):
    """Let products start in order, each when all older loads of tiles are done.

    Args:
        m:       Module of the machine.
        config:  The machine; as many products as its `chain_queue` can wait.
        jobs:    Stream of `product_job` from the interlock, which names the youngest older loads of tiles.
        product: Stream of products into the multiplier.
        loads:   Number of chains that the copy pipeline has finished, loads of tiles among them.
        outside: Number of loads of tiles from Dram that are finished, in a machine with Dram.
    """
    m.submodules.product_jobs = queue = Queue(product_job(config), config.chain_queue)
    wiring.connect(m, jobs, queue.i)
    valid, move, first = Signal(), Signal(), following(m, "following_loads", loads)
    words = Ahead(m, coming=queue.o.valid, advance=move, begins=1, move=move)
    job = words.present("product_job", queue.o.p)
    loaded = words.certain("loaded", lambda choose: ~unfinished(choose(queue.o.p.copy, job.copy), first))
    if outside is not None:
        after = following(m, "following_outside", outside)
        loaded &= words.certain("loaded_outside", lambda choose: ~unfinished(choose(queue.o.p.load, job.load), after))
    m.d.comb += [move.eq(~valid | (product.ready & loaded)), queue.o.ready.eq(move),
                 product.valid.eq(valid & loaded), product.p.eq(job.product)]
    with m.If(move):
        m.d.sync += valid.eq(queue.o.valid)
