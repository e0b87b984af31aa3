"""Several server processes that share the port: a dead one is replaced, and SIGHUP replaces them all."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from socket import socket

import structlog
import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from gateway.errors import SettingsError

HUNG_S = 10.0
"""How long after its patience has ended a worker that was asked to stop may take until it is killed."""


class Workers(Multiprocess):
    """uvicorn's supervisor. ``reread`` gives the configuration of the workers that SIGHUP starts.

    All of them accept from the same socket, so that no connection is lost when one of them stops.
    """

    def __init__(self, config: uvicorn.Config, sockets: list[socket], reread: Callable[[], uvicorn.Config]) -> None:
        super().__init__(config, sockets)
        self._reread = reread
        self._leaving: dict[Process, float] = {}
        """Workers that finish what they have, and by when they are to be gone (monotonic seconds)."""

    def restart_all(self) -> None:
        """Replace each worker once its successor serves. It finishes what it has while the rest goes on."""
        try:
            self.config = self._reread()
        except SettingsError as error:
            structlog.get_logger().error("the workers stay as they are: the settings cannot be read", why=str(error))
            return
        for place, old in enumerate(self.processes):
            new = Process(self.config, self.sockets)
            new.start()
            if not new.wait_until_ready(self.config.timeout_worker_healthcheck, self.should_exit):
                new.kill()
                new.join()
                structlog.get_logger().error("a new worker did not start: the workers not yet replaced stay")
                return
            self._leaving[old] = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + HUNG_S
            old.terminate()
            self.processes[place] = new
        structlog.get_logger().info("the workers have been replaced")

    def keep_subprocess_alive(self) -> None:
        before = {process.pid for process in self.processes}
        for process in self.processes:
            # The worker's end of the pipe is its own: kept open here, a death looks like silence to a health check.
            process.child_conn.close()
        super().keep_subprocess_alive()
        gone = before - {process.pid for process in self.processes}
        for worker, latest in list(self._leaving.items()):
            if time.monotonic() > latest:
                worker.process.kill()
            if not worker.process.is_alive():
                del self._leaving[worker]
                gone.add(worker.pid)
        for pid in gone:
            # Its requests in flight leave the metrics with it.
            mark_process_dead(pid)  # type: ignore[no-untyped-call]  # the package leaves it without types

    def join_all(self) -> None:
        super().join_all()
        for worker in self._leaving:
            worker.join()


def end_with_supervisor() -> None:
    """In a worker: stop, as if told to, when the supervisor is gone. Else nobody would ever stop it or replace it."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        threading.Thread(target=_end_after, args=(supervisor,), daemon=True).start()


def _end_after(supervisor: BaseProcess) -> None:
    supervisor.join()
    os.kill(os.getpid(), signal.SIGTERM)
