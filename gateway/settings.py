"""The settings: one table of names, read from flags, ``GATEWAY_*`` variables and a TOML file, in that order.

``Settings(upstream="http://…")`` takes what it is given and reads nothing else; :func:`load` reads the sources.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from gateway.errors import SettingsError
from gateway.tools.search_providers import DEFAULT_PROVIDER, PROVIDERS

ENV_PREFIX = "GATEWAY_"

DEFAULT_PROXY_PATHS = (
    "/v1/messages/*",
    "/v1/models/*",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses*",
    "/v1/embeddings",
)


def _items(value: object) -> object:
    """``"a, b"`` as a list; what is a list already stays."""
    if not isinstance(value, str):
        return value
    return [item.strip() for item in value.split(",")] if value.strip() else []


def _pairs(value: object) -> object:
    """``"k=v,…"`` or ``["k=v", …]`` as a mapping in that order, the first of equal keys kept."""
    value = _items(value)
    if not isinstance(value, list | tuple):
        return value
    pairs: dict[str, str] = {}
    for item in value:
        key, equals, target = str(item).partition("=")
        if not (key.strip() and equals and target.strip()):
            raise ValueError(f"{str(item)!r} is not KEY=VALUE")
        pairs.setdefault(key.strip(), target.strip())
    return pairs


def _origin(value: str) -> str:
    example = "give scheme, host and port alone, as in http://127.0.0.1:8000"
    parts = _address(value, example)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"{value!r} has a path: {example}")
    return f"{parts.scheme}://{parts.netloc}"


def _base_url(value: str) -> str:
    """An origin, and what of a path stands in front of the endpoint's own."""
    example = "give scheme, host, port and what stands in front of the endpoint's own path, as in http://127.0.0.1:8888"
    parts = _address(value, example)
    if parts.query or parts.fragment:
        raise ValueError(f"{value!r} goes on behind its path: {example}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _address(value: str, example: str) -> SplitResult:
    if "@" in value:
        raise ValueError(f"an address takes no user and password: {example}")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{value!r} is no address ({error}): {example}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\s\x00-\x1f\\]", value):
        raise ValueError(f"{value!r} is no http:// or https:// address: {example}")
    if port == 0:
        raise ValueError(f"{value!r} has no port to connect to: {example}")
    return parts


def _provider(value: str) -> str:
    if value not in PROVIDERS:
        raise ValueError(f"{value!r} is none of {', '.join(map(repr, PROVIDERS))}")
    return value


