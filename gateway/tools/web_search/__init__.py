"""The web search tool and its backends, one file a provider."""

from gateway.tools.web_search.factory import make_backend, make_search
from gateway.tools.web_search.tool import WebSearch

__all__ = ["WebSearch", "make_backend", "make_search"]
