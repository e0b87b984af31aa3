import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """What a test does to the log of the process is undone."""
    names = ("uvicorn.error", "asyncio")
    before = [(logging.getLogger(name), dict(vars(logging.getLogger(name)))) for name in names]
    last = logging.lastResort
    yield
    logging.lastResort = last
    structlog.reset_defaults()
    for logger, state in before:
        logger.handlers, logger.propagate, logger.level = state["handlers"], state["propagate"], state["level"]
        logger.manager._clear_cache()  # type: ignore[attr-defined]
