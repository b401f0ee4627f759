"""When a product starts: how long it waits for its tiles.

Tiles are loaded by the copy pipeline, so a younger product may be ready to start before they are there. The queue of
products holds it back, and with it all younger products, until all older loads of tiles are done: the zero marks of
tiles are looked up ahead of time.
"""

from amaranth import *
from amaranth.lib import wiring
from concord.hw.lib.jobs import ProductJob
from concord.hw.lib.lookahead import Ahead, following, unfinished
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
    valid, move, first = Signal(), Signal(), following(m, "following_loads", loads)
    words = Ahead(m, coming=queue.o.valid, advance=move, begins=1, move=move)
    job = words.present("product_job", queue.o.p)
    loaded = words.certain("loaded", lambda choose: ~unfinished(choose(queue.o.p.copy, job.copy), first))
    m.d.comb += [move.eq(~valid | (product.ready & loaded)), queue.o.ready.eq(move),
                 product.valid.eq(valid & loaded), product.p.eq(job.product)]
    with m.If(move):
        m.d.sync += valid.eq(queue.o.valid)
