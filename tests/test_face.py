"""The public face: what ``import gateway`` gives, how little it loads, and a Gateway that is whole when it is made."""

import asyncio
import subprocess
import sys
from importlib.metadata import version

import httpx
import pytest

import gateway
from gateway.server.serve import loopback
from gateway.settings import Settings
from tests.support.programs import free_port


def loaded_by(statement: str) -> set[str]:
    """The modules that are loaded once a new interpreter has run this."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )


def test_the_face() -> None:
    assert gateway.__all__ == ["Gateway", "Settings", "__version__"]
    assert gateway.__version__ == version("messages-gateway")
    assert gateway.Settings is Settings
    assert gateway.Gateway.__module__ == "gateway.app"
    with pytest.raises(AttributeError, match="'gateway' has no attribute 'Gatway'"):
        _ = gateway.Gatway  # type: ignore[attr-defined]  # which is the point


@pytest.mark.parametrize("statement", ["import gateway", "import gateway.turn", "import gateway.cli"])
def test_a_part_loads_no_server(statement: str) -> None:
    assert not loaded_by(statement) & {"gateway.app", "gateway.server.serve", "starlette", "uvicorn", "httpx"}


def test_a_gateway_is_whole_before_any_event_loop_runs() -> None:
    application = gateway.Gateway(Settings(upstream=f"http://127.0.0.1:{free_port()}"))

    async def ask() -> list[int]:
        async with loopback(application) as url, httpx.AsyncClient(base_url=url, verify=False) as client:
            return [(await client.get("/health")).status_code, (await client.post("/v1/messages")).status_code]

    assert asyncio.run(ask()) == [200, 502]
