"""Every command in README and docs/: run where it can run here, held to its program's options where it cannot.

What stands in for the world: a scripted model server and a search engine on loopback, a gateway before them, programs
called ``claude`` and ``vllm``. Addresses in a command are replaced by theirs. A command that nothing below knows fails.
"""

import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest

from gateway.cli import main as gateway_cli
from gateway.commands.vllm import family_of
from gateway.server import serve as server
from gateway.settings import Settings, variable
from gateway.tools.base import SearchBackend
from gateway.tools.canned import CannedSearch
from gateway.tools.web_search import make_backend, make_search
from gateway.turn.web_search import SearchResult
from recorder.cli import main as recorder_cli
from tests.support import vllm
from tests.support.gateway import running_gateway
from tests.support.pages import ROOT, Command, Fence, commands, fences
from tests.support.programs import free_port, put_program
from tests.support.upstream import (
    Answer,
    ScriptedUpstream,
    SeenRequest,
    json_answer,
    message,
    sse,
    sse_answer,
    text,
    tool_use,
)

pytestmark = pytest.mark.anyio

WINDOW = 40_960
FOUND = SearchResult("Announcing Rust 1.95.0", "https://blog.rust-lang.org/", "Rust 1.95.0 is out.", "2026-04-16")
TYPED = {"type": "web_search_20250305", "name": "web_search"}

UPSTREAMS = re.compile(r"http://(gpu-box|127\.0\.0\.1):(8000|8001|23333|30000)")
GATEWAYS = re.compile(r"http://(gpu-box|127\.0\.0\.1):9000")
SEARCHES = re.compile(r"http://127\.0\.0\.1:8888")
LISTENS = re.compile(r"(?<=^)(8001|9000)$")

CLAUDE_CODE_VARIABLES = {
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_MODEL",
    "CLAUDE_CODE_ATTRIBUTION_HEADER",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY",
    "CLAUDE_CODE_MAX_CONTEXT_TOKENS",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "ENABLE_TOOL_SEARCH",
}
"""code.claude.com/docs/en/env-vars; the attribution header: docs.sglang.io/docs/basic_usage/anthropic_api."""

OPTIONS: dict[tuple[str, ...], set[str]] = {
    # vllm serve --help=all, vLLM 0.32.0
    ("vllm", "serve"): {
        "--enable-auto-tool-choice",
        "--gpu-memory-utilization",
        "--host",
        "--max-model-len",
        "--reasoning-parser",
        "--served-model-name",
        "--tool-call-parser",
    },
    # docs.sglang.io, "Server Arguments"
    ("python", "-m", "sglang.launch_server"): {
        "--host",
        "--model-path",
        "--port",
        "--reasoning-parser",
        "--served-model-name",
        "--tool-call-parser",
    },
    # lmdeploy serve api_server --help, and the registered parsers in lmdeploy/serve/parsers
    ("lmdeploy", "serve", "api_server"): {
        "--backend",
        "--model-name",
        "--reasoning-parser",
        "--server-name",
        "--server-port",
        "--tool-call-parser",
    },
    # claude --help, 2.1.197
    ("claude",): {"-p", "--allowedTools"},
    ("docker", "run"): {"-d", "--name", "-p", "-v"},
    ("docker", "build"): {"--file", "--tag"},
    ("kubectl", "create", "secret", "generic"): {"--from-literal"},
    ("kubectl", "apply"): {"-f"},
    ("kubectl", "rollout", "status"): set(),
    ("kubectl", "port-forward"): set(),
    ("nginx",): {"-t"},
}
"""Programs that are not run here, and the options that the pages may give them."""

ELSEWHERE = {
    ("python", "-m", "tests.support.wire"): "tests/test_docs_turns.py holds the page to what this would write",
    (".", ".venv/bin/activate"): "made by make install, which runs before these tests do",
}


@dataclass
class World:
    """What a page's commands find when they are typed: servers, programs, a folder."""

    upstream: ScriptedUpstream
    search: ScriptedUpstream
    gateway: str
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def here(self, word: str) -> str:
        """A word of a command with the addresses of this world."""
        word = UPSTREAMS.sub(self.upstream.origin, word)
        word = SEARCHES.sub(self.search.origin, GATEWAYS.sub(self.gateway, word))
        return str(free_port()) if LISTENS.match(word) else word

    def words(self, command: Command) -> list[str]:
        return [self.here(word) for word in command.words]


