"""The worker processes of a DataLoader as the loop sees them: started, asked, waited for, and ended in every case."""

from __future__ import annotations

import select
import signal
import socket
import threading
import weakref
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from time import monotonic
from types import FrameType
from typing import Any, Self

from lazyt.data.fetch import Recipe
from lazyt.data.transport import Receiver, write_request
from lazyt.data.worker import Failure, Task, run
from lazyt.errors import WorkerError
from lazyt.runtime.context import sync

# Seconds for a worker to end by itself, and then by SIGTERM, before it is killed.
PATIENCE = 1.0


class interrupts_deferred:  # noqa: N801 - a context manager reads as a verb
    """A block that Ctrl-C does not divide: what came in it is raised at its end. Only the main thread has it."""

    def __enter__(self) -> Self:
        self.frame: tuple[FrameType | None] | None = None
        self.handler: Any = None
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            signal.signal(signal.SIGINT, self._note)
            self.handler = handler
        return self

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.frame = (frame,)

    def __exit__(self, *exc: object) -> None:
        if self.handler is not None:
            signal.signal(signal.SIGINT, self.handler)
            if self.frame is not None:
                self.handler(signal.SIGINT, *self.frame)


class Worker:
    """One process, and the pipe to it."""

    def __init__(self, task: Task, context: Any, others: list[Worker]) -> None:
        self.id = task.id
        self.socket, theirs = socket.socketpair()
        # NOTE: a fork copies the ends of all pipes: one that stays open in another worker hides that the loop is gone.
        copied = [w.socket for w in (*others, self)] if context.get_start_method() == "fork" else []
        self.process: BaseProcess = context.Process(
            target=run, args=(task, theirs, copied), daemon=True, name=f"lazyt DataLoader worker {task.id}"
        )
        try:
            self.process.start()
        finally:
            theirs.close()
        self.receiver = Receiver(self.socket)
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)
        self.poll.register(self.process.sentinel, select.POLLIN)

    def ask(self, kind: str, number: int, what: Any) -> None:
        """Send a request; a worker that has ended is found out when its answer is waited for."""
        try:
            write_request(self.socket, (kind, number, what, self.receiver.take_released()))
        except (BrokenPipeError, ConnectionResetError):
            return

    def answer(self, number: int, timeout: float) -> tuple[int, Any]:
        """The next answer. WorkerError if the process has ended, or `timeout` seconds (0: none) are over."""
        if not self.poll.poll(timeout * 1000 if timeout > 0 else None):
            raise WorkerError(
                f"DataLoader: no batch in {timeout} seconds: worker {self.id} (process {self.process.pid}) is still "
                f"making batch {number}"
            )
        try:
            found: tuple[int, Any] = self.receiver.receive()
        except (EOFError, ConnectionResetError):
            raise self._ended(number) from None
        return found

    def _ended(self, number: int) -> WorkerError:
        self.process.join(PATIENCE)
        code = self.process.exitcode
        how = "closed its pipe" if code is None else f"ended with exit status {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            if -code == signal.SIGKILL:
                how += " (the system does that when memory runs out)"
        return WorkerError(
            f"DataLoader: worker {self.id} (process {self.process.pid}) {how} before batch {number} was made"
        )


class Workers:
    """The processes of one DataLoader. They end with this object, at the latest."""

    def __init__(self, recipe: Recipe, count: int, context: Any, init: Callable[[int], Any] | None) -> None:
        sync()  # what is pending is computed once, here, and not in each worker
        self.list: list[Worker] = []
        self.idle = True  # no request is without an answer
        self.epochs = 0
        self.end = weakref.finalize(self, stop, self.list)
        with interrupts_deferred():
            try:
                for i in range(count):
                    self.list.append(Worker(Task(i, count, recipe, init), context, self.list))
            except BaseException:
                self.end()
                raise

    def begin(self, seed: int) -> None:
        """Begin an epoch."""
        for w in self.list:
            w.ask("epoch", self.epochs, seed)
        self.epochs += 1

    def stop(self) -> None:
        """End the processes, and wait for that."""
        with interrupts_deferred():
            self.end()


def stop(workers: list[Worker]) -> None:
    """Close the pipes, which ends workers that wait for a request; end those that do not."""
    for w in workers:
        w.socket.close()
    until = monotonic() + PATIENCE
    for w in workers:
        w.process.join(0.05)
    for w in workers:
        if w.process.is_alive():
            w.process.terminate()
    for w in workers:
        w.process.join(max(until - monotonic(), 0.01))
        if w.process.is_alive():
            w.process.kill()
            w.process.join()
        w.process.close()
    workers.clear()


class RemoteTraceback(Exception):
    """The traceback of a worker, as the cause of what is raised in the loop."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def failed(failure: Failure, worker: Worker, number: int, request: Any) -> BaseException:
    """A worker's exception, to be raised in the loop."""
    where = f"in worker {worker.id} (process {worker.process.pid}) of a DataLoader, batch {number}"
    if isinstance(request, list | tuple):
        where += f", samples {request if len(request) <= 10 else [*request[:10], '...']}"
    error = failure.error
    if error is None:
        error = WorkerError(f"{failure.name} ({where}; the exception itself cannot be sent)")
    else:
        error.add_note(where)
    error.__cause__ = RemoteTraceback(failure.text)
    return error
