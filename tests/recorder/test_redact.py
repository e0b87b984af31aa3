import json
from pathlib import Path
from typing import Any

import pytest

from recorder.cassette import Cassette, Request, Response, Turn
from recorder.credentials import REDACTED, find_secrets
from recorder.messages import fold
from recorder.redact import redact_json, redact_request_body, redact_text, redact_turn, scan
from recorder.spool import Spool
from recorder.writer import turn_yaml
from tests.recorder.tape import SECRET, answered, asked, streamed, write
from tests.support.upstream import message, sse, text, thinking, tool_use

LETTERS = "a1b2c3d4e5f6g7h8i9j0"
JWT = ".".join(["eyJ" + LETTERS, LETTERS, LETTERS])
PEM = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEpAIBAAKCAQEA\nabc\n-----END RSA PRIVATE KEY-----"

SECRETS = {
    "Anthropic, OpenAI": SECRET,
    "Tavily": f"tvly-dev-{LETTERS}",
    "Brave": f"BSA{LETTERS}x",
    "Hugging Face": f"hf_{LETTERS}",
    "AWS": "AKIA" + "ABCDEFGH12345678",
    "GitHub": f"ghp_{LETTERS}",
    "Google": f"AIza{LETTERS}{LETTERS}",
    "Slack": f"xoxb-{LETTERS}",
    "JWT": JWT,
    "PEM": PEM,
}

HEX = "0123456789abcdef" * 4
MIXED = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD"
"""32 letters and digits"""
PGP = PEM.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK").replace("MII", "Version: 1\n\nlQO")
MORE_SECRETS = {
    "Stripe": f"sk_live_{MIXED[:24]}",
    "Stripe, restricted": f"rk_test_{MIXED}",
    "Stripe, webhook": f"whsec_{MIXED}",
    "npm": f"npm_{MIXED}abcd",
    "PyPI": f"pypi-AgEIcHlwaS5vcmc{MIXED * 3}",
    "SendGrid": f"SG.{MIXED[:22]}.{MIXED}{MIXED[:11]}",
    "Google OAuth": f"ya29.{MIXED}",
    "Google client": f"GOCSPX-{MIXED[:28]}",
    "AWS, for a time": "ASIA" + "ABCDEFGH12345678",
    "Azure client": f"abc8Q~{MIXED}",
    "Vault": f"hvs.{MIXED}",
    "Vault, batch": f"hvb.{MIXED}",
    "Vault, before 1.10": f"s.{MIXED[:24]}",
    "GitLab, deploy": f"gldt-{MIXED[:20]}",
    "Slack, app hook": f"https://hooks.slack.com/services/T{MIXED[:9]}/B{MIXED[:9]}/{MIXED[:24]}",
    "Square": f"sq0csp-{MIXED}{MIXED[:11]}",
    "Mailchimp": f"{HEX[:32]}-us12",
    "Telegram": f"123456789:AA{MIXED}a",
    "Twilio": f"SK{HEX[:32]}",
    "PEM, encrypted": PEM.replace("RSA PRIVATE", "ENCRYPTED PRIVATE"),
    "PEM, OpenSSH": PEM.replace("RSA PRIVATE", "OPENSSH PRIVATE"),
    "PGP": PGP,
}