def model_server(request: SeenRequest) -> Answer:
    """Serves qwen3: calls a search function once, then answers."""
    path = request.target.partition("?")[0]
    if request.method == "GET":
        models = {"data": [{"id": "qwen3", "owned_by": "vllm", "max_model_len": WINDOW}]}
        return json_answer({"/v1/models": models, "/version": {"version": "0.32.0"}}.get(path, {}))
    body = request.json
    if body["model"] != "qwen3":
        return json_answer({"error": {"message": f"The model `{body['model']}` does not exist."}}, 404)
    if path == "/v1/chat/completions":
        return vllm.chat(vllm.say("Hello!", 9707, 0, 151645), stream=bool(body.get("stream")))
    if path == "/v1/messages/count_tokens":
        return json_answer({"input_tokens": len(json.dumps(body)) // 4})
    if body["max_tokens"] > WINDOW:
        return json_answer({"error": {"message": "max_tokens cannot be greater than max_model_len"}}, 400)
    tool = next((tool["name"] for tool in body.get("tools") or [] if "input_schema" in tool), None)
    answered = "tool_result" in json.dumps(body["messages"])
    calls = tool is not None and not answered
    block = tool_use(str(tool), {"query": "latest stable rust"}) if calls else text("It is Rust 1.95.0.")
    return sse_answer(sse(block)) if body.get("stream") else json_answer(message(block))


def search_engine(request: SeenRequest) -> Answer:
    """A SearXNG that knows one page."""
    assert "format=json" in request.target
    page = {"title": FOUND.title, "url": FOUND.url, "content": FOUND.snippet, "publishedDate": FOUND.page_age}
    return json_answer({"results": [page]})


CLAUDE = "import sys; print('claude was asked', sys.argv[1:])"
VLLM = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers()
print("vllm was started", sys.argv[1:], flush=True)
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


@asynccontextmanager
async def world(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """The folder holds this project's examples and cassettes, and the files that the page spells out."""
    for name in ("examples", "cassettes"):
        (folder / name).symlink_to(ROOT / name)
    for fence in fences(page):
        if fence.language in ("toml", "yaml"):
            (folder / f"gateway.{fence.language}").write_text(fence.text)
    put_program(folder / "bin", "claude", CLAUDE)
    put_program(folder / "bin", "vllm", VLLM)
    for name in list(os.environ):
        if name.startswith(("GATEWAY_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(folder)
    canned = CannedSearch(default=[FOUND])
    async with ScriptedUpstream(model_server) as upstream, ScriptedUpstream(search_engine) as search:
        settings = Settings(upstream=upstream.origin, log_level="error")
        async with running_gateway(settings, backend=canned) as gateway:
            yield World(upstream, search, gateway.url, folder, monkeypatch)


FENCES = [(fence, list(found)) for fence, found in groupby(commands(), lambda command: command.fence)]


@pytest.mark.parametrize(("fence", "typed"), FENCES, ids=[fence.place for fence, _ in FENCES])
async def test_the_commands_of_a_page(
    fence: Fence, typed: list[Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(fence.page, tmp_path, monkeypatch) as here:
        for command in typed:
            await follow(command, here)


async def follow(command: Command, here: World) -> None:
    """Do what is known of a command."""
    handler = HANDLERS.get(command.name)
    if handler is not None and not any(command.words[: len(known)] == known for known in (*OPTIONS, *ELSEWHERE)):
        await handler(command, here)
        return
    if command.words in ELSEWHERE:
        return
    known = next((known for known in OPTIONS if command.words[: len(known)] == known), None)
    assert known is not None, f"{command.place}: nothing is known of this command"
    check_options(command, known)


# --- run here


async def messages_gateway(command: Command, here: World) -> None:
    sub, *arguments = here.words(command)[1:]
    if "--help" in arguments:
        assert await in_thread(gateway_cli, sub, *arguments) == 0
    elif sub == "serve" and "--model" in arguments:
        await serve_with_vllm(arguments, here)
    elif sub == "serve":
        await serve(arguments, here)
    elif sub == "doctor":
        await doctor(arguments, here)
    elif sub == "claude":
        await claude(arguments, here)
    else:
        raise AssertionError(f"{command.place}: no such command")


async def serve(arguments: list[str], here: World) -> None:
    """The command line is read as ever; the application it asks for answers a search, on a free port."""
    asked: list[Settings] = []
    here.monkeypatch.setattr(server, "serve", lambda settings, *_, **__: asked.append(settings))
    gateway_cli.main(["serve", *arguments], standalone_mode=False)
    (settings,) = asked
    make_search(settings)  # as at the start: a missing key shows here
    settings = settings.model_copy(update={"upstream": here.upstream.origin, "log_level": "error"})
    found = CannedSearch(default=[FOUND]) if settings.search_provider != "searxng" else None
    if settings.search_base_url is not None:
        settings = settings.model_copy(update={"search_base_url": here.search.origin})
    async with running_gateway(settings, backend=found) as gateway:
        mapped = "claude-*" in settings.model_map
        body = {
            "model": "claude-opus-5-5" if mapped else "qwen3",
            "max_tokens": 128_000 if settings.max_tokens_cap else 1024,
            "tools": [TYPED],
            "messages": [{"role": "user", "content": "What is the latest stable Rust release?"}],
        }
        keys = {"x-api-key": settings.api_keys[0].get_secret_value()} if settings.api_keys else {}
        answer = await gateway.client.post("/v1/messages", json=body, headers=keys)
        if keys:
            assert (await gateway.client.post("/v1/messages", json=body)).status_code == 401
    assert answer.status_code == 200, answer.text
    assert FOUND.url in answer.text
    assert answer.json()["model"] == body["model"]


async def serve_with_vllm(arguments: list[str], here: World) -> None:
    """A process of its own: it starts the vllm that is on PATH, listens, and stops both when it is told to."""
    here.monkeypatch.setenv("GATEWAY_UPSTREAM", f"http://127.0.0.1:{free_port()}")
    here.monkeypatch.setenv("GATEWAY_PORT", "0")
    _, said = await until_said(["-m", "gateway", "serve", *arguments], "listening")
    model = arguments[arguments.index("--model") + 1]
    started = next(line for line in said.splitlines() if line.startswith("starting vllm serve"))
    family = family_of(model)
    assert family is not None
    for flag in (*family.tool_flags, *family.reasoning_flags):
        assert flag in started
    for more in [word for at, word in enumerate(arguments) if arguments[at - 1] == "--vllm-arg"]:
        assert more in started
        check_words(more.split(), OPTIONS["vllm", "serve"])
    assert "stopping vLLM" in said


async def doctor(arguments: list[str], here: World) -> None:
    """All is well in this world; ddgs alone is replaced, which would ask the internet."""

    def backend(provider: str, *, base_url: str | None, api_key: str | None) -> SearchBackend:
        if provider == "ddgs":
            return CannedSearch(default=[FOUND])
        return make_backend(provider, base_url=base_url, api_key=api_key)

    here.monkeypatch.setattr("gateway.commands.doctor.search.make_backend", backend)
    here.monkeypatch.setenv("GATEWAY_UPSTREAM", here.upstream.origin)
    assert await in_thread(gateway_cli, "doctor", *arguments) == 0
    assert any(b"tool_choice" in request.body for request in here.upstream.requests)


async def claude(arguments: list[str], here: World) -> None:
    """A process of its own, and the claude that is on PATH. With words for Claude Code it starts its gateway too."""
    port = str(free_port()) if "--" in arguments else here.gateway.rpartition(":")[2]
    here.monkeypatch.setenv("GATEWAY_PORT", port)
    here.monkeypatch.setenv("GATEWAY_UPSTREAM", here.upstream.origin)
    status, out = await to_the_end(["-m", "gateway", "claude", *arguments])
    assert status == 0, out
    if "--print-env" in arguments:
        named = set(re.findall(r"^export (\w+)=", out, re.MULTILINE))
        assert "ANTHROPIC_BASE_URL" in named
        assert named <= CLAUDE_CODE_VARIABLES
    else:
        rest = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
        assert f"claude was asked {rest}" in out
        check_words(rest, OPTIONS["claude",])


async def messages_recorder(command: Command, here: World) -> None:
    sub, *arguments = here.words(command)[1:]
    if sub == "play" or "proxy" in arguments:
        ready = "recording into" if sub == "record" else "playing"
        port = arguments[arguments.index("--listen" if sub == "record" else "--port") + 1]

        async def use() -> None:
            async with httpx.AsyncClient(verify=False, trust_env=False) as client:
                assert (await client.get(f"http://127.0.0.1:{port}/v1/models")).status_code == 200

        status, _ = await until_said(["-m", "recorder", sub, *arguments], ready, use)
        assert status == 0
    else:
        assert await in_thread(recorder_cli, sub, *arguments, stdin=command.stdin, monkeypatch=here.monkeypatch) == 0


async def curl(command: Command, here: World) -> None:
    """The request that curl would send; its status is 2xx."""
    words = iter(here.words(command)[1:])
    url = ""
    data: str | None = None
    headers: dict[str, str] = {}
    for word in words:
        if word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            data = next(words)
        elif word != "-s":
            assert word.startswith("http://"), f"{command.place}: {word}"
            url = word
    async with httpx.AsyncClient(verify=False, trust_env=False) as client:
        answer = await client.request("GET" if data is None else "POST", url, content=data, headers=headers)
    assert answer.status_code == 200, answer.text
    assert not str(answer.url).startswith(here.upstream.origin)


async def python(command: Command, here: World) -> None:
    """An example, as a process of its own."""
    script, *arguments = here.words(command)[1:]
    assert script.startswith("examples/")
    here.monkeypatch.setenv("ANTHROPIC_BASE_URL", here.gateway)
    async with AsyncExitStack() as stack:
        if "--gateway" in arguments:
            here.monkeypatch.syspath_prepend(str(ROOT / "examples"))
            import rollout

            arguments[arguments.index("--gateway") + 1] = await stack.enter_async_context(rollout.played())
        status, said = await to_the_end([script, *arguments])
    assert status == 0, said
    assert "1.95.0" in said


async def export(command: Command, here: World) -> None:
    """Names that somebody reads; what is set is there for the page's next command."""
    line = re.sub(r"\$\(openssl rand -hex 32\)", "5e" * 32, " ".join(command.words[1:]))
    for pair in line.split():
        name, equals, value = pair.partition("=")
        assert equals, pair
        assert value, pair
        if name.startswith("GATEWAY_"):
            assert name in {variable(setting) for setting in Settings.model_fields}, f"{command.place}: {name}"
            here.monkeypatch.setenv(name, value)
        else:
            assert name in CLAUDE_CODE_VARIABLES, f"{command.place}: {name}"


async def make(command: Command, here: World) -> None:
    """The target is there; what it does is tested where it is made."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    target, *rest = command.words[1:]
    assert target in targets, f"{command.place}: {target}"
    assert all(word.startswith("ARGS=") for word in rest)


async def pip(command: Command, here: World) -> None:
    """An extra of this project's, from the checkout."""
    verb, what = command.words[1:]
    project = (ROOT / "pyproject.toml").read_text()
    extra = re.fullmatch(r"\.\[(\w+)\]", what)
    assert verb == "install"
    assert extra is not None
    assert re.search(rf"^{extra[1]} = \[", project, re.MULTILINE)


Handler = Callable[[Command, World], Awaitable[None]]
HANDLERS: dict[str, Handler] = {
    "messages-gateway": messages_gateway,
    "messages-recorder": messages_recorder,
    "curl": curl,
    "python": python,
    "export": export,
    "make": make,
    "pip": pip,
}


# --- held to their options


def check_options(command: Command, known: tuple[str, ...]) -> None:
    words = command.words[len(known) :]
    check_words(words, OPTIONS[known])
    if known == ("vllm", "serve"):
        family = family_of(words[0])
        assert family is not None
        assert {*family.tool_flags, *family.reasoning_flags} <= set(words), command.place
    for file in [word for word in words if word.startswith("deploy/")]:
        assert (ROOT / file).is_file(), f"{command.place}: {file}"
    for name in re.findall(r"--from-literal=(\w+)=", " ".join(words)):
        assert name in {variable(setting) for setting in Settings.model_fields}, command.place


def check_words(words: Iterable[str], options: set[str]) -> None:
    for word in words:
        if word.startswith("-"):
            assert word.partition("=")[0] in options, word


def test_no_option_is_listed_for_nothing() -> None:
    used = " ".join(word for command in commands() for word in command.words)
    for program, options in OPTIONS.items():
        assert any(command.words[: len(program)] == program for command in commands()), program
        for option in options:
            assert option in used, option
    for known in ELSEWHERE:
        assert any(command.words == known for command in commands()), known
    assert find_spec("tests.support.wire") is not None


# --- processes


async def in_thread(cli: Any, *arguments: str, stdin: str = "", monkeypatch: pytest.MonkeyPatch | None = None) -> int:
    """A command of ours in this process, beside the event loop that serves it; its exit status."""
    if monkeypatch is not None and stdin:
        monkeypatch.setattr("sys.stdin", stdin.splitlines())

    def run() -> int:
        try:
            return cli.main(list(arguments), standalone_mode=False) or 0
        except SystemExit as ended:
            return int(ended.code or 0)

    return await anyio.to_thread.run_sync(run)


async def to_the_end(arguments: Sequence[str]) -> tuple[int, str]:
    """A Python process: its exit status, and what it said."""
    result = await anyio.run_process([sys.executable, *arguments], check=False, env=dict(os.environ), stderr=-2)
    return result.returncode, result.stdout.decode()


async def until_said(
    arguments: Sequence[str], words: str, use: Callable[[], Awaitable[None]] | None = None
) -> tuple[int, str]:
    """A Python process that serves: once it has said the words it is used, and told to stop."""
    said = ""
    async with await anyio.open_process([sys.executable, "-u", *arguments], env=dict(os.environ), stderr=-2) as process:
        assert process.stdout is not None
        with anyio.fail_after(20):
            async for chunk in process.stdout:
                said += chunk.decode()
                if words in said and process.returncode is None:
                    await (use() if use is not None else anyio.lowlevel.checkpoint())
                    process.send_signal(signal.SIGTERM)
                    words = "\0"
            status = await process.wait()
    assert words == "\0", f"it never said {words!r}:\n{said}"
    return status, said
