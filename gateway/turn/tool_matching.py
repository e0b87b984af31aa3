"""Looking through deferred tools: by words (BM25), and by a regular expression.

Both look at a tool's name, its description, and the names and descriptions of its arguments, as Anthropic's tool
searches do. The expression is the model's, so it runs on RE2, whose time grows with the text alone, whatever the
expression; it takes Python's syntax less look-around and back-references.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

MAX_PATTERN_CHARS = 200
MAX_FIELD_CHARS = 10_000
"""So much of one description is looked through: what bounds the time that one look can take."""

K1, B = 1.5, 0.75
_WORD = re.compile(r"[^\W_]+")
_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class BadPattern(ValueError):
    """The pattern cannot be used; the message says why."""


class OutOfTime(Exception):
    """The search took longer than it may."""


def by_words(
    query: str, tools: Sequence[dict[str, Any]], limit: int, out_of_time: Callable[[], bool] = lambda: False
) -> list[str]:
    """The names of the ``limit`` tools that fit the words of ``query`` best, the best first; [] where none fits.

    ``out_of_time`` is asked before each tool is read. Raises :class:`OutOfTime`.
    """
    scored = [(-score, place) for place, score in enumerate(scores(query, tools, out_of_time)) if score > 0]
    return [tools[place]["name"] for _, place in sorted(scored)[:limit]]


def by_pattern(
    pattern: str, tools: Sequence[dict[str, Any]], limit: int, out_of_time: Callable[[], bool] = lambda: False
) -> list[str]:
    """The names of the first ``limit`` tools, in the order of ``tools``, in which ``pattern`` is found.

    ``out_of_time`` is asked before each look at a text. Raises :class:`BadPattern`, :class:`OutOfTime`.
    """
    expression = _compiled(pattern)
    found: list[str] = []
    for tool in tools:
        for field in fields(tool):
            if out_of_time():
                raise OutOfTime
            if expression.search(field[:MAX_FIELD_CHARS]):
                found.append(tool["name"])
                break
        if len(found) == limit:
            break
    return found


def fields(tool: dict[str, Any]) -> Iterator[str]:
    """The texts of a tool that a search looks at."""
    schema = tool.get("input_schema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    texts = [tool["name"], tool.get("description")]
    for name, argument in properties.items() if isinstance(properties, dict) else ():
        texts += [name, argument.get("description") if isinstance(argument, dict) else None]
    return (text for text in texts if isinstance(text, str))


def scores(query: str, tools: Sequence[dict[str, Any]], out_of_time: Callable[[], bool] = lambda: False) -> list[float]:
    """How well each tool fits ``query``: Okapi BM25 with Lucene's weight of a word, which is never negative."""
    documents: list[Counter[str]] = []
    for tool in tools:
        if out_of_time():
            raise OutOfTime
        documents.append(Counter(word for field in fields(tool) for word in words(field)))
    lengths = [document.total() for document in documents]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    totals = [0.0] * len(tools)
    for word in words(query):
        holders = [place for place, document in enumerate(documents) if word in document]
        weight = math.log(1 + (len(documents) - len(holders) + 0.5) / (len(holders) + 0.5))
        for place in holders:
            count = documents[place][word]
            totals[place] += weight * count / (count + K1 * (1 - B + B * lengths[place] / average))
    return totals


def words(text: str) -> Iterator[str]:
    """The words of a text in lower case; ``get_weather`` and ``getWeather`` are two each."""
    for part in _WORD.findall(text):
        for word in _CASE.split(part):
            yield word.casefold()


def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise BadPattern(f"the pattern is longer than {MAX_PATTERN_CHARS} characters")
    import re2  # 3 MB, for the few who declare a search by pattern

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (reason,) = error.args
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(f"the pattern cannot be used: {said}") from None