@pytest.mark.parametrize("secret", [*SECRETS.values(), *MORE_SECRETS.values()], ids=[*SECRETS, *MORE_SECRETS])
def test_keys_are_known_by_their_look(secret: str) -> None:
    clean, kinds = redact_text(f"Use {secret} for it.")
    assert clean == f"Use {REDACTED} for it."
    assert len(kinds) == 1


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (f"Authorization: Bearer {LETTERS}", "Authorization: Bearer [redacted]"),
        (f"authorization: basic {LETTERS}==", "authorization: basic [redacted]"),
        ("https://me:hunter2@example.org/x", "https://me:[redacted]@example.org/x"),
        ("GET /search?q=a&API_KEY=abc&page=2", "GET /search?q=a&API_KEY=[redacted]&page=2"),
        ("https://example.org/?key=abc#top", "https://example.org/?key=[redacted]#top"),
        ('{"apiKey": "abcdefgh", "q": 1}', '{"apiKey": "[redacted]", "q": 1}'),
        (r"{\"client_secret\":\"abcdefgh\"}", r"{\"client_secret\":\"[redacted]\"}"),
        (f"export BRAVE_API_KEY={LETTERS}", "export BRAVE_API_KEY=[redacted]"),
        (f"İ api_key: '{LETTERS}' İ", "İ api_key: '[redacted]' İ"),
        (f"DefaultEndpointsProtocol=https;AccountKey={MIXED}{MIXED}==", None),
        (f"Endpoint=sb://x.net/;SharedAccessKey={MIXED}=", None),
        (f"//registry.npmjs.org/:_authToken={MIXED}", None),
        (f"aws_secret = '{MIXED}abcd/fgh' # key", None),
        (f"https://x.azurewebsites.net/api/run?code={MIXED}{MIXED}==", None),
        ("curl -u me:hunter2 https://example.org", "curl -u me:[redacted] https://example.org"),
        ("curl -sSu 'me:hunter2' x", "curl -sSu 'me:[redacted]' x"),
        ('{"cmd": "curl -X POST --user \\"me:hunter2\\" x"}', '{"cmd": "curl -X POST --user \\"me:[redacted]\\" x"}'),
        ("postgres://me:p@ss@db:5432/x", "postgres://me:[redacted]@db:5432/x"),
        ("redis://:hunter2@[::1]:6379", "redis://:[redacted]@[::1]:6379"),
        ("amqp://me:a/b@mq/x", "amqp://me:[redacted]@mq/x"),
        (r'{"url":"https:\/\/me:hunter2@example.org"}', r'{"url":"https:\/\/me:[redacted]@example.org"}'),
        (
            '{"api_key": {"value": "abcdefgh"}, "q": "abcdefgh"}',
            '{"api_key": {"value": "[redacted]"}, "q": "abcdefgh"}',
        ),
        (r"{\"credentials\": [{\"a\": \"abcdefgh\"}, \"hgfedcba\"]}", None),
    ],
)
def test_keys_are_known_by_where_they_stand(said: str, left: str | None) -> None:
    if left is None:
        left = redact_text(said)[0]
        assert left.count(REDACTED) == said.count("hgfedcba") + 1
        assert not any(secret in left for secret in (MIXED, "abcdefgh", "hgfedcba"))
    assert redact_text(said)[0] == left
    assert redact_text(left) == (left, [])


@pytest.mark.parametrize(
    "harmless",
    [
        '{"usage":{"input_tokens":175,"output_tokens":45},"max_tokens":1024}',
        "https://example.org/search?q=keys&page=2 and user@example.org",
        "The bearer authentication of RFC 6750; task-1234567890123456 and risk-free.",
        "api_key = settings.api_key",
        '{"id":"chatcmpl-tool-8a83ba59f6660ac0","signature":"19137a8317c4403d86c552a7d49cada9"}',
        '{"password": {"type": "string", "description": "what the user types"}}',
        '{"token": {"id": 7, "text": "international", "logprob": -0.1}}',
        "http://127.0.0.1:8000/users/me@example.org and ssh://git@example.org:22/x@y",
        "https://example.org/login?code=invite-2026&state=x",
        "curl -X POST -H 'a: b' http://example.org:8000/; useradd -u 1000:1000",
        "socks.PORTABLE_TOKENS.abcdefghijklmnopqrstuvwx, this.s.abcdefgh1jklmnopqrstuvwx",
        "ACCOUNTS and SKILLS: 2026-12-01T03:04:05 at 12:34567890, sk_live_mode, rk_test, npm_config_cache, pypi-server",
    ],
)
def test_what_only_looks_a_little_like_one_stays(harmless: str) -> None:
    assert redact_text(harmless) == (harmless, [])


def test_json_is_searched_by_field_and_by_text() -> None:
    value = {
        "a": [f"x {SECRET}"],
        "password": "pw",
        "properties": {"password": {"type": "string"}},
        "secret": "",
        "n": 1,
    }
    clean, found = redact_json(value)
    assert clean == {**value, "a": [f"x {REDACTED}"], "password": REDACTED}
    assert found == [".a.0: API key", ".password"]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "authorization_token",
            "token",
            "accessToken",
            "x-auth-token",
            "authorization",
            "clientSecret",
            "db_password",
        ),
        *("apikey", "api_key", "privateKey", "aws_secret_access_key"),
    ],
)
def test_a_field_with_the_name_of_a_credential(name: str) -> None:
    clean, found = redact_json({"mcp_servers": [{"name": "m", name: "any-thing"}]})
    assert clean == {"mcp_servers": [{"name": "m", name: REDACTED}]}
    assert found == [f".mcp_servers.0.{name}"]
    said = json.dumps({name: "any-thing"})
    assert redact_text(said)[0] == said.replace("any-thing", REDACTED)


