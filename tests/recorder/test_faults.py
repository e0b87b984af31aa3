import pytest

from recorder.errors import RecorderError
from recorder.faults import Fault, malform, parse_fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cut:3", Fault("cut", 3)),
        ("stall:0@t2", Fault("stall", 0, "t2")),
        ("malformed:1", Fault("malformed", 1)),
        ("status:529", Fault("status", 529)),
        ("slow:0.5@my turn", Fault("slow", 0.5, "my turn")),
    ],
)
def test_faults_as_they_are_typed(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize("text", ["", "cut", "cut:", "cut:x", "cut:-1", "bend:3", "cut:1.5", "status:200", "cut:3@"])
def test_faults_that_are_none(text: str) -> None:
    with pytest.raises(RecorderError):
        parse_fault(text)


def test_a_malformed_event_still_ends_as_one() -> None:
    assert malform(b'event: ping\ndata: {"type":"ping"}\n\n') == b'event: ping\ndata: {"type"\n\n'
