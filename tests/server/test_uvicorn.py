"""What gateway/server uses of uvicorn that uvicorn does not promise to keep: all of it by name, and still there."""

import ast
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.lifespan.on import LifespanOn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState
from uvicorn.supervisors.multiprocess import Multiprocess, Process

ROOT = Path(__file__).parents[2]

USED: dict[type, str] = {
    HttpToolsProtocol: """
        _unset_keepalive_if_required app_state connection_lost connection_made cycle data_received expect_100_continue
        headers logger loop on_body on_header on_headers_complete on_message_begin on_message_complete
        on_response_complete parser pause_writing pipeline resume_writing scope send_400_response shutdown
        timeout_keep_alive timeout_keep_alive_handler timeout_keep_alive_task transport url
    """,
    RequestResponseCycle: """
        access_log chunked_encoding default_headers disconnected expected_content_length flow keep_alive message_event
        more_body on_response response_complete response_started scope send waiting_for_100_continue
    """,
    FlowControl: "pause_reading resume_reading write_paused",
    ServerState: "connections tasks",
    LifespanOn: "should_exit shutdown startup state",
    Config: "lifespan_class load timeout_graceful_shutdown timeout_worker_healthcheck",
    Multiprocess: "config join_all keep_subprocess_alive processes restart_all run should_exit sockets",
    Process: "child_conn exitcode is_alive is_ready join kill pid process start terminate wait_until_ready",
}
"""Attributes and methods by class, those that are overridden among them."""


def has(kind: type) -> set[str]:
    """A class's own methods, and the attributes that they set."""
    return {*vars(kind), *re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(kind))}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in USED.items() for name in names.split()])
def test_uvicorn_still_has_what_the_server_uses_of_it(kind: type, name: str) -> None:
    assert name in has(kind), (
        f"uvicorn {version('uvicorn')} has no {kind.__name__}.{name} any more, and gateway/server uses it: "
        "find out what took its place before the upper bound in pyproject.toml is raised"
    )


def test_the_status_lines_are_those_of_http_1_1() -> None:
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert STATUS_LINE[299] == b"HTTP/1.1 299 \r\n"


@pytest.mark.parametrize("file", ["connection.py", "direct.py", "strict.py", "unchunked.py", "workers.py"])
def test_nothing_is_used_that_is_not_named_above(file: str) -> None:
    tree = ast.walk(ast.parse((ROOT / "gateway" / "server" / file).read_text()))
    used = {_name(node) for node in tree} & {name for kind in USED for name in has(kind)}
    elsewhere = {"_transport", "body"}  # of our own classes, which have names in common with uvicorn's
    named = {*" ".join(USED.values()).split(), *elsewhere}
    assert {name for name in used if not name.startswith("__")} - named == set()


def _name(node: ast.AST) -> Any:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def test_the_version_is_bounded() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (uvicorn,) = [entry for entry in needed if entry.startswith("uvicorn")]
    assert re.fullmatch(r"uvicorn>=\S+,<\S+", uvicorn)
