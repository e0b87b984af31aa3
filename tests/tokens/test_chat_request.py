"""What vLLM's chat endpoint is asked for a Messages request."""

from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.tokens.chat_request import chat_request
from gateway.tokens.fields import TokenFields

IDS = TokenFields(return_token_ids=True)
SEARCH = {"name": "web_search", "description": "Search.", "input_schema": {"type": "object", "properties": {}}}


def ask(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"model": "qwen3", "max_tokens": 100, "messages": list(messages) or [user("hello")], **more}
    return chat_request(body, IDS, stream=False)


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": blocks[0] if isinstance(blocks[0], str) else list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}


def test_a_plain_question() -> None:
    assert ask(temperature=0, top_p=0.9, top_k=5, stop_sequences=["x"], metadata={"user_id": "u"}) == {
        "model": "qwen3",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 100,
        "max_completion_tokens": 100,
        "temperature": 0,
        "top_p": 0.9,
        "top_k": 5,
        "stop": ["x"],
        "tool_choice": None,
        "return_token_ids": True,
    }


def test_what_the_answer_shall_carry() -> None:
    asked = chat_request(
        {"model": "qwen3", "max_tokens": 5, "messages": [user("hello")]},
        TokenFields(return_logprob=True, include_stop_str_in_output=True),
        stream=True,
    )

    assert asked["return_token_ids"] is True
    assert (asked["logprobs"], asked["top_logprobs"]) == (True, 0)
    assert asked["include_stop_str_in_output"] is True
    assert asked["stream"] is True
    assert asked["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_the_system_prompt_is_one_text_without_the_billing_header() -> None:
    system = [text("x-anthropic-billing-header: cch=1;"), text("Be terse."), text(" Very.")]

    assert ask(system=system)["messages"][0] == {"role": "system", "content": "Be terse. Very."}
    assert ask(system="Be terse.")["messages"][0] == {"role": "system", "content": "Be terse."}
    assert ask(system=[text("x-anthropic-billing-header: cch=1;")])["messages"] == [
        {"role": "user", "content": "hello"}
    ]


def test_system_messages_stay_where_they_stand() -> None:
    messages = ask(
        user("hello"),
        {"role": "system", "content": "Be kind."},
        {"role": "system", "content": [text("x-anthropic-billing-header: cch=1;")]},
        user("Run ls."),
    )["messages"]

    assert messages == [
        {"role": "user", "content": "hello"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Run ls."},
    ]


def test_a_round_of_thinking_text_and_a_call() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "web_search", "input": {"query": "größe"}}
    thinking = {"type": "thinking", "thinking": "Search.", "signature": "s"}

    assert ask(user("q"), assistant(thinking, text("Let me look."), call))["messages"][1] == {
        "role": "assistant",
        "reasoning": "Search.",
        "content": "Let me look.",
        "tool_calls": [
            {
                "id": "toolu_1",
                "type": "function",
                "function": {"name": "web_search", "arguments": '{"query": "gr\\u00f6\\u00dfe"}'},
            }
        ],
    }


def test_an_assistant_message_without_anything_visible_stays() -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}

    assert ask(user("q"), assistant(redacted, text("")))["messages"][1] == {"role": "assistant"}


def test_results_come_before_the_words_beside_them() -> None:
    messages = ask(user("q"), user(text("Try again."), result("timed out")))["messages"]

    assert messages[1:] == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": "timed out"},
        {"role": "user", "content": "Try again."},
    ]


def test_a_result_of_blocks_is_lines_then_images_then_references() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x/1.png"}}
    empty = {"type": "image", "source": {"type": "url"}}
    reference = {"type": "tool_reference", "tool_name": "Bash"}

    assert ask(user(result([text("one"), image, empty, text("two"), reference])))["messages"] == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": "one\ntwo"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/1.png"}}]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": [{"type": "tool_reference", "name": "Bash"}]},
    ]


def test_a_result_in_an_assistant_message_is_text() -> None:
    assert ask(user("q"), assistant(result("found")))["messages"][1]["content"] == "Tool result: found"
    assert ask(user("q"), assistant(result(None)))["messages"][1]["content"] == "Tool result: "


def test_images_are_urls() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}

    assert ask(user(image, text("What is it?")))["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "text", "text": "What is it?"},
            ],
        }
    ]


