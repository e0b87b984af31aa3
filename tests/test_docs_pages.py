"""The pages in docs/, held against the code: settings, messages, models, metrics, snippets, links."""

import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
import yaml

from gateway.books.log import RequestLog
from gateway.books.metrics import Metrics
from gateway.books.outcome import Outcome
from gateway.books.record import Record
from gateway.commands.vllm import family_of
from gateway.routes import ROUTES
from gateway.settings import ENV_PREFIX, REPEATABLE, SECRETS, Settings, flag, load, variable
from gateway.tools.base import Cause
from gateway.turn.web_search import ERROR_SENTENCES
from tests.support.messages import sentences
from tests.support.pages import PAGES, ROOT, Fence, all_fences, code_spans
from tests.support.programs import free_port
from tests.support.raw import post, raw_client
from tests.support.upstream import ScriptedUpstream, encode_event, sse, sse_answer, text
from tests.test_docs import CLAUDE_CODE_VARIABLES

DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text()


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the tables that begin with such a first cell."""
    found = []
    for table in re.split(r"\n\n", text):
        lines = table.splitlines()
        if lines and lines[0].startswith(f"| {heading}"):
            cells = (re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[2:])
            found += [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]
    return found


# --- settings

SETTING_ROWS = {
    cells[1].strip("`").removeprefix(ENV_PREFIX).lower(): cells for cells in rows(page("settings.md"), "flag |")
}
DEFAULT_IN_WORDS = {
    "search_base_url": "the provider's",
    "seal_keys": "random",
    "gateway_tools": "all",
    "proxy_paths": "see below",
    "proxy_pings": "on",
}


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_has_its_row(name: str) -> None:
    assert name in SETTING_ROWS, f"docs/settings.md has no row for {name}"
    flags, variables, default, meaning = SETTING_ROWS[name]
    value = Settings.model_fields[name].default
    assert flags.strip("`") == ("" if name in SECRETS else flag(name))
    assert variables.strip("`") == variable(name)
    assert default.strip("`") == DEFAULT_IN_WORDS.get(name, str(value) if value not in (None, (), {}) else "none")
    assert meaning
    assert ("repeatable" in meaning) == (name in REPEATABLE)


def test_no_row_is_left_for_a_setting_that_is_gone() -> None:
    assert set(SETTING_ROWS) == set(Settings.model_fields)


def test_the_proxied_paths_are_listed() -> None:
    for path in Settings.model_fields["proxy_paths"].default:
        assert f"`{path}`" in page("settings.md")


# --- messages

TROUBLES = page("troubleshooting.md")
FROM_OTHERS = {
    "Claude Code 2.1.197": (
        "There's an issue with the selected model (claude-…). It may not exist or you may not have access to it.",
        "API Error: 400 max_completion_tokens=… cannot be greater than max_model_len=….",
        "Not logged in · Please run /login",
        "API Error: …",
    ),
    "vLLM 0.32.0": (
        "max_completion_tokens=… cannot be greater than max_model_len=…",
        "1 validation error: … 'loc': 'body.tools.…",
        '{"error":"Unauthorized"}',
        "The model `…` does not exist. …",
    ),
    "click": ("No such option: …",),
    "said in several parts": (
        "…: there is no such setting",
        "… (set by Kubernetes for a service of that name? enableServiceLinks: false turns that off)",
        "what listens at … is not a messages-gateway (choose another port with --port)",
        "no list of models from …: is the model server running, and is --upstream its address? messages-gateway doctor "
        "says more. To choose a model without asking: --model NAME",
        "messages-gateway: using …; --model takes another: …",
        "no tool call parser is known for this model, so its calls stay text; …",
        "nothing answers at …",
        "… takes connections, but does not answer in HTTP (…)",
        "… has a window of … tokens; Claude Code asks for answers of up to …, which upstream rejects",
        "Claude Code's first request alone takes some … tokens",
        "--model-map …=…: upstream serves no …",
        "Claude Code's own names, such as …, are not served",
        "upstream did not begin to answer within … s",
        "upstream sent nothing for … s in the middle of its answer",
        "[Cut to fit: … of … results are shown. Search for something narrower to see others.]",
        *(f"…: {cause.name.lower().replace('_', ' ')}" for cause in Cause),
    ),
}


def shown_messages(*headings: str) -> list[str]:
    """What stands in backticks where a table names messages."""
    cells = [cells[0] for heading in headings for cells in rows(TROUBLES, heading)]
    cells += [cells[1] for cells in rows(TROUBLES, "line")]
    return [span for cell in cells for span in code_spans(cell)]


MESSAGES = shown_messages("message", "the model reads")


def fits(one: str, other: str) -> bool:
    """Whether one is the other, where `…` in either is anything."""
    return covers(one, other) or covers(other, one)


def covers(general: str, special: str) -> bool:
    """Whether the parts between the `…` of one stand in the other, in order, from its start to its end."""
    first, *others = general.split("…")
    if not others:
        return general == special
    if not special.startswith(first):
        return False
    at = len(first)
    *middle, last = others
    for part in middle:
        at = special.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(special) - len(last) >= at and special.endswith(last)


def letters(sentence: str) -> int:
    return len(re.sub(r"\W", "", sentence))


SAID = {re.sub(r"\s+", " ", words): place for words, place in sentences().items() if letters(words) > 4}
"""The gateway's sentences, on one line each, without those that are all put in."""


