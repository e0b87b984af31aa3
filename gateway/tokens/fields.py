"""The token fields of a Messages request: are there any, and are they sound.

The names are LMDeploy's, so that a client written for it works here too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.errors import InvalidRequest

SWITCHES = ("return_token_ids", "return_routed_experts", "return_logprob", "include_stop_str_in_output")
INPUTS = ("input_ids", "image_data")


class TokenProbe(msgspec.Struct):
    """The token fields as a request probe decodes them; to be inherited by that probe.

    The values are as the client sent them: :func:`read_token_fields` judges them.
    """

    input_ids: Any = None
    image_data: Any = None
    return_token_ids: Any = None
    return_routed_experts: Any = None
    return_logprob: Any = None
    include_stop_str_in_output: Any = None

    @property
    def asks_for_tokens(self) -> bool:
        """Whether the request uses any token field: null and false say no."""
        return (
            _used(self.input_ids)
            or _used(self.image_data)
            or _used(self.return_token_ids)
            or _used(self.return_routed_experts)
            or _used(self.return_logprob)
            or _used(self.include_stop_str_in_output)
        )


@dataclass(frozen=True, slots=True)
class TokenFields:
    """What a token request asks for.

    ``input_ids``: the prompt's token ids, in place of ``messages``; None when the prompt is ``messages``.
    ``image_data``: a URL, a base64 string, an object, or a list of those, as the client sent it.
    The others say what the answer carries.
    """

    input_ids: list[int] | None = None
    image_data: Any = None
    return_token_ids: bool = False
    return_routed_experts: bool = False
    return_logprob: bool = False
    include_stop_str_in_output: bool = False

    @property
    def returns_any(self) -> bool:
        """Whether the answer is to carry any of them."""
        return self.return_token_ids or self.return_routed_experts or self.return_logprob


def asks_for_tokens(body: Mapping[str, Any]) -> bool:
    """Whether a decoded Messages request uses any token field: null and false say no."""
    return any(_used(body.get(name)) for name in (*INPUTS, *SWITCHES))


def read_token_fields(body: Mapping[str, Any]) -> TokenFields | None:
    """The token fields of a decoded Messages request, or None where it uses none.

    Raises :class:`~gateway.errors.InvalidRequest` naming the field that is wrong, and why.
    """
    if not asks_for_tokens(body):
        return None
    switches = {name: _switch(body, name) for name in SWITCHES}
    input_ids = body.get("input_ids")
    image_data = body.get("image_data")
    if input_ids is None:
        if image_data is not None:
            raise InvalidRequest("image_data: belongs to input_ids, which this request does not have")
        if not body.get("messages"):
            raise InvalidRequest("messages: the request has neither messages nor input_ids")
    else:
        _check_input_ids(input_ids)
        _check_image_data(image_data)
        _check_nothing_else_is_prompt(body)
    return TokenFields(input_ids=input_ids, image_data=image_data, **switches)


def _used(value: object) -> bool:
    return value is not None and value is not False


def _switch(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name}: must be true or false")
    return value


def _check_input_ids(input_ids: object) -> None:
    if not isinstance(input_ids, list):
        raise InvalidRequest("input_ids: must be a list of integers >= 0")
    if not input_ids:
        raise InvalidRequest("input_ids: must not be empty")
    for position, token in enumerate(input_ids):
        if type(token) is not int or token < 0:  # a JSON true is a Python int too
            raise InvalidRequest(f"input_ids.{position}: must be an integer >= 0")


def _check_image_data(image_data: object) -> None:
    images = image_data if isinstance(image_data, list) else [image_data]
    if image_data is not None and not all(isinstance(image, str | dict) for image in images):
        raise InvalidRequest("image_data: must be a URL, a base64 string, an object, or a list of those")


def _check_nothing_else_is_prompt(body: Mapping[str, Any]) -> None:
    """With ``input_ids`` the prompt is rendered already, so what shapes a rendering has no place."""
    if body.get("messages"):
        raise InvalidRequest("input_ids: cannot stand beside messages; send one of the two")
    if body.get("system") is not None:
        raise InvalidRequest("system: cannot stand beside input_ids, which are the whole prompt")
    if body.get("tools"):
        raise InvalidRequest("tools: cannot stand beside input_ids, which are the whole prompt")
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind not in (None, "auto", "none"):
        raise InvalidRequest("tool_choice: only auto or none can stand beside input_ids, which leave no tool to choose")
