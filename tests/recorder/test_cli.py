"""The command line, run as a person runs it: what it prints, and its exit status."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from recorder.cassette import Cassette
from recorder.cli import main
from tests.recorder.tape import SECRET, answered, asked, streamed, write
from tests.support.eventually import eventually
from tests.support.upstream import ScriptedUpstream, json_answer, message, sse, sse_answer, text, tool_use

END_S = 20
HELLO = (asked("hi"), answered(message(text("Hello"))))


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


@contextmanager
def started(*arguments: object, says: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, once it said where it listens; with that origin."""
    command = [sys.executable, "-m", "recorder", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}
    )
    try:
        assert process.stdout is not None
        said = re.search(rf"{says}.* (http://\S+)", line := process.stdout.readline())
        assert said, line or process.communicate()[1]
        yield process, said[1]
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Ask it to end; its exit status, and what it said on stderr."""
    process.send_signal(signal.SIGTERM)
    return process.wait(END_S), process.communicate()[1]


# --- reading ---------------------------------------------------------------------------------------------------------


def test_show(tmp_path: Path) -> None:
    shown = run("show", write(tmp_path / "c.yaml", HELLO))
    assert shown.exit_code == 0
    assert "t1  POST /v1/messages  200" in shown.output
    assert re.search(r"text +Hello", shown.output)


def test_check_says_that_an_empty_recording_is_sound(tmp_path: Path) -> None:
    empty = write(tmp_path / "c.yaml")
    checked = run("check", empty)
    assert checked.exit_code == 0
    assert checked.output == f"{empty}: sound, but an empty recording: no turn had ended\n"


def test_check_says_which_file_and_fails(tmp_path: Path) -> None:
    good = write(tmp_path / "good.yaml", HELLO)
    bad = write(tmp_path / "bad.yaml", (asked("hi"), streamed(sse(text("Hello"))[:-1])))
    assert run("check", good).output == f"{good}: sound\n"
    checked = run("check", good, bad)
    assert checked.exit_code == 1
    assert checked.output.splitlines() == [
        f"{good}: sound",
        f"{bad}: t1: request.body.stream: None, which is not what was answered",
        f"{bad}: t1: event 5 is the last: the stream ends before message_stop",
    ]


def test_scan_fails_on_a_credential_and_does_not_print_it(tmp_path: Path) -> None:
    clean = write(tmp_path / "clean.yaml", (asked(SECRET), answered({})))
    assert (run("scan", clean).exit_code, run("scan", clean).output) == (0, f"{clean}: no credential\n")
    dirty = tmp_path / "dirty.yaml"
    dirty.write_text(clean.read_text().replace("[redacted]", SECRET))
    scanned = run("scan", clean, dirty)
    assert scanned.exit_code == 1
    assert f"{dirty}: t1: request.body.messages.0.content: API key" in scanned.output
    assert SECRET not in scanned.output


def test_diff(tmp_path: Path) -> None:
    one = write(tmp_path / "one.yaml", (asked("hi"), answered(message(text("Hello"), id="a"))))
    two = write(tmp_path / "two.yaml", (asked("hi"), answered(message(text("Hello"), id="b"))))
    three = write(tmp_path / "three.yaml", (asked("hi"), answered(message(text("Good day")))))
    assert run("diff", one, two).output == "the same but for ids, times and signatures\n"
    differing = run("diff", one, three)
    assert differing.exit_code == 1
    assert differing.output.splitlines() == [
        "turns.1.response.body.content.0.text",
        '  one.yaml    "Hello"',
        '  three.yaml  "Good day"',
    ]


@pytest.mark.parametrize("command", ["show", "check", "scan", "play"])
def test_a_file_that_is_no_cassette(command: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.yaml"
    path.write_text("a: 1\n")
    failed = run(command, path)
    assert failed.exit_code == 1
    assert f"Error: {path}: no cassette: it has no `turns`" in failed.output


# --- playing ---------------------------------------------------------------------------------------------------------


def test_play_is_an_upstream_in_a_process_of_its_own(tmp_path: Path) -> None:
    with started("play", write(tmp_path / "c.yaml", HELLO), "--port", 0, says="playing 1 turns on") as (player, origin):
        assert httpx.post(f"{origin}/v1/messages", json=HELLO[0].body).content == HELLO[1].content.read()
        assert httpx.post(f"{origin}/v1/messages", json=asked("ho").body).status_code == 409
        status, said = end(player)
    assert status == 0
    assert said.splitlines()[0] == "POST /v1/messages: t1 of c.yaml"
    assert "the nearest is t1 of c.yaml" in said.replace("The", "the")


def test_play_with_faults_and_paths_to_ignore(tmp_path: Path) -> None:
    options = ["--fault", "status:503@t1", "--ignore", "body.messages", "--speed", "1"]
    with started("play", write(tmp_path / "c.yaml", HELLO), "--port", 0, *options, says="playing") as (_, origin):
        assert httpx.post(f"{origin}/v1/messages", json=asked("anything").body).status_code == 503


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with started("play", write(tmp_path / "c.yaml", HELLO), "--port", 0, says="playing") as (_, origin):
        port = origin.rpartition(":")[2]
        refused = run("play", tmp_path / "c.yaml", "--port", port)
    assert refused.exit_code == 1
    assert f"Error: cannot listen on 127.0.0.1:{port}" in refused.output


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--speed", "0"], "'0' is neither `max` nor a number above 0"),
        (["--speed", "fast"], "'fast' is neither `max` nor a number above 0"),
        (["--fault", "bend:1"], "bend:1: a fault is KIND:VALUE or KIND:VALUE@TURN"),
    ],
)
def test_options_that_are_none(options: list[str], complaint: str, tmp_path: Path) -> None:
    refused = run("play", write(tmp_path / "c.yaml", HELLO), *options)
    assert refused.exit_code == 2
    assert complaint in " ".join(refused.output.split())


# --- recording -------------------------------------------------------------------------------------------------------

TOOLS = [{"name": "web_search", "input_schema": {"type": "object"}}]
SEARCH = [text("\n\n"), tool_use("web_search", {"query": "rust"}, id="call-1")]
KNOWN = [json_answer({"version": "0.32.0"}), json_answer({"data": [{"id": "qwen3", "owned_by": "vllm"}]})]


def files(folder: Path) -> list[object]:
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    (folder / "outputs.yaml").write_text("web_search: |-\n  1. Rust 1.89.0\n  released\n")
    return ["--tools", folder / "tools.json", "--tool-outputs", folder / "outputs.yaml"]


@pytest.mark.anyio
async def test_record_a_conversation_from_standard_input(tmp_path: Path) -> None:
    answers = [*KNOWN, sse_answer(sse(*SEARCH)), sse_answer(sse(text("1.89.0"))), sse_answer(sse(text("Yes")))]
    options = [
        *("--model", "qwen3", "--turns", 3, "--temperature", 0, "--max-tokens", 99, "--system", "Be brief."),
        *("--tool-choice", "any", "--thinking", "1024", "--extra-body", '{"top_k": 1}'),
        *("--output", tmp_path / "c.yaml", *files(tmp_path)),
    ]
    async with ScriptedUpstream(*answers) as upstream:
        command = ["record", "--mode", "messages", "--upstream", upstream.origin, *options]
        recorded = await asyncio.to_thread(run, *command, stdin="Latest Rust?\n\nSure?\nNever asked\n")
    assert recorded.exit_code == 0, recorded.output
    assert [line.split(" ms")[0].split()[0] for line in recorded.output.splitlines()] == ["t1", "t2", "t3", "3"]
    assert 'web_search {"query": "rust"}' in recorded.output
    cassette = Cassette(tmp_path / "c.yaml")
    first, second, third = cassette
    assert first.request.body == {
        "model": "qwen3",
        "max_tokens": 99,
        "temperature": 0,
        "stream": True,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Latest Rust?"}],
        "tools": TOOLS,
        "tool_choice": {"type": "any"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "top_k": 1,
    }
    assert second.request.body["tool_choice"] == {"type": "auto"}
    assert second.request.body["messages"][2]["content"][0]["content"] == "1. Rust 1.89.0\nreleased"
    assert third.request.body["messages"][-1] == {"role": "user", "content": "Sure?"}
    about = cassette.recorded()
    assert (about["server"], about["version"], about["model"]) == ("vllm", "0.32.0", "qwen3")
    assert about["how"].startswith(
        "printf '%s\\n' 'Latest Rust?' 'Sure?' 'Never asked' | messages-recorder record --mode"
    )


@pytest.mark.anyio
async def test_record_json_with_the_upstreams_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_UPSTREAM_API_KEY", SECRET)
    options = [
        "--model",
        "qwen3",
        "--no-stream",
        "--prompt",
        "hi",
        "--tool-choice",
        "web_search",
        "--thinking",
        "disabled",
    ]
    async with ScriptedUpstream(*KNOWN, json_answer(message(text("Hello")))) as upstream:
        command = ["record", "--upstream", upstream.origin, *options, "--output", tmp_path / "c.yaml"]
        recorded = await asyncio.to_thread(run, *command)
        request = upstream.requests[-1]
    assert recorded.exit_code == 0, recorded.output
    assert request.header(b"authorization") == f"Bearer {SECRET}".encode()
    assert request.json["tool_choice"] == {"type": "tool", "name": "web_search"}
    assert request.json["thinking"] == {"type": "disabled"}
    assert request.json["stream"] is False
    assert SECRET not in (tmp_path / "c.yaml").read_text()
    assert "redacted t1: request.headers.authorization" in recorded.output


@pytest.mark.anyio
async def test_a_tool_without_an_output_ends_the_recording_and_keeps_what_there_is(tmp_path: Path) -> None:
    async with ScriptedUpstream(*KNOWN, json_answer(message(*SEARCH))) as upstream:
        options = ["--upstream", upstream.origin, "--model", "qwen3", "--no-stream", "--prompt", "hi"]
        failed = await asyncio.to_thread(run, "record", *options, "--output", tmp_path / "c.yaml")
    assert failed.exit_code == 1
    assert "Error: the model called web_search, and the tool outputs have no text for it" in failed.output
    assert len(list(Cassette(tmp_path / "c.yaml"))) == 1


def test_an_upstream_out_of_reach_leaves_the_old_cassette(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", HELLO)
    failed = run("record", "--upstream", "http://127.0.0.1:9", "--model", "m", "--prompt", "hi", "--output", path)
    assert failed.exit_code == 1
    assert "Error: cannot reach the upstream" in failed.output
    assert len(list(Cassette(path))) == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--prompt", "hi"], "--mode messages needs --model NAME"),
        (["--model", "m"], "no prompt: give --prompt, or lines on standard input"),
        (["--mode", "proxy"], "--mode proxy needs --listen PORT"),
        (["--model", "m", "--extra-body", "{"], "not JSON"),
        (["--model", "m", "--extra-body", "[]"], "no JSON object"),
        (["--model", "m", "--thinking", "hard"], "'hard' is neither a budget in tokens nor"),
        (["--model", "m", "--tool-choice", "{"], "not JSON"),
    ],
)
def test_recordings_that_cannot_be(options: list[str], complaint: str, tmp_path: Path) -> None:
    refused = run("record", *options, "--output", tmp_path / "c.yaml", stdin="")
    assert refused.exit_code == 2
    assert complaint in refused.output


@pytest.mark.parametrize(("content", "complaint"), [("a: [", "neither JSON nor YAML"), ("a: 1", "no list of tools")])
def test_a_file_of_tools_that_is_none(content: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "tools").write_text(content)
    options = ["--model", "m", "--prompt", "hi", "--tools", tmp_path / "tools"]
    refused = run("record", *options, "--output", tmp_path / "c.yaml")
    assert refused.exit_code == 1
    assert complaint in refused.output


@pytest.mark.anyio
async def test_a_recording_proxy_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    async with ScriptedUpstream(*KNOWN, sse_answer(sse(text("Hello")))) as upstream, httpx.AsyncClient() as client:
        command = ["record", "--mode", "proxy", "--upstream", upstream.origin, "--listen", 0, "--output", path]
        recorder = started(*command, says="recording into")
        process, origin = await asyncio.to_thread(recorder.__enter__)
        try:
            answer = await client.post(f"{origin}/v1/messages", json=asked("hi").body, headers={"x-api-key": "k"})
            status, said = await asyncio.to_thread(end, process)
        finally:
            recorder.__exit__(None, None, None)
    assert status == 0
    assert said.splitlines() == [
        "t1  POST /v1/messages  200",
        f"1 turns in {path}",
        "redacted t1: request.headers.x-api-key",
    ]
    (turn,) = Cassette(path)
    assert turn.response.content.read() == answer.content


@pytest.mark.anyio
async def test_a_killed_recorder_leaves_every_finished_turn(tmp_path: Path) -> None:
    path, events = tmp_path / "c.yaml", sse(text("Hello you"))
    answers = [sse_answer(events), json_answer(message(text("Hello"))), sse_answer([*events[:3], asyncio.Event()])]
    async with ScriptedUpstream(*KNOWN, *answers) as upstream, httpx.AsyncClient() as client:
        command = ["record", "--mode", "proxy", "--upstream", upstream.origin, "--listen", 0, "--output", path]
        recorder = started(*command, says="recording into")
        process, origin = await asyncio.to_thread(recorder.__enter__)
        try:
            whole = [(await client.post(f"{origin}/v1/messages", json=asked("hi").body)).content for _ in range(2)]
            cut = asyncio.create_task(client.post(f"{origin}/v1/messages", json=asked("hi").body))
            await eventually(lambda: len(upstream.requests) == 5)
            process.kill()
            with pytest.raises(httpx.TransportError):
                await cut
        finally:
            recorder.__exit__(None, None, None)
    assert [turn.response.content.read() for turn in Cassette(path)] == whole