NESTED = [
    ({"value": "any-thing"}, {"value": REDACTED}),
    (["any-thing", {"a": ["other", 5, None, ""]}], [REDACTED, {"a": [REDACTED, 5, None, ""]}]),
    ({"type": "bearer", "is": "any-thing"}, {"type": REDACTED, "is": REDACTED}),
]


@pytest.mark.parametrize(("value", "left"), NESTED)
@pytest.mark.parametrize("name", ["api_key", "credentials", "authorization", "x-functions-key"])
def test_what_is_nested_below_such_a_name(name: str, value: Any, left: Any) -> None:
    clean, found = redact_json({"a": {name: value, "b": "any-thing"}})
    assert clean == {"a": {name: left, "b": "any-thing"}}
    assert found[0].startswith(f".a.{name}.")


def test_the_schema_of_a_field_with_such_a_name_stays() -> None:
    described = {"type": "object", "properties": {"user": {"type": "string", "description": "Whose it is."}}}
    tool = {"name": "login", "input_schema": {"type": "object", "properties": {"credentials": described}}}
    assert redact_json(tool) == (tool, [])
    token = {"token": {"id": 7, "text": " international", "logprob": -0.1}}
    assert redact_json(token) == (token, [])


@pytest.mark.parametrize(
    "name",
    ["x-functions-key", "ocp-apim-subscription-key", "api-key", "x-goog-api-key", "x-my-own-key", "key", "x_acme_key"],
)
def test_a_header_that_ends_in_key(name: str) -> None:
    request = asked("it is plain-word")
    request.headers = {name: "plain-word", "accept": "plain/text", "x-keyboard": "qwerty", "x-monkey": "yes"}
    turn = redact_turn(Turn("t1", request, answered({"said": "plain-word"})))
    assert turn.request.headers == {"accept": "plain/text", "x-keyboard": "qwerty", "x-monkey": "yes"}
    assert turn.request.body["messages"][0]["content"] == f"it is {REDACTED}"
    assert turn.response.json() == {"said": REDACTED}
    assert turn.redacted[-1] == "response.body.said: credential of the request"


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "input_tokens", "budget_tokens", "tokens", "token_ids", "output_ids", "tokenizer", "secretary"],
)
def test_a_field_whose_name_only_sounds_so(name: str) -> None:
    assert redact_json({name: "any-thing"}) == ({name: "any-thing"}, [])
    said = json.dumps({name: "any-thing"})
    assert redact_text(said) == (said, [])


def test_a_token_of_the_model_is_none() -> None:
    value = {"logprobs": {"content": [{"token": " international", "logprob": -0.1, "top_logprobs": []}]}}
    assert redact_json(value) == (value, [])
    assert redact_text(json.dumps(value)) == (json.dumps(value), [])


def test_a_field_whose_name_is_a_credential() -> None:
    clean, found = redact_json({SECRET: 1, SECRET + "b": 2, "c": 3}, "body")
    assert clean == {REDACTED: 1, REDACTED + "'": 2, "c": 3}
    assert found == ["body: API key as a field's name"] * 2


ECHOED = {
    "x-api-key": ("plain-word", "plain-word"),
    "authorization": ("Bearer plain-word", "plain-word"),
    "Basic authorization": ("Basic bWU6cGxhaW4td29yZA==", "plain-word"),
    "cookie": ("theme=dark; sid=plain-word", "plain-word"),
    "x-goog-api-key": ("a/b+plain-word", "a%2Fb%2Bplain-word"),
}


