"""What an error tells a client beside its message."""

import inspect

import pytest

from gateway import errors
from gateway.errors import RequestError, UpstreamStreamError, UpstreamTimeout

WITH_MORE_TO_SAY: dict[type[RequestError], RequestError] = {
    UpstreamStreamError: UpstreamStreamError("api_error", "no"),
    UpstreamTimeout: UpstreamTimeout("no", stage="idle"),
}
MENDED_BY_TIME = {429, 500, 502, 504, 529}


def every_error() -> list[RequestError]:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, RequestError)]
    assert len(kinds) > 10
    return [WITH_MORE_TO_SAY.get(kind) or kind("no") for kind in kinds]


@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
def test_a_client_is_told_where_asking_again_cannot_mend_it(error: RequestError) -> None:
    """Claude Code tries again up to ten times, unless it is told not to."""
    advice = () if error.status in MENDED_BY_TIME else ((b"x-should-retry", b"false"),)
    assert error.advice == advice
