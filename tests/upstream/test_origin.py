import pytest

from gateway.errors import SettingsError
from gateway.upstream.origin import Origin, parse_origin


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://127.0.0.1:8000", Origin(False, "127.0.0.1", 8000, b"127.0.0.1:8000")),
        ("http://gpu-7", Origin(False, "gpu-7", 80, b"gpu-7")),
        ("http://gpu-7:80/", Origin(False, "gpu-7", 80, b"gpu-7")),
        ("https://models.example", Origin(True, "models.example", 443, b"models.example")),
        ("https://models.example:8443", Origin(True, "models.example", 8443, b"models.example:8443")),
        ("HTTP://GPU-7:8000", Origin(False, "gpu-7", 8000, b"gpu-7:8000")),
        ("http://[::1]:8000", Origin(False, "::1", 8000, b"[::1]:8000")),
        ("http://[2001:db8::7]", Origin(False, "2001:db8::7", 80, b"[2001:db8::7]")),
        ("http://bücher.example", Origin(False, "xn--bcher-kva.example", 80, b"xn--bcher-kva.example")),
    ],
)
def test_an_origin_is_read(url: str, origin: Origin) -> None:
    assert parse_origin(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "localhost:8000",
        "ftp://gpu-7",
        "http://",
        "http://gpu-7:port",
        "http://gpu-7:99999",
        "http://[::1",
        "http://gpu-7/v1",
        "http://gpu-7?x=1",
        "http://gpu-7#x",
        "http://user:secret@gpu-7",
        "http://" + "x" * 64 + ".example",
        "http://gpu 7",
        "http://gpu-7\r\nx: y",
    ],
)
def test_what_is_no_origin_is_a_settings_error(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_origin(url)
    assert str(caught.value).startswith("upstream: ")
    assert "secret" not in str(caught.value)
