"""The server under the application."""

import sys

# structlog and httpx load rich where it is installed, the one to draw tracebacks, the other for its command line: 3 MB
# of an idle gateway, for what a server never does. To the import system None stands for a module that is not there.
_loaded = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]
import httpx  # noqa: E402, F401
import structlog  # noqa: E402, F401

if _loaded is None:
    del sys.modules["rich"]
else:
    sys.modules["rich"] = _loaded