def test_every_message_of_the_gateway_is_explained() -> None:
    missing = {place: words for words, place in SAID.items() if not any(fits(shown, words) for shown in MESSAGES)}
    assert not missing, "docs/troubleshooting.md does not explain these"


def test_every_message_that_is_explained_can_be_seen() -> None:
    others = [words for source in FROM_OTHERS.values() for words in source]
    for shown in MESSAGES:
        assert any(fits(shown, words) for words in (*SAID, *others)), shown


def test_what_claude_code_says_was_seen() -> None:
    for shown in [span for cells in rows(TROUBLES, "you see") for span in code_spans(cells[0])]:
        assert shown.startswith("<") or any(fits(shown, words) for words in FROM_OTHERS["Claude Code 2.1.197"]), shown


def test_no_explained_message_is_so_vague_that_it_fits_any() -> None:
    for shown in MESSAGES:
        assert letters(shown) > 4, shown


def test_each_cause_of_a_failed_search_has_its_line() -> None:
    spans = code_spans(TROUBLES)
    for cause in Cause:
        words = cause.name.lower().replace("_", " ")
        assert cause is Cause.STOPPING or f"…: {words}" in spans, words


def test_each_error_code_of_a_search_is_listed() -> None:
    assert {cells[0].strip("`") for cells in rows(page("turns.md"), "`error_code`")} == set(ERROR_SENTENCES)


# --- models, log, metrics

SERVED_AS = {
    "Qwen3": "Qwen3-30B-A3B",
    "Qwen3 Instruct 2507": "Qwen3-30B-A3B-Instruct-2507",
    "Qwen2.5": "Qwen2.5-7B-Instruct",
    "Qwen3 Thinking 2507": "Qwen3-30B-A3B-Thinking-2507",
    "QwQ": "QwQ-32B",
    "Qwen3-Coder": "Qwen3-Coder-30B-A3B-Instruct",
    "gpt-oss": "gpt-oss-20b",
    "GLM-4.5": "GLM-4.5-Air",
    "GLM-4.6": "GLM-4.6",
    "GLM-4.7": "GLM-4.7",
    "GLM-5": "GLM-5",
    "Kimi K2 Thinking": "Kimi-K2-Thinking",
    "DeepSeek V3.1": "DeepSeek-V3.1",
    "MiniMax M2": "MiniMax-M2",
    "Mistral": "Mistral-Small-3.2-24B-Instruct-2506",
    "Devstral": "Devstral-Small-2507",
    "Llama 3.1 to 3.3": "Llama-3.3-70B-Instruct",
}


def test_the_parsers_of_a_model_are_those_that_serve_would_choose() -> None:
    shown = {
        name: (tool.strip("`"), None if reasoning == "none" else reasoning.strip("`"))
        for names, tool, reasoning in rows(page("recipes/vllm.md"), "model")
        for name in names.split(", ")
    }
    assert set(shown) == set(SERVED_AS)
    for name, parsers in shown.items():
        family = family_of(SERVED_AS[name])
        assert family is not None
        assert (family.tool_parser, family.reasoning_parser) == parsers, name


