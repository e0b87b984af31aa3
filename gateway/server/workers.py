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
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from gateway.errors import SettingsError
from gateway.server.shared_metrics import SharedMetrics

HUNG_S = 10.0
"""How long after its patience has ended a worker that was asked to stop may take until it is killed."""


MOST_FAILED_STARTS = 3
"""So many workers in a row may end before they have served anything; then, if none serves, there is no use in more."""


class Workers(Multiprocess):
    """uvicorn's supervisor. ``reread`` gives the configuration of the workers that SIGHUP starts.

    All of them accept from the same socket, so that no connection is lost when one of them stops.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: list[socket],
        reread: Callable[[], uvicorn.Config],
        metrics: SharedMetrics,
    ) -> None:
        super().__init__(config, sockets)
        self._reread = reread
        self._metrics = metrics
        self._serving: set[Process] = set()
        """Workers that have begun to serve."""
        self._failed_starts = 0
        self._cannot_start = False
        self._leaving: dict[Process, float] = {}
        """Workers that finish what they have, and by when they are to be gone (monotonic seconds)."""

    def run(self) -> None:
        """Look after the workers until a signal ends it. Raises :class:`SettingsError` where they cannot start."""
        super().run()
        if self._cannot_start:
            raise SettingsError("the server's processes cannot start: what is logged above says why")

    def restart_all(self) -> None:
        """Replace each worker once its successor serves. It finishes what it has while the rest goes on."""
        try:
            self.config = self._reread()
        except SettingsError as error:
            structlog.get_logger().error("the workers stay as they are: the settings cannot be read", why=str(error))
            return
        self._keep_metrics()
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
        self._keep_metrics()
        self._count_starts()
        super().keep_subprocess_alive()
        gone = before - {process.pid for process in self.processes}
        for worker, latest in list(self._leaving.items()):
            if time.monotonic() > latest:
                worker.process.kill()
            if not worker.process.is_alive():
                del self._leaving[worker]
                gone.add(worker.pid)
        for pid in gone:
            self._metrics.forget(pid)

    def _keep_metrics(self) -> None:
        try:
            self._metrics.keep()
        except OSError as error:
            structlog.get_logger().error("no directory for the workers' metrics can be made", why=error.strerror)

    def _count_starts(self) -> None:
        """Give up where workers end, one after the other, before they have served anything, and none does serve."""
        patience_s = self.config.timeout_worker_healthcheck
        for process in self.processes:
            if process in self._serving:
                continue
            if process.process.is_alive():
                if process.is_ready(patience_s):
                    self._serving.add(process)
                    self._failed_starts = 0
            else:
                self._failed_starts += 1
                self._cannot_start |= process.exitcode == STARTUP_FAILURE
        self._serving = {process for process in self._serving if process.process.is_alive()}
        if self._failed_starts >= MOST_FAILED_STARTS and not self._serving:
            self._cannot_start = True
        if self._cannot_start:
            self.should_exit.set()

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