def test_a_tool_is_declared_with_every_key_that_a_template_may_show() -> None:
    untyped = {"name": "Bash", "input_schema": {"properties": {}}, "strict": True}

    assert [tool["function"] for tool in ask(tools=[SEARCH, untyped])["tools"]] == [
        {
            "name": "web_search",
            "description": "Search.",
            "parameters": {"type": "object", "properties": {}},
            "strict": None,
            "defer_loading": None,
        },
        {
            "name": "Bash",
            "description": None,
            "parameters": {"properties": {}, "type": "object"},
            "strict": True,
            "defer_loading": None,
        },
    ]


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (None, {"tool_choice": "auto"}),
        ({"type": "auto"}, {"tool_choice": "auto", "parallel_tool_calls": True}),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        ({"type": "none"}, {"tool_choice": "none", "parallel_tool_calls": True}),
        (
            {"type": "tool", "name": "web_search"},
            {"tool_choice": {"type": "function", "function": {"name": "web_search"}}, "parallel_tool_calls": True},
        ),
    ],
)
def test_tool_choice(given: Any, asked: dict[str, Any]) -> None:
    request = ask(tools=[SEARCH], tool_choice=given)

    assert {key: request[key] for key in ("tool_choice", "parallel_tool_calls") if key in request} == asked


def test_without_tools_the_choice_is_null_and_no_empty_list_goes_out() -> None:
    for request in (ask(), ask(tools=[]), ask(tool_choice={"type": "auto"})):
        assert request["tool_choice"] is None
        assert "tools" not in request


def test_tools_change_along_the_conversation() -> None:
    later = {"name": "Later", "input_schema": {"type": "object"}, "defer_loading": True}
    fetch = {"name": "Fetch", "input_schema": {"type": "object"}}
    changes = [
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "web_search"}},
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "Later"}},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": fetch}},
    ]
    request = ask(user("q"), {"role": "system", "content": changes}, tools=[SEARCH, later])

    assert [(tool["function"]["name"], tool["function"]["defer_loading"]) for tool in request["tools"]] == [
        ("Later", None),
        ("Fetch", None),
    ]


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}, {"thinking_token_budget": 1024}),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, {"reasoning_effort": "none"}),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, {"reasoning_effort": "high"}),
        ({"thinking": {"type": "adaptive"}}, {}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "json_schema", "schema": {"type": "object"}},
                }
            },
        ),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"chat_template_kwargs": {"enable_thinking": False}}),
        ({"cache_salt": "salt", "vllm_xargs": {"a": 1}}, {"cache_salt": "salt", "vllm_xargs": {"a": 1}}),
    ],
)
def test_thinking_output_and_vllms_own(given: dict[str, Any], asked: dict[str, Any]) -> None:
    usual = {"model", "messages", "max_tokens", "max_completion_tokens", "tool_choice", "return_token_ids"}

    assert {key: value for key, value in ask(**given).items() if key not in usual} == asked


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"max_tokens": 0}, "max_tokens: must be positive"),
        ({"max_tokens": "many"}, "max_tokens: Expected `int`, got `str`"),
        ({"model": ""}, "model: must not be empty"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: Invalid enum value 'tool'"),
        ({"messages": [user({"type": "document"})]}, "messages.0.content.0.type: Invalid enum value 'document'"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.input_schema: required"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name: required"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "thinking.budget_tokens: must be at least 1024"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            "thinking.budget_tokens: must be less than max_tokens",
        ),
        ({"messages": [user({"type": "tool_removal"})]}, "messages.0.content.0: tool_removal blocks belong to"),
        (
            {"messages": [{"role": "system", "content": [{"type": "tool_addition"}]}]},
            "messages.0.content.0.tool: required",
        ),
        (
            {
                "messages": [
                    {
                        "role": "system",
                        "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Bash"}}],
                    }
                ]
            },
            "messages: a tool_removal names 'Bash', which tools does not declare",
        ),
        (
            {
                "messages": [
                    {
                        "role": "system",
                        "content": [
                            {"type": "tool_removal", "tool": {"type": "tool_definition", "definition": SEARCH}}
                        ],
                    }
                ]
            },
            "messages.0.content.0.tool: a tool_removal takes a tool_reference",
        ),
    ],
)
def test_what_vllm_would_refuse_is_refused(body: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat_request({"model": "qwen3", "max_tokens": 100, "messages": [user("hello")], **body}, IDS, stream=False)

    assert refused.value.message.startswith(complaint)


def test_a_request_without_a_model_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="model: required"):
        chat_request({"max_tokens": 5, "messages": []}, IDS, stream=False)