def test_the_log_line_has_the_fields_that_are_described() -> None:
    output = io.StringIO()
    RequestLog("info", "text", output).turns_ended(
        [Record("/v1/messages", client_id="x", traceparent="x", model="qwen3", tools={"web_search": 1})], in_flight=0
    )
    written = re.findall(r"(\w+)=", output.getvalue())
    (shown,) = [fence.text for fence in all_fences("text") if fence.page.name == "operating.md"]
    assert re.findall(r"(\w+)=", shown) == written
    described = [name for cells in rows(page("operating.md"), "field") for name in code_spans(cells[0])]
    assert sorted(described) == sorted(written)


def test_every_outcome_is_described() -> None:
    assert [cells[0].strip("`") for cells in rows(page("operating.md"), "outcome")] == list(get_args(Outcome))


def test_every_metric_is_described() -> None:
    metrics = Metrics()
    metrics.turns_ended(
        [Record("/v1/messages", status=200, rounds=1, turn=True, input_tokens=1, output_tokens=1)], in_flight=0
    )
    metrics.tool_call("web_search", None)
    exposed = re.findall(r"^# TYPE (\w+) (\w+)", metrics.render().decode(), re.MULTILINE)
    names = {name for name, kind in exposed if not name.endswith("_created")}
    described = {cells[0].strip("`"): sorted(code_spans(cells[1])) for cells in rows(page("operating.md"), "metric")}
    assert set(described) == names
    labels = dict(re.findall(r"^(\w+?)(?:_bucket)?\{([^}]*)\}", metrics.render().decode(), re.MULTILINE))
    for name, shown in described.items():
        found = sorted(label for label in re.findall(r"(\w+)=", labels.get(name, "")) if label != "le")
        assert shown == found, name


def test_the_gateways_own_paths_are_described() -> None:
    described = {cells[0].strip("`"): cells[2] for cells in rows(page("operating.md"), "path")}
    own = [route for route in ROUTES if not route.path.startswith("/v1")]
    assert described == {route.path: "yes" if route.needs_key else "no" for route in own}
    probes = re.search(r"Probes \((.*?)\) are logged at debug", page("operating.md"))
    assert probes is not None
    assert code_spans(probes[1]) == [route.path for route in own if route.quiet]


# --- snippets in other languages


def test_every_language_of_a_snippet_is_held_to_something() -> None:
    known = {"sh", "json", "yaml", "toml", "nginx", "python", "text", ""}
    assert {fence.language for fence in all_fences(*{fence.language for fence in every_fence()})} <= known


def every_fence() -> Iterator[Fence]:
    for path in PAGES:
        languages = set(re.findall(r"^ *```([\w-]*)", path.read_text(), re.MULTILINE))
        yield from (fence for fence in all_fences(*languages) if fence.page == path)


@pytest.mark.parametrize("fence", all_fences("json"), ids=lambda fence: fence.place)
def test_json_is_json(fence: Fence) -> None:
    written = fence.text if fence.text.lstrip().startswith(("{", "[")) else "{" + fence.text + "}"
    value = json.loads(written)
    if "env" in value:
        assert set(value["env"]) <= CLAUDE_CODE_VARIABLES


