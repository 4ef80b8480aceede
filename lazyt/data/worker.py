"""A worker process of a DataLoader: it answers requests for batches until there are no more, or the loop is gone."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import wait
from typing import Any, NamedTuple

from lazyt.data.fetch import Fetcher, Recipe, WorkerInfo, set_worker_info
from lazyt.data.seeding import mixed, seed_all
from lazyt.data.transport import Sender, read_request
from lazyt.runtime.context import set_num_threads

# So often a worker that is asked nothing looks whether its parent is still there, besides waiting for its end.
LOOK = 5.0


class Task(NamedTuple):
    """What a worker is started with."""

    id: int
    num_workers: int
    recipe: Recipe
    init: Callable[[int], Any] | None


class Failure:
    """An exception of a worker, on its way to the loop: itself if it can be sent, and its traceback as text."""

    def __init__(self, error: BaseException) -> None:
        self.text = "".join(traceback.format_exception(error))
        self.name = f"{type(error).__name__}: {error}"
        self.error: BaseException | None = error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001 - whatever a user's class raises, its text is sent
            self.error = None


def run(task: Task, connection: socket.socket, others: list[socket.socket]) -> None:
    """The main function of a worker. others: ends of pipes that a fork has copied, and that are not its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the loop's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for s in others:
        s.close()
    parent = os.getppid()
    sender = Sender(connection)
    set_num_threads(1)
    fetcher: Fetcher | None = None
    broken: Failure | None = None
    while _is_asked(connection, parent):
        request = read_request(connection)
        if request is None:
            return
        kind, number, what, released = request
        sender.release(released)
        if kind == "epoch":
            fetcher = Fetcher(task.recipe, what, guest=False)
            if number == 0:
                broken = _begin(task, what)
            continue
        assert fetcher is not None, "an epoch begins before its batches"
        answer = broken or _answer(fetcher, number, what)
        try:
            sender.send((number, answer))
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as e:  # noqa: BLE001 - a batch that cannot be sent
            sender.send((number, Failure(e)))
        del answer


def _begin(task: Task, seed: int) -> Failure | None:
    own = mixed(seed, task.id)
    set_worker_info(WorkerInfo(task.id, task.num_workers, own, task.recipe.dataset))
    seed_all(own)
    try:
        if task.init is not None:
            task.init(task.id)
    except Exception as e:  # noqa: BLE001 - it is raised in the loop
        return Failure(e)
    return None


class Exhausted:
    """In place of a batch: an iterable dataset is through."""


def _answer(fetcher: Fetcher, number: int, request: Any) -> Any:
    try:
        return fetcher.fetch(number, request)
    except StopIteration as e:
        return Exhausted() if fetcher.recipe.iterable else Failure(e)
    except Exception as e:  # noqa: BLE001 - it is raised in the loop
        return Failure(e)


def _is_asked(connection: socket.socket, parent: int) -> bool:
    """Wait for a request; False when the parent is gone."""
    above = parent_process()
    ends: list[Any] = [connection] if above is None else [connection, above.sentinel]
    while True:
        ready = wait(ends, LOOK)
        if connection in ready:
            return True
        if ready or os.getppid() != parent:
            return False
