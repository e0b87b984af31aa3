"""How addresses are written, whether anybody is at one, and that a gateway started beside nobody says so."""

import signal
import socket
from pathlib import Path

import pytest

from gateway.server.reach import address_of, listens, origin_at
from tests.support.programs import free_port, messages_gateway


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("http://[::1]:8000", ("::1", 8000)),
        ("http://models", ("models", 80)),
        ("https://models", ("models", 443)),
    ],
)
def test_the_address_of_an_origin(origin: str, address: tuple[str, int]) -> None:
    assert address_of(origin) == address


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8000", "http://[::1]:8000"])
def test_the_origin_at_an_address(origin: str) -> None:
    assert origin_at(*address_of(origin)) == origin


def test_somebody_and_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert listens(origin)
    assert not listens(origin)


def test_serve_says_at_once_that_upstream_is_not_there(tmp_path: Path) -> None:
    with messages_gateway("serve", "--port=0", f"--upstream=http://127.0.0.1:{free_port()}", path=tmp_path) as gateway:
        gateway.says("nothing answers at upstream: .* is --upstream its address")
        gateway.says("listening")  # it may yet come
        gateway.process.send_signal(signal.SIGTERM)
        gateway.end()
