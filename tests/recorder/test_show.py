import io
from pathlib import Path

from rich.console import Console

from recorder.cassette import Cassette, Request
from recorder.show import show
from tests.recorder.tape import SECRET, Exchange, answered, asked, assistant, call, result, streamed, user, write
from tests.support.upstream import message, sse, text, thinking, tool_use


def shown(path: Path) -> str:
    console = Console(file=io.StringIO(), width=100)
    show(Cassette(path), console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_a_search_as_a_person_reads_it(tmp_path: Path) -> None:
    search = [thinking("I should search."), text("\n\n"), tool_use("web_search", {"query": "rust"}, id="a")]
    tools = [{"name": "web_search"}, {"name": "Bash"}]
    history = [user("Latest Rust?"), assistant(search[0].value, call("a", "rust")), user([result("a", "1.89.0")])]
    streaming = streamed(sse(*search), [120.4] * len(sse(*search)))
    streaming.elapsed_ms = 830
    failed = {**result("a", "timed out"), "is_error": True}
    exchanges: list[Exchange] = [
        (asked(history[0], stream=True, system="Be brief.", tools=tools), streaming),
        (asked(*history), answered(message(text("It is 1.89.0.")))),
        (asked(*history[:2], user([failed])), answered({"error": {"message": "too many tokens"}}, 400)),
    ]
    assert shown(write(tmp_path / "c.yaml", *exchanges, recorded={"server": "vllm", "version": "0.32.0"})) == (
        "server  vllm\n"
        "version 0.32.0\n"
        "\n"
        "t1  POST /v1/messages  200  stream, first event after 120 ms  830 ms in all ────────────────────────\n"
        "asked    model qwen3 · max_tokens 64 · stream true · tools web_search, Bash\n"
        "system   Be brief.\n"
        "user     Latest Rust?\n"
        "thinking I should search.\n"
        "text     (nothing but white space)\n"
        'tool_use web_search {"query": "rust"}\n'
        "         stop tool_use · input_tokens 10 · output_tokens 5\n"
        "\n"
        "t2  POST /v1/messages  200 ─────────────────────────────────────────────────────────────────────────\n"
        "asked       model qwen3 · max_tokens 64\n"
        "            (2 messages before)\n"
        "tool_result 1.89.0\n"
        "text        It is 1.89.0.\n"
        "            stop end_turn · input_tokens 10 · output_tokens 5\n"
        "\n"
        "t3  POST /v1/messages  400 ─────────────────────────────────────────────────────────────────────────\n"
        "asked       model qwen3 · max_tokens 64\n"
        "            (2 messages before)\n"
        "tool_result error: timed out\n"
        "error       400: too many tokens"
    )


def test_what_is_no_conversation_is_shown_as_it_is(tmp_path: Path) -> None:
    exchanges = [
        (Request("GET", "/v1/models"), answered({"data": []})),
        (Request("POST", "/v1/messages", {}, {}, None, f"{{cut {SECRET}"), answered(b"oops", 500)),
    ]
    printed = shown(write(tmp_path / "c.yaml", *exchanges))
    assert 'answer {"data":[]}' in printed
    assert "asked    {cut [redacted]" in printed
    assert "redacted request.text: API key" in printed


def test_nothing_a_terminal_would_obey_and_no_endless_text(tmp_path: Path) -> None:
    long = "\n".join(map(str, range(100)))
    exchanges = [
        (asked("\x1b[2Jboo"), answered(message(text(long)))),
        (asked("x" * 5000), answered(message(text("y")))),
    ]
    printed = shown(write(tmp_path / "c.yaml", *exchanges))
    assert "\x1b" not in printed
    assert "�[2Jboo" in printed
    assert "39 …" in printed
    assert "\n     40\n" not in printed
    assert 3900 < printed.count("x") < 4100
