"""The web search tool and its backends, one file a provider."""

from gateway.tools.web_search.factory import PROVIDERS, make_backend
from gateway.tools.web_search.text import NO_RESULTS
from gateway.tools.web_search.tool import WebSearch

__all__ = ["NO_RESULTS", "PROVIDERS", "WebSearch", "make_backend"]
