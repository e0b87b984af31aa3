"""What the model is told where there is no result text of a call's own: one fixed sentence per case.

A native result that has nothing to seal comes back from the client without its text, so the sentence has to follow
from what the client can see (an error code, an empty list). Changing one changes the prompts of running conversations.
"""

from gateway.turn.tool import ErrorCode

NO_RESULTS = "No results found."

NO_SEARCH_LEFT = "No search is left in this turn: answer with what you have."
"""Ends the results before the last allowed round."""

ERROR_SENTENCES: dict[ErrorCode, str] = {
    "invalid_tool_input": "The search was not run: its input must be a JSON object with a non-empty string `query`.",
    "query_too_long": "The search was not run: the query is longer than 1000 characters.",
    "max_uses_exceeded": "The search was not run: no search is left for this request.",
    "too_many_requests": "The search failed: too many requests. Try again later, or answer without it.",
    "request_too_large": "The search failed: the request was too large. Try a shorter query.",
    "unavailable": "The search failed: the search service is unavailable.",
}


def error_sentence(code: object) -> str:
    """The sentence for a native error ``code``; one that is not Anthropic's reads as ``unavailable``."""
    for known, sentence in ERROR_SENTENCES.items():
        if known == code:
            return sentence
    return ERROR_SENTENCES["unavailable"]
