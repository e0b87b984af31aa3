"""One table of names, three sources, and a sentence for each mistake."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.errors import SettingsError
from gateway.settings import DEFAULT_PROXY_PATHS, SECRETS, Settings, flag, load, unknown_variables, variable

DEFAULTS: dict[str, Any] = {
    "upstream": "http://127.0.0.1:8000",
    "upstream_dialect": "auto",
    "deferred_tools": "auto",
    "host": "127.0.0.1",
    "port": 9000,
    "workers": 1,
    "search_provider": "ddgs",
    "search_base_url": None,
    "search_api_key": None,
    "search_max_results": 8,
    "tool_aliases": {},
    "gateway_tools": None,
    "unknown_server_tools": "refuse",
    "tool_timeout_s": 60,
    "tool_concurrency": 16,
    "tool_result_max_chars": 20000,
    "max_rounds": 10,
    "max_tool_calls": 50,
    "at_max_rounds": "pause",
    "ping_interval_s": 10,
    "proxy_pings": True,
    "early_head_s": None,
    "connect_timeout_s": 10,
    "first_byte_timeout_s": 600,
    "idle_timeout_s": 300,
    "turn_timeout_s": 3600,
    "max_concurrent_turns": 2000,
    "max_turn_bytes": 134217728,
    "max_held_bytes": 1073741824,
    "max_event_bytes": 16777216,
    "model_map": {},
    "max_tokens_cap": None,
    "api_keys": (),
    "upstream_api_key": None,
    "seal_keys": (),
    "max_body_bytes": 33554432,
    "proxy_paths": DEFAULT_PROXY_PATHS,
    "allowed_hosts": (),
    "cors_origins": (),
    "drain_s": 30,
    "log_level": "info",
    "log_format": "text",
}


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.toml"


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_defaults(name: str, default: object) -> None:
    assert getattr(load({}), name) == default


def test_flags_beat_variables_beat_the_file_beats_the_default(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text("port = 1\nworkers = 2\nmax_rounds = 3\n")
    monkeypatch.setenv("GATEWAY_WORKERS", "4")
    monkeypatch.setenv("GATEWAY_MAX_ROUNDS", "5")
    settings = load({"max_rounds": "6"}, file)
    assert (settings.port, settings.workers, settings.max_rounds, settings.tool_concurrency) == (1, 4, 6, 16)


def test_a_settings_object_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_PORT", "1")
    assert Settings().port == 9000


def test_the_functions_that_are_taken_over_by_name(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text('gateway_tools = ["web_search"]\n')
    assert load({}, file).gateway_tools == ("web_search",)
    assert load({"gateway_tools": ""}, file).gateway_tools == ()
    monkeypatch.setenv("GATEWAY_GATEWAY_TOOLS", "")
    assert load({}).gateway_tools == ()
    with pytest.raises(SettingsError, match=r"^--gateway-tools: web_sarch: the gateway takes over no function"):
        load({"gateway_tools": "web_sarch"})


def test_lists_and_maps_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_API_KEYS", "one, two")
    monkeypatch.setenv("GATEWAY_PROXY_PATHS", "/a,/b/*")
    monkeypatch.setenv("GATEWAY_CORS_ORIGINS", "https://*.example.com,null, *")
    monkeypatch.setenv("GATEWAY_ALLOWED_HOSTS", "llm.example.com, *.dev")
    monkeypatch.setenv("GATEWAY_TOOL_ALIASES", "WebSearch=web_search")
    monkeypatch.setenv("GATEWAY_MODEL_MAP", "claude-opus-*=big, claude-*=small,claude-*=never,a=b=c")
    settings = load({})
    assert [key.get_secret_value() for key in settings.api_keys] == ["one", "two"]
    assert settings.proxy_paths == ("/a", "/b/*")
    assert settings.cors_origins == ("https://*.example.com", "null", "*")
    assert settings.allowed_hosts == ("llm.example.com", "*.dev")
    assert settings.tool_aliases == {"WebSearch": "web_search"}
    assert list(settings.model_map.items()) == [("claude-opus-*", "big"), ("claude-*", "small"), ("a", "b=c")]


def test_lists_and_maps_of_repeated_flags() -> None:
    settings = load({"model_map": ("a=b", "c=d"), "tool_aliases": ("X=web_search",), "proxy_paths": "/a,/b"})
    assert settings.model_map == {"a": "b", "c": "d"}
    assert settings.tool_aliases == {"X": "web_search"}
    assert settings.proxy_paths == ("/a", "/b")


def test_lists_and_maps_are_native_in_the_file(file: Path) -> None:
    file.write_text(
        'api_keys = ["one"]\nproxy_paths = ["/a"]\nupstream_api_key = "up"\nmax_tokens_cap = "auto"\n'
        'tool_timeout_s = 0.5\n[model_map]\n"claude-*" = "q"\n[tool_aliases]\nWebSearch = "web_search"\n'
    )
    settings = load({}, file)
    assert settings.api_keys == (SecretStr("one"),)
    assert settings.upstream_api_key == SecretStr("up")
    assert (settings.proxy_paths, settings.max_tokens_cap, settings.tool_timeout_s) == (("/a",), "auto", 0.5)
    assert (settings.model_map, settings.tool_aliases) == ({"claude-*": "q"}, {"WebSearch": "web_search"})


@pytest.mark.parametrize(("given", "cap"), [("4096", 4096), (4096, 4096), ("auto", "auto")])
def test_the_cap_is_a_number_or_auto(given: object, cap: object) -> None:
    assert load({"max_tokens_cap": given}).max_tokens_cap == cap


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("http://vllm:8000/", "http://vllm:8000"),
        ("https://models.example.com", "https://models.example.com"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_origin(given: str, origin: str) -> None:
    assert load({"upstream": given}).upstream == origin


MISTAKES: list[tuple[str, object, str]] = [
    ("upstream", "127.0.0.1:8000", "http://"),
    ("upstream", "localhost", "http://"),
    ("upstream", "ftp://x", "http://"),
    ("upstream", "http://", "http://"),
    ("upstream", "http://x:8000/v1", "has a path"),
    ("upstream", "http://x?a=b", "has a path"),
    ("upstream", "http://x:99999", "no address"),
    ("upstream", "http://x:0", "port"),
    ("upstream", "http://a b", "http://"),
    ("upstream", "", "http://"),
    ("upstream_dialect", "sglang", "'vllm'"),
    ("deferred_tools", "yes", "'expand'"),
    ("host", "", "at least 1"),
    ("port", "70000", "65535"),
    ("port", "-1", "0"),
    ("port", "http", "integer"),
    ("workers", "0", "1"),
    ("search_provider", "google", "'ddgs'"),
    ("search_base_url", "searx.local", "http://"),
    ("search_max_results", "0", "1"),
    ("tool_aliases", ("WebSearch=google",), "web_search"),
    ("tool_aliases", ("WebSearch",), "KEY=VALUE"),
    ("tool_aliases", ("=web_search",), "KEY=VALUE"),
    ("early_head_s", "0", "greater than 0"),
    ("proxy_pings", "perhaps", "boolean"),
    ("tool_timeout_s", "-1", "0"),
    ("tool_timeout_s", "inf", "finite"),
    ("tool_timeout_s", "nan", "finite"),
    ("tool_concurrency", "0", "1"),
    ("tool_result_max_chars", "0", "1"),
    ("max_rounds", "0", "1"),
    ("max_rounds", "1.5", "integer"),
    ("ping_interval_s", "0", "0"),
    ("connect_timeout_s", "0", "0"),
    ("first_byte_timeout_s", "soon", "number"),
    ("idle_timeout_s", "-3", "0"),
    ("turn_timeout_s", "0", "0"),
    ("max_concurrent_turns", "0", "1"),
    ("max_turn_bytes", "64MB", "integer"),
    ("max_event_bytes", "0", "1"),
    ("model_map", ("claude-*",), "KEY=VALUE"),
    ("model_map", ("claude-*=",), "KEY=VALUE"),
    ("max_tokens_cap", "0", "auto"),
    ("max_tokens_cap", "all", "auto"),
    ("max_body_bytes", "0", "1"),
    ("proxy_paths", "v1/x", "begins with /"),
    ("cors_origins", "app.example.com", "no origin"),
    ("cors_origins", "https://app.example.com/", "no origin"),
    ("allowed_hosts", "https://llm.example.com", "no name of a host"),
    ("allowed_hosts", "llm.example.com:443", "no name of a host"),
    ("drain_s", "-1", "0"),
    ("log_level", "loud", "'debug'"),
    ("log_format", "xml", "'json'"),
]


@pytest.mark.parametrize(("name", "value", "words"), MISTAKES)
def test_a_bad_flag_stops_the_start_with_a_sentence_that_names_it(name: str, value: object, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({name: value})
    [sentence] = str(caught.value).splitlines()
    assert sentence.startswith(flag(name) + ": ")
    assert words in sentence


@pytest.mark.parametrize(("name", "value", "words"), MISTAKES)
def test_a_bad_variable_too(monkeypatch: pytest.MonkeyPatch, name: str, value: object, words: str) -> None:
    monkeypatch.setenv(variable(name), value if isinstance(value, str) else value[0])  # type: ignore[index]
    with pytest.raises(SettingsError) as caught:
        load({})
    assert str(caught.value).startswith(variable(name) + ": ")
    assert words in str(caught.value)


@pytest.mark.parametrize("name", sorted(SECRETS))
@pytest.mark.parametrize("value", ["", " ", "se cret", "secret\n2", "sécret"])
def test_a_bad_key_is_named_and_not_repeated(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(variable(name), value)
    with pytest.raises(SettingsError) as caught:
        load({})
    assert str(caught.value).startswith(variable(name) + ": ")
    assert "cret" not in str(caught.value)


def test_an_empty_key_among_others_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_API_KEYS", "one,,two")
    with pytest.raises(SettingsError, match="a key is empty"):
        load({})


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"upstream": "http://me:hunter2@x:8000/v1"})
    assert "hunter2" not in str(caught.value)


def test_every_mistake_is_said_at_once(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text('workers = 0\nlog_levl = "debug"\n[model_map]\nx = 5\n')
    monkeypatch.setenv("GATEWAY_PORT", "x")
    with pytest.raises(SettingsError) as caught:
        load({"max_rounds": "-1"}, file)
    places = {sentence.partition(": ")[0] for sentence in str(caught.value).splitlines()}
    assert {"GATEWAY_PORT", "--max-rounds", str(file)} == places
    assert f"{file}: log_levl: there is no such setting" in str(caught.value).splitlines()


def test_the_port_that_kubernetes_sets_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_PORT", "tcp://10.0.0.7:9000")
    with pytest.raises(SettingsError, match="enableServiceLinks"):
        load({})


def test_unknown_variables_are_told_apart() -> None:
    environ = {"GATEWAY_PORT": "1", "GATEWAY_SERVICE_HOST": "10.0.0.7", "GATEWAY_PROT": "2", "PATH": "/"}
    assert unknown_variables(environ) == ["GATEWAY_PROT", "GATEWAY_SERVICE_HOST"]


@pytest.mark.parametrize("content", [b"port = ", b"[[[", b"port = 1\nport = 2", b"\xff"])
def test_a_file_that_is_no_toml(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(SettingsError, match="is not TOML"):
        load({}, file)


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(SettingsError, match="there is no file"):
        load({}, file)


def test_keys_do_not_show() -> None:
    settings = Settings(api_keys=(SecretStr("hunter2"),), upstream_api_key=SecretStr("hunter2"))
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in settings.model_dump_json()
