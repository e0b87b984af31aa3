import pytest


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both event loops: their transports differ where it matters here (closing, errors, flow control)."""
    return "asyncio", {"use_uvloop": request.param}