def _secret(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.strip():
        raise ValueError("a key is empty: give one, or leave the setting out")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ValueError("a key holds a space or a character that no HTTP header can carry")
    return value


def _some(values: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    if not values:
        raise ValueError("set, but with no key in it: give one, or leave the setting out")
    return values


def _aliases(value: dict[str, str]) -> dict[str, str]:
    from gateway.turn.kinds import KINDS  # the core takes longer to load than a command line that names no tool

    for name, tool in value.items():
        if tool not in KINDS.functions:
            raise ValueError(f"{name}={tool}: the gateway has no tool {tool!r}; it has {', '.join(KINDS.functions)}")
    return value


def _functions(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    from gateway.turn.kinds import KINDS  # the core takes longer to load than a command line that names no tool

    for name in value or ():
        if name not in KINDS.functions:
            known = ", ".join(KINDS.functions)
            raise ValueError(f"{name}: the gateway takes over no function {name!r}; it can take over {known}")
    return value


def _cap(value: object) -> object:
    if value in (None, "auto"):
        return value
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"{value!r} is neither a number of tokens nor auto")
    return number


def _paths(value: tuple[str, ...]) -> tuple[str, ...]:
    for path in value:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is no path: it begins with /, as in /v1/embeddings")
    return value


def _page_origins(value: tuple[str, ...]) -> tuple[str, ...]:
    for origin in value:
        if origin not in ("*", "null") and not re.fullmatch(r"[\w.+*?-]+://[^\s/]+", origin):
            raise ValueError(
                f"{origin!r} is no origin: give scheme, host and port alone, as in https://app.example.com"
            )
    return value


def _host_names(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if not re.fullmatch(r"[^\s/:@]+", name):
            raise ValueError(f"{name!r} is no name of a host: give it without scheme and port, as in llm.example.com")
    return value


Origin = Annotated[str, AfterValidator(_origin)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
Secrets = Annotated[tuple[Secret, ...], NoDecode, BeforeValidator(_items)]
StringMap = Annotated[dict[str, str], NoDecode, BeforeValidator(_pairs)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseSettings):
    """Everything an operator can set. A field's description is the help text of its flag."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=ENV_PREFIX, validate_default=False)

    upstream: Origin = Field("http://127.0.0.1:8000", description="Origin of the Messages server, without /v1.")
    upstream_dialect: Literal["auto", "vllm", "lmdeploy"] = Field(
        "auto", description="What upstream speaks beyond Messages; auto asks it once."
    )
    deferred_tools: Literal["auto", "expand", "declare", "pass"] = Field(
        "auto", description="What upstream is given of deferred tools and tool references; auto asks it once a model."
    )
    host: Annotated[str, Field(min_length=1)] = Field("127.0.0.1", description="Address to listen on.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(9000, description="Port to listen on; 0 takes a free one.")
    workers: Count = Field(1, description="Server processes.")
    search_provider: Annotated[str, AfterValidator(_provider)] = Field(
        DEFAULT_PROVIDER, description=f"Who answers web_search: {', '.join(PROVIDERS)}. The first needs no key."
    )
    search_base_url: BaseUrl | None = Field(
        None, description="Another scheme, host and port for the provider's endpoint, and a path in front of its own."
    )
    search_api_key: Secret | None = Field(None, description="The provider's key.")
    search_max_results: Count = Field(8, description="Results handed to the model per search.")
    tool_aliases: Annotated[StringMap, AfterValidator(_aliases)] = Field(
        {}, description="A client function given to the gateway, as in WebSearch=web_search. Repeatable."
    )
    gateway_tools: Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(_items), AfterValidator(_functions)] = (
        Field(None, description="Functions taken over by their name: a list, maybe empty; all that there are if unset.")
    )
    unknown_server_tools: Literal["refuse", "drop"] = Field(
        "refuse", description="What becomes of a request that declares a server tool nobody here has: 400, or without."
    )
    tool_timeout_s: Seconds = Field(60, description="For each tool call, its wait for a free slot included.")
    tool_concurrency: Count = Field(16, description="Tool calls in flight in the process.")
    tool_result_max_chars: Count = Field(20_000, description="Room for one result; what is cut off is mentioned in it.")
    max_rounds: Count = Field(10, description="Upstream inferences per turn.")
    max_tool_calls: Count = Field(50, description="Gateway tool calls per turn; what is more is answered, not run.")
    at_max_rounds: Literal["pause", "answer"] = Field(
        "pause", description="How a turn with native tools alone ends at its last round: pause_turn, or an answer."
    )
    ping_interval_s: Seconds = Field(10, description="Silence on a stream before a ping.")
    proxy_pings: bool = Field(True, description="No pings on a stream that passes through.")
    early_head_s: Seconds | None = Field(
        None, description="A stream of messages begins after that long, though upstream has not begun to answer."
    )
    connect_timeout_s: Seconds = Field(10, description="For a connection to upstream.")
    first_byte_timeout_s: Seconds = Field(600, description="From the request to upstream's first byte.")
    idle_timeout_s: Seconds = Field(300, description="Between two upstream bytes.")
    turn_timeout_s: Seconds = Field(3600, description="For a whole turn, from the request to the message's end.")
    max_concurrent_turns: Count = Field(2000, description="Turns at a time in a server process; one more gets 529.")
    max_turn_bytes: Count = Field(
        134_217_728, description="What is kept of a turn: its request, and what upstream and tools answer."
    )
    max_held_bytes: Count = Field(
        1_073_741_824, description="What all turns of a server process hold together; one more gets 529."
    )
    max_event_bytes: Count = Field(16_777_216, description="For one event of upstream's stream in a turn.")
    model_map: StringMap = Field(
        {}, description="Glob of the client's model = upstream model, as in claude-*=qwen3. Repeatable."
    )
    max_tokens_cap: Annotated[int | Literal["auto"] | None, BeforeValidator(_cap)] = Field(
        None, description="Most that max_tokens may ask for; auto takes the model's window."
    )
    api_keys: Annotated[Secrets, AfterValidator(_some)] = Field((), description="Keys a client must present.")
    upstream_api_key: Secret | None = Field(
        None, description="The gateway's own key for upstream; clients' credentials then go no further."
    )
    seal_keys: Annotated[Secrets, AfterValidator(_some)] = Field(
        (), description="Secrets for native search results: new ones are sealed with the first; replicas need the same."
    )
    max_body_bytes: Count = Field(33_554_432, description="A larger request gets 413.")
    proxy_paths: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_items), AfterValidator(_paths)] = Field(
        DEFAULT_PROXY_PATHS, description="What else is proxied: comma-separated globs of paths."
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_items), AfterValidator(_host_names)] = Field(
        (), description="Names, or globs, that a gateway on loopback without keys goes by beside this machine's own."
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_items), AfterValidator(_page_origins)] = Field(
        (), description="Origins, or globs, of web pages that may ask, and whose browsers let them read the answers."
    )
    drain_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        30, description="How long running turns may finish at shutdown."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_format: Literal["text", "json"] = Field("text", description="One line a request, as text or JSON.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


SECRETS = frozenset({"search_api_key", "api_keys", "upstream_api_key", "seal_keys"})
"""Settings that are no flags, and whose values no message repeats."""

REPEATABLE = {"tool_aliases": "--tool-alias", "model_map": "--model-map"}
"""Flags that may be given more than once, a pair each."""


NEGATED = {"proxy_pings": "--no-proxy-pings"}
"""Settings that are on, with the flags that turn them off."""


def flag(name: str) -> str:
    """The flag of a setting: ``max_rounds`` -> ``--max-rounds``."""
    return NEGATED.get(name) or REPEATABLE.get(name, "--" + name.replace("_", "-"))


def variable(name: str) -> str:
    """The environment variable of a setting: ``max_rounds`` -> ``GATEWAY_MAX_ROUNDS``."""
    return ENV_PREFIX + name.upper()


def load(flags: Mapping[str, object], config: Path | None = None) -> Settings:
    """The settings from flags (by setting name), the environment and a TOML file.

    Raises :class:`SettingsError` with a sentence for each unknown key and each bad value.
    """
    file = _read_toml(config) if config else {}
    env = EnvSettingsSource(Settings)()
    try:
        return Settings(**{**file, **env, **flags})
    except ValidationError as error:
        sources = {**dict.fromkeys(file, f"{config}: "), **dict.fromkeys(env, ENV_PREFIX), **dict.fromkeys(flags, "--")}
        # A bad value in a union has one error for each member: the first says enough.
        first = {str(details["loc"][0]): details for details in reversed(error.errors())}
        sentences = [_sentence(name, details, sources[name]) for name, details in reversed(first.items())]
        raise SettingsError("\n".join(sentences)) from None


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """``GATEWAY_*`` variables that are no setting: worth a warning, as Kubernetes injects some of its own."""
    known = {variable(name) for name in Settings.model_fields}
    return sorted(name for name in environ if name.startswith(ENV_PREFIX) and name not in known)


def _read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise SettingsError(f"--config: there is no file {path}")
    try:
        return TomlConfigSettingsSource(Settings, toml_file=path)()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None


def _sentence(name: str, details: ErrorDetails, source: str) -> str:
    if source == "--":
        place = flag(name)
    elif source == ENV_PREFIX:
        place = variable(name)
    else:
        place = source + name
    if details["type"] == "extra_forbidden":
        return f"{place}: there is no such setting"
    cause = details.get("ctx", {}).get("error")
    if cause is not None:
        return f"{place}: {cause}"
    sentence = details["msg"].replace("Input should be", "it should be")
    value = details["input"]
    if name in SECRETS or not isinstance(value, str | int | float):
        return f"{place}: {sentence}"
    sentence = f"{place}: {sentence}, and is {value!r}"
    if source == ENV_PREFIX and str(value).startswith("tcp://"):
        # Kubernetes sets NAME_PORT for every service: one called "gateway" collides with ours.
        sentence += " (set by Kubernetes for a service of that name? enableServiceLinks: false turns that off)"
    return sentence
