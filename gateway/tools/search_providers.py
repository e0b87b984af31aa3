"""Who can answer ``web_search``: one row each, which the settings, the factory and the doctor go by.

A backend is its file in ``gateway/tools/web_search/`` and its row here. The file is imported only where its provider is
chosen, so that the gateway starts quickly: the row names the class.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Address(Enum):
    """What ``--search-base-url`` is to a provider."""

    NONE = auto()
    """It has no endpoint to be asked at."""
    REPLACED = auto()
    """It has a public endpoint; the setting replaces its scheme, host and port, and can put a path before its own."""
    REQUIRED = auto()
    """Everybody runs an instance of their own."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One row.

    ``backend`` is the module below ``gateway.tools.web_search`` and the class in it, as in ``brave:BraveSearch``.
    The class takes ``api_key`` where ``needs_key``, and ``origin`` unless ``address`` is NONE.
    """

    backend: str
    needs_key: bool = False
    address: Address = Address.REPLACED


PROVIDERS = {
    "ddgs": Provider("ddgs:DdgsSearch", address=Address.NONE),
    "searxng": Provider("searxng:SearxngSearch", address=Address.REQUIRED),
    "brave": Provider("brave:BraveSearch", needs_key=True),
    "tavily": Provider("tavily:TavilySearch", needs_key=True),
    "exa": Provider("exa:ExaSearch", needs_key=True),
    "you": Provider("you:YouSearch", needs_key=True),
}
"""By the name that ``--search-provider`` takes; the first is the default, and needs nothing."""

DEFAULT_PROVIDER = next(iter(PROVIDERS))
