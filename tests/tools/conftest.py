from collections.abc import Iterator

import httpx
import pytest


@pytest.fixture(autouse=True, scope="session")
def one_tls_context() -> Iterator[None]:
    """A client loads the certificates of the world, 20 ms each time: the hundreds of this folder share them."""
    context = httpx.create_ssl_context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", lambda **_: context)
        yield
