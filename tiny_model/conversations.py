"""The conversations the model learns from: what is asked, what it thinks, calls and answers.

What the model has to copy stands after the same character everywhere (a name after a space, a file list after a line
break), so that it is the same tokens everywhere: copying those is one thing to learn, other forms would be one a word.

A conversation is a system prompt, some tools, and one or more scenes. Each scene begins with a user message and ends
with the model's answer. Messages have the shape that a chat template reads (role, content, reasoning, tool_calls).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tiny_model import world
from tiny_model.world import Release

Message = dict[str, Any]
Tool = dict[str, Any]
Scene = Callable[[Random, str], list[Message]]


@dataclass(frozen=True, slots=True)
class Conversation:
    """``thinking`` False is a request that turned thinking off: no message has a reasoning then."""

    tools: list[Tool]
    messages: list[Message]
    thinking: bool


def some_conversation(rng: Random, longest: int = 5, weights: Mapping[Scene, float] | None = None) -> Conversation:
    """One conversation, of one to five scenes, and no more than ``longest``; ``weights`` says how often each comes."""
    weights = SCENES if weights is None else weights
    thinking = rng.random() < 0.9
    search, command = rng.choice(("web_search",) * 3 + ("WebSearch",)), "Bash"
    messages: list[Message] = []
    if rng.random() < 0.4:
        messages.append({"role": "system", "content": world.system_prompt(rng)})
    if rng.random() < 0.08:
        tools: list[Tool] = []
        messages += rng.choice((_greeting, _no_way_to_search))(rng, search)
    else:
        scenes = rng.choices(
            list(weights), weights=list(weights.values()), k=min(longest, rng.choice((1,) * 10 + (2, 2, 3, 4, 5)))
        )
        needs_command = any(scene in (_command, _search_and_command) for scene in scenes)
        tools = _tools(rng, search, command, needs_command)
        for scene in scenes:
            messages += scene(rng, search)
    if not thinking:
        messages = [{key: value for key, value in m.items() if key != "reasoning"} for m in messages]
    return Conversation(tools, messages, thinking)


def _tools(rng: Random, search: str, command: str, needs_command: bool) -> list[Tool]:
    descriptions = (
        "Search the web.",
        "Search the web for current information.",
        "Searches the web and returns titles, URLs, dates and snippets.",
        "Search the web. Returns a numbered list of results.",
        world.system_prompt(rng),
    )
    optional: tuple[str, ...] = rng.choice(((), (), ("allowed_domains", "blocked_domains")))
    tools = [_function(search, rng.choice(descriptions), "query", *optional)]
    if needs_command or rng.random() < 0.3:
        optional = rng.choice(((), ("description",), ("timeout", "description")))
        tools.append(_function(command, rng.choice(("Run a command.", "Run a shell command.")), "command", *optional))
    if rng.random() < 0.15:
        other = rng.choice(("Read", "Write", "get_weather", "WebFetch", "lookup"))
        tools.append(_function(other, world.system_prompt(rng), rng.choice(("path", "url", "city", "prompt"))))
    rng.shuffle(tools)
    return tools


def _function(name: str, description: str, *arguments: str) -> Tool:
    parameters = {"type": "object", "properties": {argument: {"type": "string"} for argument in arguments}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _said(text: str) -> Message:
    return {"role": "tool", "content": text}


def _model(reasoning: str, content: str = "", calls: tuple[Message, ...] = ()) -> Message:
    return {"role": "assistant", "reasoning": reasoning, "content": content, "tool_calls": list(calls)}


def _call(name: str, **arguments: str) -> Message:
    return {"function": {"name": name, "arguments": arguments}}


def _query(product: str) -> str:
    return f"latest stable {product} release"


def _maybe_doubt(rng: Random, *found: Release) -> list[Message]:
    if rng.random() < 0.7:
        return []
    facts = " and ".join(f"{release.product} {release.version}" for release in found)
    return [_user("Are you sure?"), _model(f"The search found {facts}.", f"Yes, I am sure: {facts}.")]


def _one_search(rng: Random, search: str) -> list[Message]:
    (release,) = world.some_releases(rng, 1)
    product = release.product
    query = _query(product)
    asked = rng.choice(
        (
            f"What is the latest stable {product} release?",
            f"What is the latest stable {product} release?",
            f"What is the latest stable {product} release? Use {search}.",
            f"What is the latest {product} release?",
            f"Which version of {product} is the latest?",
            f"Search the web: latest {product} release",
            f"Perform a web search for the query: {query}",
            f"Perform a web search for the query: {query}",
        )
    )
    return [
        _user(asked),
        _model(
            f"The user wants the latest {product} release. I will search the web.", calls=(_call(search, query=query),)
        ),
        _said(rng.choice((world.result_text,) * 9 + (world.last_result_text,))(rng, query, release)),
        _model(
            f"The search found {product} {release.version}.",
            f"According to the search, {product} {release.version} is the latest stable release.",
        ),
        *_maybe_doubt(rng, release),
    ]


def _two_searches_at_once(rng: Random, search: str) -> list[Message]:
    one, two = world.some_releases(rng, 2)
    asked = rng.choice(
        (
            f"Compare the latest stable releases of {one.product} and {two.product}.",
            f"Compare the latest stable releases of {one.product} and {two.product}.",
            f"What are the latest stable releases of {one.product} and {two.product}?",
        )
    )
    calls = tuple(_call(search, query=_query(release.product)) for release in (one, two))
    return [
        _user(asked),
        _model(f"The user wants {one.product} and {two.product}. I will search for both at once.", calls=calls),
        *(_said(result) for result in _two_results(rng, one, two)),
        *_both_answered(rng, one, two),
    ]


def _one_search_after_the_other(rng: Random, search: str) -> list[Message]:
    one, two = world.some_releases(rng, 2)
    first, second = (_call(search, query=_query(release.product)) for release in (one, two))
    begun = [
        _user(f"Find the latest {one.product} release, then the latest {two.product} release."),
        _model(f"I will look for {one.product} first, then for {two.product}.", "Let me look. ", (first,)),
    ]
    if rng.random() < 0.15:
        return [
            *begun,
            _said(world.last_result_text(rng, _query(one.product), one)),
            _model(
                f"The search found {one.product} {one.version}. No search is left for {two.product}.",
                f"I found {one.product} {one.version}. I could not look up {two.product}.",
            ),
        ]
    first_result, second_result = _two_results(rng, one, two)
    return [
        *begun,
        _said(first_result),
        _model(f"The search found {one.product} {one.version}. Now {two.product}.", calls=(second,)),
        _said(second_result),
        *_both_answered(rng, one, two),
    ]


def _two_results(rng: Random, one: Release, two: Release) -> tuple[str, str]:
    """What the two searches found: each its own product, or now and then both the same pages, about both."""
    if rng.random() < 0.25:
        text = world.result_text(rng, _query(one.product), one, two)
        return text, text
    return world.result_text(rng, _query(one.product), one), world.result_text(rng, _query(two.product), two)


def _both_answered(rng: Random, one: Release, two: Release) -> list[Message]:
    return [
        _model(
            f"The searches found {one.product} {one.version} and {two.product} {two.version}.",
            f"The latest stable releases are {one.product} {one.version} and {two.product} {two.version}.",
        ),
        *_maybe_doubt(rng, one, two),
    ]


def _search_that_fails(rng: Random, search: str) -> list[Message]:
    (release,) = world.some_releases(rng, 1)
    product = release.product
    return [
        _user(f"What is the latest stable {product} release?"),
        _model(
            f"The user wants the latest {product} release. I will search the web.",
            calls=(_call(search, query=_query(product)),),
        ),
        _said(world.failure_text(rng)),
        _model("The search found nothing.", f"I could not find the latest {product} release."),
    ]


def _command(rng: Random, search: str) -> list[Message]:
    listing = world.file_listing(rng)
    return [
        _user(rng.choice(("List the files.", "Run ls.", "Run ls."))),
        _model("The user wants a command. I will run ls.", calls=(_call("Bash", command="ls"),)),
        _said(listing),
        _model("The command has run.", f"The files:\n{listing}"),
    ]


def _search_and_command(rng: Random, search: str) -> list[Message]:
    (release,) = world.some_releases(rng, 1)
    product, listing = release.product, world.file_listing(rng)
    query = _query(product)
    return [
        _user(
            rng.choice(
                (
                    f"Find the latest {product} release and run ls.",
                    f"Find the latest {product} release and list the files.",
                )
            )
        ),
        _model(
            f"The user wants {product} and a command. I will do both at once.",
            calls=(_call(search, query=query), _call("Bash", command="ls")),
        ),
        _said(world.result_text(rng, query, release)),
        _said(listing),
        _model(
            f"The search found {product} {release.version}. The command has run.",
            f"I found {product} {release.version}. The files:\n{listing}",
        ),
    ]


def _greeting(rng: Random, search: str) -> list[Message]:
    if rng.random() < 0.2:
        return [_user(rng.choice(("Thanks!", "Thank you."))), _model("The user says thanks.", "You are welcome!")]
    return [
        _user(rng.choice(("hello", "Hello!", "hi", "Say hello."))),
        _model("The user says hello.", "Hello! What shall I look up for you?"),
    ]


def _no_way_to_search(rng: Random, search: str) -> list[Message]:
    (release,) = world.some_releases(rng, 1)
    product = release.product
    return [
        _user(rng.choice((f"What is the latest stable {product} release?", f"What is the latest {product} release?"))),
        _model(f"The user wants the latest {product} release. I have no tool.", "I cannot search the web here."),
    ]


SCENES: dict[Scene, float] = {
    _one_search: 0.38,
    _two_searches_at_once: 0.15,
    _one_search_after_the_other: 0.15,
    _search_and_command: 0.10,
    _command: 0.08,
    _search_that_fails: 0.06,
    _greeting: 0.08,
}
"""What a scene may be, and how often."""

HARD_SCENES: dict[Scene, float] = {
    _one_search: 0.20,
    _two_searches_at_once: 0.25,
    _one_search_after_the_other: 0.25,
    _search_and_command: 0.15,
    _command: 0.08,
    _search_that_fails: 0.03,
    _greeting: 0.04,
}
"""The same, with more of those that have two things to keep apart."""
