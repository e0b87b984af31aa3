"""Everything a turn says parses, strictly, with the ``anthropic`` SDK's own types."""

from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter

from tests.conformance.conversations import CONVERSATIONS, Conversation
from tests.support.playbook import Playbook

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
BETA_EVENT: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_messages_and_events_parse_strictly(conversation: Conversation) -> None:
    play = Playbook({"tools": conversation.tools}, conversation.rounds, conversation.outcomes, conversation.rules)
    for message in (play.json, play.folded):
        assert Message.model_validate(message, strict=True).to_dict() == message
        beta = BetaMessage.model_validate(message, strict=True)
        assert beta.usage.iterations is not None
        assert len(beta.usage.iterations) == len(play.asked)
    for event in play.events:
        EVENT.validate_python(event, strict=True)
        BETA_EVENT.validate_python(event, strict=True)