@pytest.mark.parametrize("fence", all_fences("toml"), ids=lambda fence: fence.place)
def test_toml_is_settings(fence: Fence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("GATEWAY_"):
            monkeypatch.delenv(name)
    file = tmp_path / "gateway.toml"
    file.write_text(fence.text)
    assert load({}, file).model_fields_set == set(tomllib.loads(fence.text))


@pytest.mark.parametrize("fence", all_fences("python"), ids=lambda fence: fence.place)
def test_python_compiles(fence: Fence) -> None:
    compile(fence.text, fence.place, "exec")


def test_the_environment_of_the_kubernetes_page_is_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    (fence,) = [fence for fence in all_fences("yaml") if fence.page.name == "kubernetes.md"]
    given = {item["name"]: item["value"] for item in yaml.safe_load(fence.text)["env"]}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert {variable(name) for name in load({}).model_fields_set} == set(given)


def test_the_searxng_settings_allow_json() -> None:
    (fence,) = [fence for fence in all_fences("yaml") if fence.page.name == "searxng.md"]
    settings = yaml.safe_load(fence.text)
    assert "json" in settings["search"]["formats"]
    assert set(settings) == {"use_default_settings", "server", "search"}


# --- nginx

NGINX_DIRECTIVES = {
    "client_max_body_size",
    "keepalive",
    "listen",
    "location",
    "proxy_buffering",
    "proxy_http_version",
    "proxy_pass",
    "proxy_read_timeout",
    "proxy_set_header",
    "return",
    "server",
    "server_name",
    "ssl_certificate",
    "ssl_certificate_key",
    "upstream",
}
"""nginx.org/en/docs/dirindex.html"""


def nginx_fence() -> str:
    (fence,) = all_fences("nginx")
    return fence.text


def test_the_nginx_configuration_has_nginxs_shape() -> None:
    depth = 0
    for line in nginx_fence().splitlines():
        words = line.split()
        if words in ([], ["}"]):
            depth -= len(words)
            continue
        assert words[0] in NGINX_DIRECTIVES
        assert words[-1] == "{" or line.endswith(";")
        depth += words[-1] == "{"
    assert depth == 0
    timeout = re.search(r"proxy_read_timeout (\d+)s", nginx_fence())
    size = re.search(r"client_max_body_size (\d+)m", nginx_fence())
    assert timeout is not None
    assert size is not None
    assert int(timeout[1]) > Settings.model_fields["first_byte_timeout_s"].default
    assert int(size[1]) * 2**20 == Settings.model_fields["max_body_bytes"].default


@pytest.mark.anyio
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
async def test_through_a_real_nginx_each_event_comes_when_it_is_sent(tmp_path: Path) -> None:
    """The page's configuration, without TLS and on free ports, before a stream that is held after its first event."""
    held = asyncio.Event()
    first, *rest = sse(text("It is", " Rust."))
    port = free_port()
    async with ScriptedUpstream(sse_answer([first, held, *rest])) as gateway:
        configuration = re.sub(r"^ *(listen|ssl_\w+) .*\n", "", nginx_fence(), flags=re.MULTILINE)
        configuration = configuration.replace("127.0.0.1:9000", f"127.0.0.1:{gateway.port}")
        configuration = configuration.replace("server {\n    server_name", f"server {{ listen {port}; server_name")
        with running_nginx(tmp_path, configuration):
            await listening(port)
            async with raw_client(port) as client:
                await client.send(post(b"{}"))
                await client.until(encode_event(first))
                held.set()
                assert b"message_stop" in await client.until(encode_event(rest[-1]))


def running_nginx(folder: Path, http: str) -> Any:
    """nginx in the foreground, all its files in one folder."""
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; worker_processes 1; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; "
        f"fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n{http}\n}}\n"
    )
    return Stopped(subprocess.Popen(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]))


class Stopped:
    """A process that is told to stop at the end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)


async def listening(port: int) -> None:
    with anyio.fail_after(10):
        while True:
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                return
            except OSError:
                await anyio.sleep(0.02)


# --- the site


def test_the_make_targets_of_the_contributing_page_are_those_there_are() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = re.findall(r"\bmake ([a-z0-9-]+)", page("contributing.md"))
    assert set(shown) | {"help", "install", "clean"} == targets


class _Loader(yaml.SafeLoader):
    """YAML with the tags of mkdocs.yml read as text."""


def navigation() -> list[str]:
    def leaves(entries: list[Any]) -> Iterator[str]:
        for entry in entries:
            for value in entry.values():
                yield from leaves(value) if isinstance(value, list) else [value]

    return list(leaves(yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)["nav"]))


def test_every_page_is_in_the_navigation() -> None:
    assert sorted(navigation()) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        file = path if not target else (path.parent / target).resolve()
        assert file.exists(), link
        if anchor:
            assert anchor in anchors(file), link


def anchors(file: Path) -> set[str]:
    """The headings of a page, as links name them."""
    text = re.sub(r"^```.*?^```$", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_the_site_fetches_nothing_from_elsewhere() -> None:
    site = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
    assert site["theme"]["font"] is False
    assert "extra_javascript" not in site
    for style in site["extra_css"]:
        assert "url(" not in (DOCS / style).read_text()
