"""Whether the search backend answers: one real search."""

import asyncio

from gateway.commands.doctor.check import Check
from gateway.errors import SettingsError
from gateway.settings import Settings
from gateway.tools.base import Cause, SearchFailed, SearchQuery
from gateway.tools.web_search import make_backend

QUERY = "latest stable Rust release"

_NEW_KEY = "export GATEWAY_SEARCH_API_KEY=…"
_FIXES = {
    Cause.KEY_REJECTED: f"{_NEW_KEY} with a key that {{provider}} accepts",
    Cause.QUOTA_SPENT: f"{_NEW_KEY} with a key that has searches left, or --search-provider ddgs, which needs none",
    Cause.RATE_LIMITED: "try again in a minute, or choose another with --search-provider",
    Cause.UNREACHABLE: "is there a way out to the internet? HTTPS_PROXY and --search-base-url are heeded",
    Cause.FORMAT_DISABLED: "add json to search.formats in SearXNG's settings.yml, and restart it",
    Cause.ENGINES_SILENT: "look at the engines of your SearXNG: some do not answer it",
    Cause.TIMED_OUT: "try again, allow more with --tool-timeout-s, or choose another with --search-provider",
}
_ELSE = "choose another with --search-provider"


async def examine_search(settings: Settings) -> Check:
    """Search once, as the gateway would."""
    provider = settings.search_provider
    key = settings.search_api_key
    try:
        backend = make_backend(
            provider, base_url=settings.search_base_url, api_key=key.get_secret_value() if key else None
        )
    except SettingsError as error:
        problem, _, fix = str(error).partition(": ")
        return Check("search", "problem", problem, fix or None)
    try:
        async with asyncio.timeout(settings.tool_timeout_s):
            found = await backend.search(SearchQuery(QUERY, settings.search_max_results))
    except (SearchFailed, TimeoutError) as error:
        cause = error.cause if isinstance(error, SearchFailed) else Cause.TIMED_OUT
        what = cause.name.lower().replace("_", " ")
        return Check("search", "problem", f"{provider}: {what}", _FIXES.get(cause, _ELSE).format(provider=provider))
    finally:
        await backend.aclose()
    if not found:
        return Check("search", "note", f"{provider} answers, and found nothing for {QUERY!r}", _ELSE)
    return Check("search", "ok", f"{provider} answers: {len(found)} results for {QUERY!r}")
