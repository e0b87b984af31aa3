"""How each server under test is installed and started. Peers live in venvs of their own under .cache/bench."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from bench.bodies import MODEL, SEAL_KEY

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
SEARCH_KEY = "bench"

AGENTIC_API = "agentic-api==0.9.0"
LITELLM = "litellm[proxy]==1.108.7"
MATPLOTLIB = "matplotlib>=3.9"


@dataclass(frozen=True)
class Start:
    """A command line and what it needs in the environment."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """A server under test.

    `start` gets the upstream's origin, the port to listen on and a scratch folder. `measured`: the rows that it is in.
    """

    name: str
    version: str
    start: Callable[[str, int, Path], Start]
    measured: frozenset[str] = frozenset({"requests", "streams", "loop", "workers"})


def install(requirement: str) -> Path:
    """The `bin` folder of a cached venv that holds that requirement, made at first use. Raises CalledProcessError."""
    home = CACHE / "".join(c if c.isalnum() or c in ".-" else "-" for c in requirement)
    if not (home / "installed").exists():
        print(f"installing {requirement} into {home.relative_to(ROOT)}", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, requirement], check=True)
        (home / "installed").touch()
    return home / "bin"


def environment(extra: dict[str, str]) -> dict[str, str]:
    """Ours without what would configure a server by accident."""
    prefixes = ("GATEWAY_", "AGENTIC_", "LITELLM_", "RUST_", "OTEL_", "MESSAGES_GATEWAY_")
    return {key: value for key, value in os.environ.items() if not key.startswith(prefixes)} | extra


def messages_gateway(workers: int = 1) -> Peer:
    """Ours. As many results as make a result block of 40 KB where the double finds so many."""

    def start(upstream: str, port: int, scratch: Path) -> Start:
        program = Path(sys.executable).with_name("messages-gateway")
        search = ["--search-provider", "brave", "--search-base-url", upstream]
        large = ["--search-max-results", "20", "--tool-result-max-chars", "40000"]
        many = ["--workers", str(workers)] if workers > 1 else []
        return Start(
            [str(program), "serve", "--upstream", upstream, "--port", str(port), *search, *large, *many],
            {"GATEWAY_SEARCH_API_KEY": SEARCH_KEY, "GATEWAY_SEAL_KEYS": SEAL_KEY},
        )

    release = version("messages-gateway")
    if workers > 1:
        return Peer(f"messages-gateway, {workers} workers", release, start, frozenset({"workers"}))
    return Peer("messages-gateway", release, start, frozenset({"requests", "streams", "loop", "workers", "native"}))


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

    release = AGENTIC_API.partition("==")[2]
    if log:
        return Peer("agentic-api", release, start)
    # Its log has a part in a request's cost, none in an event's.
    return Peer("agentic-api, log off", release, start, frozenset({"requests"}))


def litellm() -> Peer:
    """The LiteLLM proxy with one model and nothing else configured.

    Not in the loop rows: its search loop asks the upstream without streaming, so that no event ever passes through it.
    """
    program = install(LITELLM) / "litellm"

    def start(upstream: str, port: int, scratch: Path) -> Start:
        config = scratch / "litellm.json"
        model = {"model": f"anthropic/{MODEL}", "api_base": upstream, "api_key": SEARCH_KEY}
        config.write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": model}]}))
        return Start(
            [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)],
            {
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            },
        )

    return Peer("litellm", LITELLM.partition("==")[2], start, frozenset({"requests", "streams"}))


EXTRA: dict[str, Callable[[], Peer]] = {"litellm": litellm}


def chosen(extra: Iterable[str]) -> list[Peer]:
    """The servers of a run: ours, agentic-api with its default log and without, and those asked for by name."""
    peers = [messages_gateway(), messages_gateway(workers=2), agentic_api(log=True), agentic_api(log=False)]
    return peers + [EXTRA[name]() for name in extra]
