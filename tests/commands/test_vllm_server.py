"""``serve --model``: the flags a model gets, and a vLLM that lives exactly as long as the gateway."""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.commands.vllm import running_vllm, vllm_arguments
from gateway.errors import SettingsError
from tests.support.programs import free_port, messages_gateway, put_program

ORIGIN = "http://127.0.0.1:8000"

VLLM = """
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

seen = os.environ["SEEN"]

def note(what):
    with open(seen, "a") as file:
        file.write(json.dumps(what) + "\\n")

def stop(*_):
    note("stopped")
    os._exit(0)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            print("CUDA error: the GPU has fallen off the bus", flush=True)
            os._exit(3)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

if os.environ.get("DIES"):
    print("\\x1b[31mValueError: not enough memory\\x1b[0m", flush=True)
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
if os.environ.get("LOADS"):
    signal.pause()
note({"argv": sys.argv[1:], "pid": os.getpid(), "keys": [name for name in os.environ if name.startswith("GATEWAY_")]})
port = int(sys.argv[sys.argv.index("--port") + 1])
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a vllm that answers at once, notes what it was told, and dies when asked to."""
    put_program(tmp_path / "bin", "vllm", VLLM)
    return tmp_path / "bin"


@pytest.fixture
def upstream() -> str:
    return f"http://127.0.0.1:{free_port()}"


def serve(upstream: str, *arguments: str) -> Sequence[str]:
    return ("serve", "--model", "Qwen/Qwen3-8B", "--port=0", f"--upstream={upstream}", *arguments)


def noted(seen: Path) -> list[Any]:
    return [json.loads(line) for line in seen.read_text().splitlines()]


def log_of(said: str) -> Path:
    return Path(said.partition("its output: ")[2].split()[0])


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("Qwen/Qwen3-8B", "--enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3"),
        ("Qwen/Qwen3-4B-Instruct-2507-FP8", "--enable-auto-tool-choice --tool-call-parser hermes"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "--enable-auto-tool-choice --tool-call-parser qwen3_coder"),
        ("Qwen/Qwen3.5-35B-A3B", "--enable-auto-tool-choice --tool-call-parser qwen3_coder --reasoning-parser qwen3"),
        ("openai/gpt-oss-20b", "--enable-auto-tool-choice --tool-call-parser openai --reasoning-parser openai_gptoss"),
        ("zai-org/GLM-4.6", "--enable-auto-tool-choice --tool-call-parser glm45 --reasoning-parser glm45"),
        ("zai-org/GLM-5-FP8", "--enable-auto-tool-choice --tool-call-parser glm47 --reasoning-parser glm45"),
        ("moonshotai/Kimi-K2-Instruct-0905", "--enable-auto-tool-choice --tool-call-parser kimi_k2"),
        (
            "moonshotai/Kimi-K2.5",
            "--enable-auto-tool-choice --tool-call-parser kimi_k2 --reasoning-parser kimi_k2",
        ),
        (
            "deepseek-ai/DeepSeek-V3.2",
            "--enable-auto-tool-choice --tool-call-parser deepseek_v32 --tokenizer-mode deepseek_v32 "
            "--reasoning-parser deepseek_v3",
        ),
        ("meta-llama/Llama-3.3-70B-Instruct", "--enable-auto-tool-choice --tool-call-parser llama3_json"),
        ("mistralai/Devstral-Small-2507", "--enable-auto-tool-choice --tool-call-parser mistral"),
        (
            "MiniMaxAI/MiniMax-M2.5",
            "--enable-auto-tool-choice --tool-call-parser minimax_m2 --reasoning-parser minimax_m2",
        ),
        ("/models/Qwen3-8B/", "--enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "--enable-auto-tool-choice --tool-call-parser hermes"),
        ("example/nobody-knows", ""),
    ],
)
def test_the_flags_of_a_family(model: str, flags: str) -> None:
    assert vllm_arguments(model, ORIGIN) == ["serve", model, "--host", "127.0.0.1", "--port", "8000", *flags.split()]


def test_the_operators_flags_replace_the_tables() -> None:
    given = ["--tool_call_parser=qwen3_xml", "--max-model-len 32768", """--limit-mm-per-prompt '{"image": 1}'"""]
    assert vllm_arguments("Qwen/Qwen3-8B", ORIGIN, given)[6:] == [
        *("--enable-auto-tool-choice", "--reasoning-parser", "qwen3"),
        *("--tool_call_parser=qwen3_xml", "--max-model-len", "32768", "--limit-mm-per-prompt", '{"image": 1}'),
    ]


