"""When a product starts: how long it waits for its tiles.

Tiles are loaded by the copy pipeline, so a younger product may be ready to start before they are there. The queue of
products holds it back, and with it all younger products, until all older loads of tiles are done: the zero marks of
tiles are looked up ahead of time.
"""

from amaranth import *
from amaranth.lib import wiring
from concord.hw.lib.jobs import ProductJob, waiting
from concord.hw.lib.queue import Queue


def product_start(m: Module, depth: int, jobs, product, loads):
    """Let products start in order, each when all older loads of tiles are done.

    Args:
        m:       Module of the machine.
        depth:   Number of products that can wait.
        jobs:    Stream of `ProductJob` from the interlock; `copy` names the youngest older load of tiles.
        product: Stream of products into the multiplier.
        loads:   Number of chains that the copy pipeline has finished, loads of tiles among them.
    """
    m.submodules.product_jobs = queue = Queue(ProductJob, depth)
    wiring.connect(m, jobs, queue.i)
    loaded = ~waiting(queue.o.p.copy, loads)
    m.d.comb += [product.valid.eq(queue.o.valid & loaded), product.p.eq(queue.o.p.product),
                 queue.o.ready.eq(product.ready & loaded)]
