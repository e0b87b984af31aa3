"""``messages-gateway claude``: a gateway if there is none, the environment, and Claude Code's own exit."""

import json
import shlex
import signal
import socket
from pathlib import Path

import anyio.to_thread
import pytest

from gateway.commands.claude import CannotStart, environment, exports
from gateway.commands.tuning import tunings
from gateway.model_server.listing import ServedModel
from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.programs import Running, free_port, messages_gateway, put_program
from tests.support.upstream import Scripted, ScriptedUpstream, SeenRequest, json_answer, message, raw, text

pytestmark = pytest.mark.anyio

CLAUDE = """
import json, os, signal, sys, urllib.request

def ask(path, body=None):
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + path, body)
    request.add_header("content-type", "application/json")
    request.add_header("authorization", "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"])
    return json.load(urllib.request.urlopen(request))

body = {"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 64000, "messages": []}
print(json.dumps({
    "args": sys.argv[1:],
    "env": {name: os.environ[name] for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE_", "GATEWAY_"))},
    "tool search": os.environ.get("ENABLE_TOOL_SEARCH"),
    "gateway": ask("/")["name"],
    "answer": ask("/v1/messages", json.dumps(body).encode()),
}), flush=True)
if "wait" in sys.argv:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    print("ready", file=sys.stderr, flush=True)
    signal.pause()
sys.exit(7)
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a claude that asks its gateway one thing, prints what it was given, and exits with 7."""
    put_program(tmp_path / "bin", "claude", CLAUDE)
    return tmp_path / "bin"


def upstream(*models: str) -> ScriptedUpstream:
    """A model server with a window of 4,096 tokens."""

    def answer(request: SeenRequest) -> Scripted:
        if request.target == "/v1/models":
            return json_answer({"data": [{"id": model, "max_model_len": 4096} for model in models]})
        return json_answer(message(text("hi"), model=models[0]))

    return ScriptedUpstream(answer)