@pytest.mark.parametrize(("header", "value", "echo"), [(k.split()[-1], *v) for k, v in ECHOED.items()], ids=ECHOED)
def test_a_credential_of_the_request_is_known_by_its_value(header: str, value: str, echo: str, tmp_path: Path) -> None:
    request = asked(f"my key is {echo}, dark", metadata={echo: 1})
    request.headers, request.query_params = {header: value}, {"q": echo}
    plain = redact_turn(Turn("t1", request, answered(message(text(f"It is {echo}.")))))
    assert plain.request.body["messages"][0]["content"] == f"my key is {REDACTED}, dark"
    assert plain.request.body["metadata"] == {REDACTED: 1}
    assert plain.request.query_params == {"q": REDACTED}
    assert plain.response.json()["content"][0]["text"] == f"It is {REDACTED}."
    stream = redact_turn(Turn("t1", request, streamed(sse(text(*in_pieces(echo))))))
    assert fold(stream.response.content.lines()).message["content"][0]["text"] == (
        f"My key is {REDACTED} and that is it."
    )
    unredacted = tmp_path / "c.yaml"
    unredacted.write_text("".join(["turns:\n", *turn_yaml(Turn("t1", request, answered(message(text(echo)))))]))
    assert "t1: response.body.content.0.text: credential of the request" in list(scan(unredacted))


def test_a_short_value_in_a_header_is_no_credential_elsewhere() -> None:
    request = asked("a dummy key")
    request.headers = {"x-api-key": "dummy", "authorization": "Bearer EMPTY"}
    assert redact_turn(Turn("t1", request, answered({}))).request.body == request.body


def test_a_turn_loses_credentials_wherever_they_stand_and_says_so() -> None:
    request = Request(
        "POST",
        "/v1/messages",
        {"beta": "true", "api_key": "abc"},
        {"x-api-key": "k", "authorization": "Bearer k", "cookie": "c", "anthropic-version": "2023-06-01"},
        {"model": "qwen3", "metadata": {"user_id": "me", "run": 1}, "messages": [{"role": "user", "content": SECRET}]},
    )
    response = answered(message(text(f"It is {SECRET}.")))
    response.headers |= {"set-cookie": "c"}
    turn = redact_turn(Turn("t1", request, response))
    assert turn.request.query_params == {"beta": "true", "api_key": REDACTED}
    assert turn.request.headers == {"anthropic-version": "2023-06-01"}
    assert turn.request.body["metadata"] == {"user_id": REDACTED, "run": 1}
    assert turn.request.body["messages"][0]["content"] == REDACTED
    assert turn.response.headers == {"content-type": "application/json"}
    assert turn.response.json()["content"][0]["text"] == f"It is {REDACTED}."
    assert turn.redacted == [
        "request.body.metadata.user_id",
        "request.body.messages.0.content: API key",
        "request.query_params.api_key",
        "request.headers.x-api-key",
        "request.headers.authorization",
        "request.headers.cookie",
        "response.headers.set-cookie",
        "response.body.content.0.text: API key",
    ]


def test_what_holds_no_credential_keeps_its_bytes() -> None:
    for response in (answered(b'{"a" : 1}'), answered(b"\xff not text"), streamed(sse(text("Hello you")))):
        turn = redact_turn(Turn("t1", asked("hi"), response))
        assert turn.redacted == []
        assert turn.response.content is response.content


def test_text_that_is_not_json_is_searched_too() -> None:
    request = Request("POST", "/v1/messages", {}, {}, None, f"{{cut {SECRET}")
    turn = redact_turn(Turn("t1", request, answered(f"oh {SECRET}\xff".encode("latin-1"), 500)))
    assert turn.request.text == f"{{cut {REDACTED}"
    assert turn.response.content.read() == b"oh [redacted]\xff"


def in_pieces(secret: str) -> list[str]:
    return ["My key is ", secret[:4], secret[4:9], secret[9:], " and ", "that is it."]


@pytest.mark.parametrize("secret", [*SECRETS.values(), *MORE_SECRETS.values()], ids=[*SECRETS, *MORE_SECRETS])
def test_a_secret_that_a_stream_spells_in_pieces_goes_whole(secret: str) -> None:
    response = streamed(sse(thinking("hm"), text(*in_pieces(secret))))
    turn = redact_turn(Turn("t1", asked("hi", stream=True), response))
    built = fold(turn.response.content.lines())
    assert built.message["content"][1]["text"] == f"My key is {REDACTED} and that is it."
    assert secret[4:9].encode() not in turn.response.content.read()
    assert len(turn.redacted) == 1
    assert turn.redacted[0].endswith("in block 1")


