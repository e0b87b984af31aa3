"""What a search backend can do wrong: for each row of the table the answer that does it, as Brave's API would."""

import gzip
import json

from tests.support.upstream import Answer, chunk, head, json_answer, raw

RESULT = {"title": "Rust 1.89", "url": "https://example.com/rust", "description": "Rust is at 1.89."}
BODY = json.dumps({"type": "search", "web": {"type": "search", "results": [RESULT]}}).encode()
JSON = ("content-type", "application/json")
CHUNKED = head(200, [JSON, ("transfer-encoding", "chunked")])

REFUSES = "refuses the connection"
STALLS = ("stalls before its head", "stalls in the middle of its body")


def with_length(length: int) -> bytes:
    return head(200, [JSON, ("content-length", str(length))])


FAULTS: dict[str, Answer] = {
    REFUSES: raw(),  # nobody will ask for it
    "closes before its head": raw(then="close"),
    "resets before its head": raw(then="reset"),
    "stalls before its head": raw(then="stall"),
    "sends what is not HTTP": raw(b"220 smtp.example.com ESMTP\r\n\r\n"),
    "answers 401": json_answer({}, 401),
    "answers 429": json_answer({}, 429),
    "answers 429 with Retry-After": json_answer({}, 429, [("retry-after", "7")]),
    "answers 500": json_answer({}, 500),
    "answers 529 with a page": json_answer(b"<html>", 529, [("content-type", "text/html")]),
    "answers 302": json_answer({}, 302, [("location", "http://127.0.0.1:1/")]),
    "answers 200 with a page": json_answer(b"<html>", 200, [("content-type", "text/html")]),
    "answers 200 with nothing": json_answer(b""),
    "answers 200 with a list": json_answer([1, 2]),
    "names gzip and sends none": json_answer(BODY, headers=[("content-encoding", "gzip")]),
    "closes in the middle of its body": raw(CHUNKED + chunk(BODY[:40]), 0.01, then="close"),
    "resets in the middle of its body": raw(CHUNKED + chunk(BODY[:40]), 0.01, then="reset"),
    "stalls in the middle of its body": raw(CHUNKED + chunk(BODY[:40]), then="stall"),
    "names a content-length that is too large": raw(with_length(len(BODY) + 10) + BODY, then="close"),
    "names a content-length that is too small": raw(with_length(40) + BODY),
    "sends a chunk size that is none": raw(CHUNKED + b"zz\r\n"),
    "sends invalid UTF-8": json_answer(BODY.replace(b"1.89.", b"\xff\xfe")),
    "sends 9 MB": json_answer(BODY + b" " * 9_000_000),
    "sends gzip": json_answer(gzip.compress(BODY), headers=[("content-encoding", "gzip")]),
    "sends gzip packed in gzip": json_answer(
        gzip.compress(gzip.compress(BODY)), headers=[("content-encoding", "gzip, gzip")]
    ),
    "sends gzip that is cut": json_answer(gzip.compress(BODY)[:-9], headers=[("content-encoding", "gzip")]),
    "sends a result that is none beside one that is": json_answer(BODY.replace(b"[", b'[{"title": 5}, 7, ')),
    "sends half a surrogate pair": json_answer(BODY.replace(b"Rust 1.89", b"Rust \\ud83e 1.89")),
    "sends every byte by itself": raw(CHUNKED, *[chunk(bytes([byte])) for byte in BODY], b"0\r\n\r\n", then="keep"),
    "ends its body by closing": raw(head(200, [JSON]) + BODY, then="close"),
    "closes the connection between two searches": raw(with_length(len(BODY)) + BODY, then="close"),
}