async def finish(command: Running) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command, while the upstream of this event loop answers."""
    out, err = await anyio.to_thread.run_sync(command.process.communicate)
    return command.process.returncode, out, command.said + err


async def run(programs: Path, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    with messages_gateway("claude", *arguments, path=programs, env=env) as command:
        return await finish(command)


def log_in(err: str, words: str) -> Path:
    """The log that stands after these words."""
    return Path(err.partition(words)[2].split()[0])


def gone(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


async def test_starts_a_gateway_runs_claude_and_stops_the_gateway(programs: Path) -> None:
    port = free_port()
    secrets = {
        "GATEWAY_API_KEYS": "client-key,another",
        "GATEWAY_UPSTREAM_API_KEY": "upstream-key",
        "ANTHROPIC_API_KEY": "sk-ant-of-the-user",
        "CLAUDE_CODE_USE_BEDROCK": "1",
    }
    async with upstream("qwen3") as server:
        status, out, err = await run(
            programs, f"--upstream={server.origin}", f"--port={port}", "--", "-p", "hello there", env=secrets
        )
    seen = json.loads(out)
    assert status == 7
    assert seen["args"] == ["-p", "hello there"]
    assert seen["gateway"] == "messages-gateway"
    assert seen["env"] == {
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        "ANTHROPIC_AUTH_TOKEN": "client-key",
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_MODEL": "qwen3",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "qwen3",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "qwen3",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "qwen3",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_USE_BEDROCK": "",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "4096",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "512",
    }
    assert seen["tool search"] == "true"
    assert "messages-gateway: CLAUDE_CODE_MAX_CONTEXT_TOKENS=4096 (the model's window)" in err
    assert server.requests[-1].json["max_tokens"] <= 4096
    assert server.requests[-1].header(b"authorization") == b"Bearer upstream-key"
    assert gone(port)
    assert f"started one at http://127.0.0.1:{port}" in err
    assert not log_in(err, "log in ").exists()


async def test_uses_the_gateway_that_is_there_and_leaves_it_running(programs: Path) -> None:
    async with upstream("qwen3", "glm") as server, running_gateway(Settings(upstream=server.origin)) as gateway:
        status, out, err = await run(programs, f"--port={gateway.port}")
        assert (await gateway.client.get("/health")).status_code == 200
    assert status == 7
    assert json.loads(out)["env"]["ANTHROPIC_BASE_URL"] == gateway.url
    assert json.loads(out)["env"]["ANTHROPIC_AUTH_TOKEN"] == "none-needed"
    assert err.startswith("messages-gateway: using qwen3; --model takes another: glm\n")


async def test_the_model_can_be_chosen(programs: Path) -> None:
    async with upstream("qwen3", "glm") as server:
        _, out, err = await run(programs, f"--upstream={server.origin}", "--port=0", "--model=glm")
    assert json.loads(out)["env"]["ANTHROPIC_MODEL"] == "glm"
    assert "takes another" not in err


async def test_signals_reach_claude_and_its_answer_is_the_exit_status(programs: Path) -> None:
    port = free_port()
    async with upstream("qwen3") as server:
        with messages_gateway(
            "claude", f"--upstream={server.origin}", f"--port={port}", "--", "wait", path=programs
        ) as command:
            await anyio.to_thread.run_sync(command.says, "ready")
            command.process.send_signal(signal.SIGINT)  # as from a terminal: claude's own business
            command.process.send_signal(signal.SIGTERM)
            status, _, _ = await finish(command)
    assert status == 9
    assert gone(port)


async def test_something_else_at_that_address_is_said_plainly(programs: Path) -> None:
    async with ScriptedUpstream(json_answer({"status": "ok"})) as web, ScriptedUpstream(raw(b"220 smtp\r\n")) as mail:
        for other in (web, mail):
            status, out, err = await run(programs, f"--port={other.port}")
            assert (status, out) == (1, "")
            assert f"Error: what listens at {other.origin} is not a messages-gateway" in err
            assert "--port" in err


async def test_a_gateway_that_cannot_start_says_why(programs: Path) -> None:
    status, _, err = await run(programs, "--port=0", "--search-provider=brave")
    assert status == 1
    assert "--search-provider brave needs a key: set GATEWAY_SEARCH_API_KEY" in err
    log_in(err, "All of them: ").unlink()


async def test_an_upstream_that_is_not_there(programs: Path) -> None:
    port = free_port()
    status, out, err = await run(programs, f"--upstream=http://127.0.0.1:{free_port()}", f"--port={port}")
    assert (status, out) == (1, "")
    assert "is the model server running, and is --upstream its address? messages-gateway doctor says more" in err
    assert gone(port)


async def test_a_gateway_that_wants_another_key(programs: Path) -> None:
    async with (
        upstream("qwen3") as server,
        running_gateway(Settings(upstream=server.origin, api_keys=("right",))) as gateway,
    ):
        status, _, err = await run(programs, f"--port={gateway.port}", env={"GATEWAY_API_KEYS": "wrong-key"})
    assert status == 1
    assert f"{gateway.url} wants a key: set GATEWAY_API_KEYS" in err
    assert "wrong-key" not in err


async def test_without_claude_it_says_what_to_install(tmp_path: Path) -> None:
    status, _, err = await run(tmp_path, env={"PATH": str(tmp_path)})
    assert (status, err) == (1, "Error: claude is not on PATH: npm install -g @anthropic-ai/claude-code\n")


def exported(out: str) -> dict[str, str]:
    lines = [shlex.split(line) for line in out.splitlines()]
    assert all(line[0] == "export" and len(line) == 2 for line in lines)
    return dict(line[1].split("=", 1) for line in lines)


async def test_print_env_is_for_a_shell_and_starts_nothing(programs: Path) -> None:
    port = free_port()
    async with upstream("it's a model", "other") as server:
        status, out, _ = await run(programs, "--print-env", f"--upstream={server.origin}", f"--port={port}")
    assert status == 0
    assert exported(out)["ANTHROPIC_MODEL"] == "it's a model"
    assert exported(out)["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:{port}"
    assert gone(port)


async def test_print_env_without_a_port_to_name() -> None:
    with pytest.raises(CannotStart, match="--print-env needs the port of the gateway: --port 9000"):
        exports(Settings(port=0), None)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (raw(b"", then="reset"), "To choose a model without asking: --model NAME"),
        (json_answer({"detail": "Not Found"}, 404), "is the model server running"),
        (json_answer({"data": []}), "upstream serves no model"),
        (json_answer({"models": []}), "is no list of models"),
        (json_answer({"error": "Unauthorized"}, 401), "GATEWAY_UPSTREAM_API_KEY to upstream's"),
    ],
)
async def test_a_list_of_models_that_is_none(answer: Scripted, words: str) -> None:
    async with ScriptedUpstream(answer) as server:
        settings = Settings(upstream=server.origin, port=free_port())
        with pytest.raises(CannotStart, match=words):
            await anyio.to_thread.run_sync(exports, settings, None)


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:9000"), ("::", "http://[::1]:9000"), ("gpu-box", "http://gpu-box:9000")],
)
def test_where_a_client_finds_the_gateway(host: str, url: str) -> None:
    assert environment(Settings(host=host), ServedModel("qwen3"), {})["ANTHROPIC_BASE_URL"] == url


async def test_a_model_can_be_named_that_no_list_has() -> None:
    async with ScriptedUpstream(json_answer({"error": "Not Found"}, 404)) as server:
        lines = await anyio.to_thread.run_sync(exports, Settings(upstream=server.origin, port=free_port()), "qwen3")
    assert exported(lines)["ANTHROPIC_MODEL"] == "qwen3"
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS" not in exported(lines)


@pytest.mark.parametrize(
    ("model", "tuned"),
    [
        (ServedModel("m"), {}),
        (ServedModel("m", window=131_072, owner="vllm"), {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "131072"}),
        (
            ServedModel("m", window=40_960, owner="sglang"),
            {
                "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "40960",
                "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "5120",
                "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            },
        ),
    ],
)
def test_what_suits_a_model(model: ServedModel, tuned: dict[str, str]) -> None:
    assert {one.name: one.value for one in tunings(model, {})} == {"ENABLE_TOOL_SEARCH": "true", **tuned}


def test_what_the_user_has_set_stays() -> None:
    mine = {"ENABLE_TOOL_SEARCH": "false", "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "9999"}
    assert not mine.keys() & environment(Settings(), ServedModel("m", window=131_072), mine).keys()
