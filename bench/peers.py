"""How each server under test is installed and started. Peers live in venvs of their own under .cache/bench."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
SEARCH_KEY = "bench"

AGENTIC_API = "agentic-api==0.9.0"
LITELLM = "litellm[proxy]==1.80.0"
MATPLOTLIB = "matplotlib>=3.9"


@dataclass(frozen=True)
class Start:
    """A command line and what it needs in the environment."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """A server under test. `start` gets the upstream's origin, the port to listen on and a scratch folder."""

    name: str
    version: str
    start: Callable[[str, int, Path], Start]
    requests_only: bool = False  # measured in the request rows alone: it differs from another one only there


def install(requirement: str) -> Path:
    """The `bin` folder of a cached venv that holds that requirement, made at first use. Raises CalledProcessError."""
    home = CACHE / "".join(c if c.isalnum() or c in ".-" else "-" for c in requirement)
    if not (home / "installed").exists():
        print(f"installing {requirement} into {home.relative_to(ROOT)}", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, requirement], check=True)
        (home / "installed").touch()
    return home / "bin"


def environment(extra: dict[str, str]) -> dict[str, str]:
    """Ours without what would configure a server by accident."""
    prefixes = ("GATEWAY_", "AGENTIC_", "LITELLM_", "RUST_", "OTEL_", "MESSAGES_GATEWAY_")
    return {key: value for key, value in os.environ.items() if not key.startswith(prefixes)} | extra


def messages_gateway() -> Peer:
    def start(upstream: str, port: int, scratch: Path) -> Start:
        program = Path(sys.executable).with_name("messages-gateway")
        search = ["--search-provider", "brave", "--search-base-url", upstream]
        return Start(
            [str(program), "serve", "--upstream", upstream, "--port", str(port), *search],
            {"GATEWAY_SEARCH_API_KEY": SEARCH_KEY},
        )

    return Peer("messages-gateway", version("messages-gateway"), start)


def agentic_api(*, log: bool) -> Peer:
    """The Rust gateway, from its wheel's binary. Its log is by default at `info`; `RUST_LOG=off` turns it off."""
    program = install(AGENTIC_API) / "agentic-server"

    def start(upstream: str, port: int, scratch: Path) -> Start:
        home = scratch / ("agentic-api" if log else "agentic-api-no-log")
        home.mkdir(exist_ok=True)
        return Start(
            [str(program), "--llm-api-base", upstream, "--gateway-host", "127.0.0.1", "--gateway-port", str(port)],
            {
                "AGENTIC_API_HOME": str(home),
                "AGENTIC_WEB_SEARCH_PROVIDER": "brave",
                "AGENTIC_WEB_SEARCH_BASE_URL": upstream,
                "BRAVE_API_KEY": SEARCH_KEY,
            }
            | ({} if log else {"RUST_LOG": "off"}),
        )

    return Peer("agentic-api" if log else "agentic-api, log off", AGENTIC_API.partition("==")[2], start, not log)


def chosen(extra: Iterable[str]) -> list[Peer]:
    """The servers of a run: ours, agentic-api with its default log and without, and those asked for by name."""
    peers = [messages_gateway(), agentic_api(log=True), agentic_api(log=False)]
    return peers + [EXTRA[name]() for name in extra]


EXTRA: dict[str, Callable[[], Peer]] = {}
