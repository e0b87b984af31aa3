"""The directory where worker processes keep their metrics, so that each can show those of all.

It is locked for as long as its supervisor lives: cleaners of temporary files that heed locks leave it alone, and what a
supervisor that was killed has left is known by its lock being free.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog
from prometheus_client.multiprocess import mark_process_dead

from gateway.books.metrics import MULTIPROCESS_DIR
from gateway.errors import SettingsError

_PREFIX = "messages-gateway-metrics-"


class SharedMetrics:
    """The directory ``path``; :meth:`keep` makes it, and makes it anew where it has gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def keep(self) -> None:
        """To be called before a worker starts, and now and then: without the directory none could start."""
        if self._lock is not None and not self._is_there(self._lock):
            self.close()
            structlog.get_logger().warning(
                "the directory of the workers' metrics has gone, and is made anew: what the workers that run count is "
                "not shown until SIGHUP replaces them",
                path=str(self.path),
            )
        while self._lock is None or not self._is_there(self._lock):
            self.close()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_SH)  # it may have been swept before

    def forget(self, pid: int | None) -> None:
        """A worker has ended: its requests in flight leave the metrics with it."""
        mark_process_dead(pid)  # type: ignore[no-untyped-call]  # the package leaves it without types

    def close(self) -> None:
        """Let go of it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _is_there(self, lock: int) -> bool:
        try:
            return os.path.samestat(os.fstat(lock), os.stat(self.path))
        except FileNotFoundError:
            return False


@contextmanager
def shared_metrics() -> Iterator[SharedMetrics]:
    """The directory that ``PROMETHEUS_MULTIPROC_DIR`` names, which stays, or one for this time alone.

    Raises :class:`gateway.errors.SettingsError` where none can be made.
    """
    named = os.environ.get(MULTIPROCESS_DIR)
    try:
        if not named:
            sweep(Path(tempfile.gettempdir()))
        shared = SharedMetrics(Path(named or tempfile.mkdtemp(prefix=_PREFIX)))
        shared.keep()
    except OSError as error:
        raise SettingsError(
            f"--workers: no directory for the workers' metrics can be made ({error.strerror}): let TMPDIR or "
            f"{MULTIPROCESS_DIR} name one that can be written to"
        ) from None
    if named:
        yield shared
        shared.close()
        return
    os.environ[MULTIPROCESS_DIR] = str(shared.path)
    try:
        yield shared
    finally:
        shared.close()
        shutil.rmtree(shared.path, ignore_errors=True)
        del os.environ[MULTIPROCESS_DIR]


def sweep(folder: Path) -> None:
    """Remove the directories in there whose supervisors are gone. Those of other users are theirs."""
    for path in folder.glob(_PREFIX + "*"):
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
            finally:
                os.close(lock)