def test_starts_before_the_gateway_and_ends_with_it(programs: Path, upstream: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    env = {"SEEN": str(seen), "GATEWAY_API_KEYS": "client-secret"}
    with messages_gateway(*serve(upstream, "--vllm-arg", "--max-model-len 32768"), path=programs, env=env) as gateway:
        gateway.says("vLLM is ready")
        gateway.says("listening")
        started = noted(seen)[0]
        assert started["argv"] == vllm_arguments("Qwen/Qwen3-8B", upstream, ["--max-model-len 32768"])
        assert started["keys"] == []
        log = log_of(gateway.said)
        assert log.exists()
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.end() == 128 + signal.SIGTERM
    assert "stopping vLLM" in gateway.said
    assert noted(seen)[1:] == ["stopped"]
    assert not log.exists()


def test_an_interrupt_stops_it_too(programs: Path, upstream: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with messages_gateway(*serve(upstream), path=programs, env={"SEEN": str(seen)}) as gateway:
        gateway.says("listening")
        log = log_of(gateway.said)
        assert log.exists()
        gateway.process.send_signal(signal.SIGINT)
        assert gateway.end() == 128 + signal.SIGINT
    assert gateway.said.endswith("stopping vLLM\n")
    assert noted(seen)[1:] == ["stopped"]
    assert not log.exists()


def test_an_interrupt_while_it_starts_is_as_quiet(programs: Path, upstream: str, tmp_path: Path) -> None:
    env = {"SEEN": str(tmp_path / "seen"), "LOADS": "1"}
    with messages_gateway(*serve(upstream), path=programs, env=env) as gateway:
        gateway.says("its output")
        log = log_of(gateway.said)
        gateway.process.send_signal(signal.SIGINT)
        assert gateway.end() == 128 + signal.SIGINT
    assert "Aborted" not in gateway.said
    assert not log.exists()


def test_a_terminal_that_closes_ends_both(programs: Path, upstream: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with messages_gateway(*serve(upstream), path=programs, env={"SEEN": str(seen)}) as gateway:
        gateway.says("listening")
        log = log_of(gateway.said)
        gateway.process.send_signal(signal.SIGHUP)
        assert gateway.end() == 128 + signal.SIGTERM
    assert noted(seen)[1:] == ["stopped"]
    assert not log.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_it_does_not_outlive_a_gateway_that_is_killed(programs: Path, upstream: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    with messages_gateway(*serve(upstream), path=programs, env={"SEEN": str(seen)}) as gateway:
        gateway.says("listening")
        log = log_of(gateway.said)
        died = os.pidfd_open(noted(seen)[0]["pid"])
        gateway.process.kill()
        gateway.end()
    signalled, _, _ = select.select([died], [], [], 20)
    os.close(died)
    log.unlink()
    assert signalled
    assert noted(seen)[1:] == ["stopped"]


def test_says_why_it_died_before_it_was_ready(programs: Path, upstream: str, tmp_path: Path) -> None:
    with messages_gateway(
        *serve(upstream), path=programs, env={"SEEN": str(tmp_path / "seen"), "DIES": "1"}
    ) as gateway:
        assert gateway.end() == 1
    assert "Error: vLLM ended (exit status 1). Its last words:\n  ValueError: not enough memory\n" in gateway.said
    log = Path(gateway.said.rpartition("All of them: ")[2].strip())
    assert "not enough memory" in log.read_text()
    log.unlink()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_gateway_ends_when_it_dies(programs: Path, upstream: str, tmp_path: Path, workers: int) -> None:
    env = {"SEEN": str(tmp_path / "seen")}
    with messages_gateway(*serve(upstream, f"--workers={workers}"), path=programs, env=env) as gateway:
        gateway.says("listening")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{upstream}/die")
        assert gateway.end() == 1
    assert "Error: vLLM ended (exit status 3)" in gateway.said
    assert "the GPU has fallen off the bus" in gateway.said
    log_of(gateway.said).unlink()


def test_without_vllm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, upstream: str) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SettingsError, match=r"pip install 'messages-gateway\[vllm\]'"), running_vllm("m", upstream):
        raise AssertionError("nothing was started")


def test_a_server_that_is_there_already_is_not_fought(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        taken = f"http://127.0.0.1:{port}"
        with (
            pytest.raises(SettingsError, match=f"something listens at {taken} already.*:{port + 1}"),
            running_vllm("m", taken),
        ):
            raise AssertionError("nothing was started")


@pytest.mark.parametrize("origin", ["http://gpu-box:8000", "https://127.0.0.1:8000"])
def test_vllm_runs_on_this_machine_or_not_at_all(programs: Path, monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(SettingsError, match="give a loopback address"), running_vllm("m", origin):
        raise AssertionError("nothing was started")


def test_vllm_arguments_without_a_model_are_a_mistake(programs: Path) -> None:
    with messages_gateway("serve", "--vllm-arg", "--max-model-len 1", path=programs) as gateway:
        assert gateway.end() == 2
    assert "--vllm-arg is for the vLLM that --model starts" in gateway.said
