"""Who holds which key, and how far each key goes."""

import hmac
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.errors import AuthenticationFailed
from gateway.handling.access import Keys
from gateway.settings import Settings
from gateway.wire.headers import Headers
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION, SEARCH
from tests.support.upstream import ScriptedUpstream, SeenRequest, json_answer, message, text, tool_use

GATEWAY_KEY, UPSTREAM_KEY, SEARCH_KEY, SEAL_KEY = "sk-of-the-gateway", "sk-upstream", "sk-of-the-search", "sk-of-seals"
KEYS = tuple(SecretStr(key) for key in ("first-key", "second-key", "third-key"))


# --- guessing ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, object]]:
    """Every pair that has been compared in constant time."""
    pairs: list[tuple[object, object]] = []
    compare = hmac.compare_digest

    def noting(one: Any, other: Any) -> bool:
        pairs.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noting)
    return pairs


@pytest.mark.parametrize("given", ["first-key", "third-key", "first-kez", "f", "", "no-key-at-all"])
def test_every_key_is_compared_with_what_was_given_whichever_fits(
    given: str, compared: list[tuple[object, object]]
) -> None:
    headers: Headers = [(b"x-api-key", given.encode()), (b"authorization", b"Bearer first-key")]
    Keys(KEYS).check(headers)
    assert sorted(compared) == sorted(
        (key.get_secret_value().encode(), value) for key in KEYS for value in (given.encode(), b"first-key")
    )


def test_a_wrong_key_takes_the_way_of_a_right_one(compared: list[tuple[object, object]]) -> None:
    with pytest.raises(AuthenticationFailed):
        Keys(KEYS).check([(b"x-api-key", b"first-kez")])
    wrong = [key for key, _ in compared]
    compared.clear()
    Keys(KEYS).check([(b"x-api-key", b"first-key")])
    assert [key for key, _ in compared] == wrong


# --- how far each key goes --------------------------------------------------------------------------------------------

PROVIDERS = ["brave", "tavily", "exa", "you", "searxng"]


def bytes_of(requests: Sequence[SeenRequest]) -> bytes:
    return b"\n".join(
        b"\n".join([seen.target.encode(), *(name + b": " + value for name, value in seen.headers), seen.body])
        for seen in requests
    )


@pytest.mark.anyio
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("tool", [NATIVE, SEARCH], ids=["native", "hidden"])
@pytest.mark.parametrize("works", [True, False], ids=["a search that works", "a refused key"])
async def test_each_key_reaches_the_one_it_is_for_and_nobody_else(
    provider: str, tool: dict[str, Any], works: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    rounds = [json_answer(message(tool_use("web_search", {"query": "rust"}))), json_answer(message(text("Done.")))]
    found = json_answer({"results": [], "web": {"results": []}, "hits": []}) if works else json_answer({}, 401)
    async with ScriptedUpstream(*rounds) as upstream, ScriptedUpstream(found) as provider_server:
        settings = Settings(
            upstream=upstream.origin,
            api_keys=(SecretStr(GATEWAY_KEY),),
            upstream_api_key=SecretStr(UPSTREAM_KEY),
            seal_keys=(SecretStr(SEAL_KEY),),
            search_provider=provider,
            search_base_url=provider_server.origin,
            search_api_key=SecretStr(SEARCH_KEY),
            log_level="debug",
        )
        async with running_gateway(settings) as gateway:
            answer = await gateway.client.post(
                "/v1/messages",
                json={"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [tool]},
                headers={"x-api-key": GATEWAY_KEY, "cookie": "session=secret", "x-forwarded-for": "10.1.2.3"},
            )
            metrics = await gateway.client.get("/metrics", headers={"authorization": f"Bearer {GATEWAY_KEY}"})
    assert answer.status_code == metrics.status_code == 200

    asked, searched = bytes_of(upstream.requests), bytes_of(provider_server.requests)
    assert asked.count(UPSTREAM_KEY.encode()) == 2
    assert not any(key.encode() in asked for key in (GATEWAY_KEY, SEARCH_KEY, SEAL_KEY))
    assert len(provider_server.requests) == 1
    assert searched.count(SEARCH_KEY.encode()) == (provider != "searxng")
    assert not any(secret in searched for secret in (GATEWAY_KEY.encode(), UPSTREAM_KEY.encode(), SEAL_KEY.encode()))
    assert b"session=secret" not in searched
    assert b"10.1.2.3" not in searched
    out, err = capfd.readouterr()
    assert "route=/v1/messages" in err
    told = "\n".join([answer.text, str(answer.headers), metrics.text, out, err])
    assert not any(key in told for key in (GATEWAY_KEY, UPSTREAM_KEY, SEARCH_KEY, SEAL_KEY))


@pytest.mark.anyio
async def test_without_gateway_keys_the_clients_own_go_to_upstream_alone() -> None:
    rounds = [json_answer(message(tool_use("web_search", {"query": "rust"}))), json_answer(message(text("Done.")))]
    async with ScriptedUpstream(*rounds) as upstream, ScriptedUpstream(json_answer({"results": []})) as searxng:
        settings = Settings(
            upstream=upstream.origin, search_provider="searxng", search_base_url=searxng.origin, log_level="debug"
        )
        async with running_gateway(settings) as gateway:
            body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [SEARCH]}
            headers = {"x-api-key": "of-the-client", "authorization": "Bearer of-the-client"}
            assert (await gateway.client.post("/v1/messages", json=body, headers=headers)).status_code == 200
    assert bytes_of(upstream.requests).count(b"of-the-client") == 4
    assert b"of-the-client" not in bytes_of(searxng.requests)


def test_no_key_shows_where_the_settings_do() -> None:
    settings = Settings(api_keys=KEYS, upstream_api_key=KEYS[0], search_api_key=KEYS[1], seal_keys=KEYS)
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert "-key" not in shown.replace("api_key", "").replace("seal_key", "")


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/models/m", "/v1/messages", "/v1/embeddings", "/"])
async def test_no_request_is_reflected_with_the_key_for_upstream(path: str) -> None:
    async with ScriptedUpstream(json_answer({})) as upstream:
        settings = Settings(upstream=upstream.origin, upstream_api_key=SecretStr(UPSTREAM_KEY))
        async with running_gateway(settings) as gateway:
            answer = await gateway.client.request("TRACE", path)
            assert answer.status_code == 405
            assert "TRACE" not in answer.headers["allow"]
    assert upstream.requests == []
