"""Several server processes: what they share, what becomes of it, and what happens where they cannot start."""

import asyncio
import os
import re
import shutil
import signal
from pathlib import Path

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.programs import messages_gateway
from tests.support.serving import end, serving, workers
from tests.support.upstream import ScriptedUpstream, raw

pytestmark = pytest.mark.anyio


def directories(folder: Path) -> list[Path]:
    """Where the metrics of workers are kept."""
    return sorted(folder.glob("messages-gateway-metrics-*"))


async def shown(client: httpx.AsyncClient, path: str = "/metrics") -> str:
    """What any of the workers answers, asked by a new connection."""
    async with httpx.AsyncClient(base_url=client.base_url, verify=False) as one:
        answer = await one.get(path)
    assert answer.status_code == 200
    return answer.text


async def test_a_worker_that_dies_takes_its_requests_in_flight_out_of_the_metrics(tmp_path: Path) -> None:
    async def in_flight(expected: int) -> bool:
        found = re.search(r"^messages_gateway_requests_in_flight (\S+)", await shown(client), re.M)
        return found is not None and float(found[1]) == expected

    async with (
        asyncio.timeout(60),
        ScriptedUpstream(raw(then="stall")) as upstream,
        serving(tmp_path, "--upstream", upstream.origin, "--workers", "2", TMPDIR=str(tmp_path)) as (program, client),
    ):
        await eventually(lambda: len(workers(program)) == 2)
        waits = asyncio.create_task(client.post("/v1/messages", json={}))
        await upstream.arrived()
        await eventually(lambda: in_flight(2))  # itself, and the one that waits
        for worker in workers(program):
            os.kill(worker, signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            await waits
        await eventually(lambda: in_flight(1), within_s=30)
        assert await end(program) == 0


async def test_a_directory_of_metrics_that_vanishes_is_made_anew(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(60),
        serving(tmp_path, "--workers", "2", TMPDIR=str(tmp_path)) as (program, client),
    ):
        await eventually(lambda: len(workers(program)) == 2)
        before = set(workers(program))
        (directory,) = directories(tmp_path)
        shutil.rmtree(directory)
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        await eventually(lambda: len(workers(program)) == 2 and not before & set(workers(program)), within_s=30)
        assert "messages_gateway_requests_in_flight" in await shown(client)
        assert directories(tmp_path) == [directory]
        assert await end(program) == 0
    assert directories(tmp_path) == []
    assert "the directory of the workers' metrics has gone" in program.said
    assert "Traceback" not in program.said


async def test_what_a_killed_supervisor_left_is_swept_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    flags = ("--workers", "2")
    async with asyncio.timeout(60), serving(tmp_path, *flags, TMPDIR=str(tmp_path)) as (living, _):
        (kept,) = directories(tmp_path)
        async with serving(tmp_path, *flags, TMPDIR=str(tmp_path)) as (killed, _):
            assert len(directories(tmp_path)) == 2
            killed.process.kill()
            killed.process.wait()
        assert len(directories(tmp_path)) == 2
        async with serving(tmp_path, *flags, TMPDIR=str(tmp_path)) as (third, _):
            assert kept in directories(tmp_path)
            assert len(directories(tmp_path)) == 2
            assert await end(third) == 0
        assert directories(tmp_path) == [kept]
        assert await end(living) == 0


async def test_a_directory_that_the_operator_names_is_made_and_stays(tmp_path: Path) -> None:
    named = tmp_path / "of" / "metrics"
    async with serving(tmp_path, "--workers", "2", PROMETHEUS_MULTIPROC_DIR=str(named)) as (program, client):
        assert "messages_gateway_requests_in_flight" in await shown(client)
        assert await end(program) == 0
    assert named.is_dir()


async def test_one_that_cannot_be_made_stops_the_start_in_a_sentence(tmp_path: Path) -> None:
    env = {"PROMETHEUS_MULTIPROC_DIR": "/dev/null/metrics"}
    with messages_gateway("serve", "--port", "0", "--workers", "2", path=tmp_path, env=env) as program:
        assert await asyncio.to_thread(program.end) == 1
    assert "Error: --workers: no directory for the workers' metrics can be made" in program.said
    assert "Traceback" not in program.said


async def test_workers_that_cannot_start_end_the_server_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif any('spawn_main' in word for word in sys.orig_argv):\n    os._exit(1)\n"
    )
    with messages_gateway(
        "serve", "--port", "0", "--workers", "2", path=tmp_path, env={"PYTHONPATH": str(tmp_path)}
    ) as program:
        assert await asyncio.to_thread(program.end) == 1
    assert "Error: the server's processes cannot start" in program.said
    assert "Traceback" not in program.said
