"""Calls on a cluster of computers, by Dask; `lib/processes.py` chooses between it and processes of this computer.

A worker calls functions by their names, from its own Concord, which must be the same as this one.
"""

import logging
import socket
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Event, Thread
from urllib.parse import urlsplit
from weakref import WeakSet

from concord.lib.edition import edition
from concord.lib.extras import require
from distributed import Client, get_worker
from distributed.scheduler import KilledWorker, NoWorkerError

#: Seconds in which a scheduler must answer, and between two looks whether it is lost.
SECONDS, LOOK = 3, 1

_begun = ""  # The name of the calls that this worker process has begun last.


class Cluster(Executor):
    """The workers of a scheduler.

    Args:
        client:    Client of the scheduler.
        begin:     Function that a worker calls before it begins with these calls, or None.
        arguments: Arguments of `begin`.
        extra:     Name of the extra that the calls need; empty for none.
    """

    def __init__(self, client: Client, begin: Callable | None = None, arguments: tuple = (), extra: str = ""):
        self._client, self._pool = client, client.get_executor(pure=False)
        self._needed = edition(), extra
        self._given: WeakSet[Future] = WeakSet()
        self._left = Event()
        Thread(target=self._watch, daemon=True).start()
        name = uuid.uuid4().hex
        # A task of its own: a worker gets the arguments once, and Dask makes them again if their worker is lost.
        self._held = client.submit(_held, name, begin and name_of(begin), arguments, key=f"begin-{name}")

    def submit(self, fn: Callable, /, *args, **kwargs) -> Future:
        """Call a function of a module on a worker."""
        if self._client.status == "closed":
            raise CancelledError
        future = self._pool.submit(called, self._needed, self._held, name_of(fn), args, kwargs)
        self._given.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False):
        """Leave the scheduler; calls whose futures are held no more are dropped."""
        self._left.set()
        self._client.close()

    def _watch(self):
        """End all calls when the client has lost its scheduler, after which it says nothing about them."""
        while not self._left.wait(LOOK):
            if self._client.status == "closed":
                for future in list(self._given):
                    with suppress(InvalidStateError):  # it has ended just now
                        future.set_exception(CancelledError())
                return


def name_of(function: Callable) -> tuple[str, str]:
    """The module of a function, also if it is the program that runs, and its name."""
    module, name = function.__module__, getattr(function, "__name__", "")
    spec = import_module(module).__spec__  # of a program, too, whose module is called __main__
    return spec.name if spec else module, name


@contextmanager
def connected(address: str, begin: Callable | None = None, arguments: tuple = (), extra: str = "") -> Iterator[Cluster]:
    """The workers of the scheduler at an address; the other arguments are those of `Cluster`.

    Raises:
        ValueError:   the address is wrong, or no scheduler of Dask or no worker is there; a worker cannot make calls.
        RuntimeError: the workers of one call were lost again and again, or the scheduler was.
    """
    for name in "distributed", "distributed.client", "distributed.core":
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what they say is said in sentences here
    warnings.filterwarnings("ignore", "Sending large graph")  # a batch may hold images
    check_answer(address)
    try:
        client = Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError, RuntimeError, TypeError) as error:  # TypeError: TLS without certificates
        raise ValueError(
            f"--scheduler {address}: no scheduler of Dask answers there ({error.__cause__ or error})"
        ) from error
    with client:
        if not client.nthreads():
            raise ValueError(
                f"--scheduler {address}: it has no workers: start some, by `dask worker {address} --nthreads 1`"
            )
        try:
            with Cluster(client, begin, arguments, extra) as pool:
                yield pool
        except KilledWorker as error:
            raise RuntimeError(
                f"--scheduler {address}: one call lost {error.allowed_failures + 1} workers in a row; "
                "see the output of the workers, which may need more memory"
            ) from error
        except NoWorkerError as error:
            raise RuntimeError(
                f"--scheduler {address}: all workers are gone; start some, and then the command again"
            ) from error
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "concord":
                raise
            raise ValueError(
                f"--scheduler {address}: a worker has no {error.name}: install this version of Concord "
                "there, and start the worker again"
            ) from error
        except RuntimeError as error:
            if "deserialization of the task graph" not in str(error):
                raise
            raise ValueError(
                f"--scheduler {address}: the scheduler has another Concord, or none: start it again where "
                "this version is installed"
            ) from error
        except CancelledError as error:
            raise RuntimeError(
                f"--scheduler {address}: the scheduler is gone; start it, and then the command again"
            ) from error


def check_answer(address: str):
    """Refuse an address at which nothing speaks as a scheduler of Dask does, which begins to speak by itself.

    Raises:
        ValueError: it is no address, or nothing answers there in `SECONDS`.
    """
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("tcp", "tls") or not host or not port:
        raise ValueError(
            f"--scheduler {address}: an address is needed, such as tcp://192.168.0.1:8786 or tls://HOST:8786"
        )
    try:
        with socket.create_connection((host, port), SECONDS) as line:
            if parts.scheme == "tcp" and not line.recv(1):  # with TLS, the client speaks first
                raise ConnectionError("what listens there is something else")
    except OSError as error:
        reason = "it does not speak" if isinstance(error, TimeoutError) else error.strerror or error
        raise ValueError(
            f"--scheduler {address}: no scheduler of Dask answers there ({reason}); start one by `dask scheduler`"
        ) from error


def called(needed: tuple[str, str], held: tuple, function: tuple[str, str], args: tuple, kwargs: dict):
    """Call a function in this worker.

    Raises:
        ValueError: the worker is not as it must be.
    """
    global _begun
    worker = get_worker()
    if reason := refusal(worker.state.nthreads, *needed):
        raise ValueError(f"worker {worker.address}: {reason}")
    name, begin, arguments = held
    if name != _begun:
        if begin:
            named(begin)(*arguments)
        _begun = name
    return named(function)(*args, **kwargs)


def refusal(threads: int, wanted: str, extra: str) -> str:
    """Why this process cannot make the calls: a sentence; empty if it can."""
    if edition() != wanted:
        return (
            f"its Concord is another one ({edition()}; here it is {wanted}): bring the same files there, and start "
            "the worker again"
        )
    if threads != 1:
        return (
            f"it has {threads} threads, and simulators need processes of their own: start it with --nthreads 1, "
            "and with --nworkers as many processes as it has cores"
        )
    try:
        if extra:
            require(extra)
    except ValueError as error:
        return str(error)
    return ""


def named(function: tuple[str, str]) -> Callable:
    """The function of a name in a module."""
    return getattr(import_module(function[0]), function[1])


def _held(*parts):
    """What a worker keeps for calls of one name."""
    return parts
