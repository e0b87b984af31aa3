"""Two recordings of one conversation: do they differ in more than ids, times and signatures?"""

from collections.abc import Iterator
from itertools import zip_longest

from recorder.cassette import Cassette, Json, Turn, parse_json
from recorder.matching import Difference, differences, normalise
from recorder.messages import delta_text, read_events, with_delta_text

SAME = "the same but for ids, times and signatures"


def diff(left: Cassette, right: Cassette) -> Iterator[Difference]:
    """Where they differ otherwise. Raises CassetteError.

    Where a stream's text was cut into deltas is a matter of time, so adjacent deltas of a block count as one.
    """
    for number, (one, other) in enumerate(zip_longest(left, right), start=1):
        where = f"turns.{number}"
        yield from differences(_comparable(one), _comparable(other), where)


def _comparable(turn: Turn | None) -> Json:
    if turn is None:
        return None
    request, response = turn.request, turn.response
    asked = normalise(request.method, request.path, request.query_params, request.text or request.body)
    answer = list(_events(turn)) if response.is_stream else _without_ids(response.json())
    return {
        "request": asked,
        "response": {"status_code": response.status_code, "sse" if response.is_stream else "body": answer},
    }


def _events(turn: Turn) -> Iterator[Json]:
    """The stream's events as JSON values, deltas that add to one another joined."""
    held: dict[str, Json] | None = None
    texts: list[str] = []
    for event in read_events(turn.response.content.lines()):
        data = parse_json(event.data.encode())
        delta = delta_text(data)
        if held is not None and (delta is None or (delta[0], data["delta"]["type"]) != _kind(held)):
            yield with_delta_text(held, "".join(texts))
            held, texts = None, []
        if delta is None:
            yield _without_ids(event.data if data is None else data)
        else:
            held = held or data
            texts.append(delta[1])
    if held is not None:
        yield with_delta_text(held, "".join(texts))


def _kind(event: dict[str, Json]) -> tuple[int, str]:
    return event["index"], event["delta"]["type"]


def _without_ids(value: Json) -> Json:
    """An answer, or an event of one, without what every run makes anew."""
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key not in ("id", "signature", "created")}
    for key in ("message", "content_block", "delta"):
        if isinstance(kept.get(key), dict):
            kept[key] = _without_ids(kept[key])
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [_without_ids(block) for block in content]
    return kept