def test_a_secret_in_the_arguments_of_a_streamed_call() -> None:
    arguments = json.dumps({"url": f"https://example.org/?token={LETTERS}", "q": 1})
    response = streamed(sse(tool_use("fetch", [arguments[at : at + 5] for at in range(0, len(arguments), 5)])))
    turn = redact_turn(Turn("t1", asked("hi"), response))
    (block,) = fold(turn.response.content.lines()).message["content"]
    assert block["input"] == {"url": f"https://example.org/?token={REDACTED}", "q": 1}


def test_a_secret_outside_the_deltas_of_a_stream() -> None:
    stream = f'event: error\ndata: {{"type":"error","error":{{"message":"bad key {SECRET}"}}}}\n\n'.encode()
    turn = redact_turn(Turn("t1", asked("hi"), Response(200, {}, Spool(stream), True)))
    assert turn.response.content.read() == stream.replace(SECRET.encode(), REDACTED.encode())
    assert turn.redacted == ["response.sse.1: API key"]


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("before", range(245_000, 263_000, 3989))
def test_a_secret_anywhere_in_a_long_text(before: int, secret: str) -> None:
    around = ("word " * (before // 5 + 1))[:before] + " "
    said = f"{around}{secret} and {around}{secret} end"
    assert find_secrets(said) == [
        (start, start + len(secret), kind)
        for start, kind in zip(
            (len(around), 2 * len(around) + len(secret) + 5), [find_secrets(secret)[0][2]] * 2, strict=True
        )
    ]


def test_a_secret_longer_than_what_is_searched_at_once() -> None:
    said = f"{'word ' * 50_000}{SECRET}{'x' * 600_000} end"
    assert redact_text(said) == (f"{'word ' * 50_000}{REDACTED} end", ["API key"])
    pieces = [said[at : at + 4000] for at in range(0, len(said), 4000)]
    turn = redact_turn(Turn("t1", asked("hi"), streamed(sse(text(*pieces)))))
    assert fold(turn.response.content.lines()).message["content"][0]["text"] == f"{'word ' * 50_000}{REDACTED} end"
    assert turn.redacted == ["response.sse: API key in block 0"]


def test_redacting_twice_changes_nothing() -> None:
    once = redact_turn(Turn("t1", asked(SECRET, metadata={"user_id": "me"}), streamed(sse(text(*in_pieces(SECRET))))))
    assert redact_turn(once).redacted == once.redacted


def test_a_request_is_compared_as_it_would_be_recorded() -> None:
    assert redact_request_body({"metadata": {"user_id": "me"}, "messages": SECRET}) == {
        "metadata": {"user_id": REDACTED},
        "messages": REDACTED,
    }


def test_what_the_writer_wrote_passes_the_scan(tmp_path: Path) -> None:
    request = asked(SECRET, metadata={"user_id": "me"})
    request.headers = {"x-api-key": "k"}
    exchanges = [(request, streamed(sse(text(*in_pieces(SECRET))))), (request, answered(message(text(SECRET))))]
    path = write(tmp_path / "c.yaml", *exchanges, recorded={"how": f"record --extra-body {SECRET}"})
    assert list(scan(path)) == []
    assert SECRET.encode() not in path.read_bytes()
    assert Cassette(path).recorded() == {"how": f"record --extra-body {REDACTED}"}


def test_the_scan_finds_each_place_and_never_says_the_secret(tmp_path: Path) -> None:
    turn: dict[str, Any] = {
        "filename": "t1",
        "request": {
            "method": "POST",
            "path": "/v1/messages",
            "headers": {"x-api-key": "short"},
            "body": {"metadata": {"user_id": "me"}},
        },
        "response": {
            "status_code": 200,
            "sse": [line.decode() for line in streamed(sse(text(*in_pieces(SECRET)))).content.lines()],
        },
    }
    path = tmp_path / "c.yaml"
    path.write_text(f"# {SECRET}\n{json.dumps({'recorded': {'how': SECRET}, 'turns': [turn]})}\n")
    found = list(scan(path))
    assert found == [
        "line 1: API key",
        "line 2: API key",
        "recorded.how: API key",
        "t1: request.body.metadata.user_id",
        "t1: request.headers.x-api-key",
        "t1: response.sse: API key in block 0",
    ]
