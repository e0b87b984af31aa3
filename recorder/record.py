"""Records a scripted conversation: one request after the other, each a turn of the cassette."""

from collections.abc import Callable

import httpx

from recorder.capture import Capture
from recorder.cassette import Json, Request, Response, Turn, compact_json
from recorder.conversation import Conversation, Script
from recorder.errors import RecordingError, StreamError
from recorder.headers import recorded_headers
from recorder.messages import fold
from recorder.writer import CassetteWriter

PATH = "/v1/messages"


def record(script: Script, client: httpx.Client, writer: CassetteWriter, say: Callable[[Turn, str], None]) -> None:
    """Run the script. ``say`` is told of every turn, with what was wrong with its answer ("" if nothing was).

    Raises RecordingError where the upstream breaks off, or a tool has no output; what was recorded before stays.
    """
    conversation = Conversation(script)
    while (body := conversation.ask()) is not None:
        request, response = _exchange(client, body)
        turn = writer.append(request, response)
        message, problem = outcome(response)
        say(turn, problem)
        conversation.answer(message)


def outcome(response: Response) -> tuple[dict[str, Json] | None, str]:
    """The message of an answer, rebuilt from its events where it is a stream; else None, and why there is none."""
    if response.status_code != 200 or not response.is_stream:
        value = response.json()
        if response.status_code == 200 and isinstance(value, dict) and isinstance(value.get("content"), list):
            return value, ""
        return None, f"{response.status_code}: {_error_message(value)}"
    try:
        built = fold(response.content.lines())
    except StreamError as error:
        return None, str(error)
    if built.finished:
        return built.message, ""
    return None, _error_message({"error": built.error}) if built.error else "the stream ended before its message"


def _exchange(client: httpx.Client, body: dict[str, Json]) -> tuple[Request, Response]:
    request = client.build_request(
        "POST", PATH, content=compact_json(body), headers={"content-type": "application/json"}
    )
    capture = Capture()
    try:
        answer = client.send(request, stream=True)
        capture.head(answer.status_code, answer.headers.raw)
        for data in answer.iter_raw():
            capture.feed(data)
        answer.close()
    except httpx.TransportError as error:
        raise RecordingError(f"the upstream broke off: {type(error).__name__} {error}".rstrip()) from error
    return Request("POST", PATH, {}, recorded_headers(request.headers.raw), body), capture.finish()


def _error_message(value: Json) -> str:
    error = value.get("error") if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return str(message) if message else "no message"
