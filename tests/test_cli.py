"""What a person types, and the sentence they get where it is wrong."""

from functools import cache

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.commands.options import as_arguments
from gateway.server import serve as server
from gateway.settings import NEGATED, REPEATABLE, SECRETS, Settings, flag, variable


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that would have been served with, in place of serving."""
    seen: list[Settings] = []

    def serve(settings: Settings, beside: object = None, reread: object = None) -> None:
        seen.append(settings)

    monkeypatch.setattr(server, "serve", serve)
    return seen


def run(*arguments: str, **env: str) -> Result:
    bare: dict[str, str | None] = {variable(name): None for name in Settings.model_fields}
    return CliRunner().invoke(main, arguments, env={**bare, **env})


def test_flags_and_variables_reach_the_server(served: list[Settings]) -> None:
    arguments = ["--port", "1", "--model-map", "a=b", "--model-map", "c=d", "--tool-alias", "X=web_search"]
    result = run("serve", *arguments, GATEWAY_WORKERS="3", GATEWAY_API_KEYS="k")
    assert (result.exit_code, result.output) == (0, "")
    [settings] = served
    assert (settings.port, settings.workers, settings.model_map) == (1, 3, {"a": "b", "c": "d"})
    assert (settings.tool_aliases, settings.api_keys[0].get_secret_value()) == ({"X": "web_search"}, "k")


@cache
def serve_help() -> str:
    return " ".join(run("serve", "--help").output.split())


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_but_the_keys_is_a_flag_with_its_variable_in_the_help(name: str) -> None:
    text = serve_help()
    assert (f"{flag(name)} VALUE" in text) == (name not in SECRETS and name not in NEGATED)
    assert (flag(name) in text) == (name not in SECRETS)
    assert variable(name) in text
    if name in REPEATABLE:
        assert "Repeatable." in text


@pytest.mark.parametrize(
    ("flags", "env", "pings"),
    [
        ((), {}, True),
        (("--no-proxy-pings",), {}, False),
        ((), {"GATEWAY_PROXY_PINGS": "false"}, False),
        (("--no-proxy-pings",), {"GATEWAY_PROXY_PINGS": "true"}, False),
    ],
)
def test_what_is_on_has_a_flag_that_turns_it_off(
    served: list[Settings], flags: tuple[str, ...], env: dict[str, str], pings: bool
) -> None:
    assert run("serve", *flags, **env).exit_code == 0
    [settings] = served
    assert settings.proxy_pings is pings


def test_such_a_flag_is_passed_on_as_it_was_typed() -> None:
    assert as_arguments({"proxy_pings": "false", "port": "9"}) == ["--no-proxy-pings", "--port=9"]
    assert as_arguments({"proxy_pings": None}) == []


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_key_is_no_flag(served: list[Settings], name: str) -> None:
    result = run("serve", flag(name), "hunter2")
    assert result.exit_code == 2
    assert "No such option" in result.output
    assert flag(name) in result.output
    assert served == []


def test_an_unknown_flag_is_named(served: list[Settings]) -> None:
    result = run("serve", "--max-round", "3")
    assert result.exit_code == 2
    assert "--max-round" in result.output
    assert served == []


def test_a_bad_value_is_named(served: list[Settings]) -> None:
    result = run("serve", "--port", "x", GATEWAY_MAX_ROUNDS="0")
    assert result.exit_code == 1
    assert "--port: " in result.output
    assert "GATEWAY_MAX_ROUNDS: " in result.output
    assert "Traceback" not in result.output
    assert served == []


def test_the_version_and_the_commands() -> None:
    assert "version" in run("--version").output
    for command in ("serve", "demo"):
        assert command in run("--help").output
