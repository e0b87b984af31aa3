"""A turn: all the rounds behind one client request, merged into one message.

Sans-IO. The shell asks for the next upstream request, feeds the events of its answer, runs the calls that a round
ended with and hands their outcomes back; every step adds what the client sees to ``out``. The rules cited are those
in :mod:`gateway.turn`.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import RequestTooLarge, UpstreamBroken
from gateway.turn import jsonvalue
from gateway.turn.calls import CallView, NativeCallView
from gateway.turn.delta import Delta, read_delta, size_of
from gateway.turn.ending import WHOLE, RoundEnd, Runs, step_after
from gateway.turn.ids import call_id
from gateway.turn.kind import AnyTool, Block, Call, Outcome, make_call, refuse, result_block, tool_result
from gateway.turn.lifecycle import EVENT_TYPES, Event, State, following, is_error, stream_error
from gateway.turn.presentation import Cursor, Out, TextView, ThinkingView, View
from gateway.turn.request import TurnRequest
from gateway.turn.riding import EMPTY_DELTAS
from gateway.turn.usage import Usage, iteration, latest, summed, with_both_counters, with_last_context

REFUSALS = frozenset({400, 422})
"""The statuses with which servers refuse a member of a request."""
_NAMES_CHOICE = re.compile(rb"tool[_ ]?choice", re.IGNORECASE)


@dataclass(slots=True)
class _Round:
    """What upstream has said of the round under way."""

    state: State = State.AWAITED
    views: list[View] = field(default_factory=list)
    indices: set[int] = field(default_factory=set)
    usage: Usage = field(default_factory=dict)
    ending: Event = field(default_factory=dict)
    extras: Event = field(default_factory=dict)
    head: Event = field(default_factory=dict)
    text_is_visible: bool = False


class Turn:
    """One turn. Drive it so::

        calls = turn.late_calls()        # run these, turn.answer(each, outcome, out)
        until turn.over:
            send turn.request(); turn.feed(event, raw, out) for each event until turn.round_done
            calls = turn.end_round(out)  # run these concurrently, turn.answer(each, outcome, out) in order
        turn.finish(out)

    ``model`` is the name the message is to carry where it is not upstream's; the attribute is the client's name for it.
    A turn that keeps more than ``rules.max_retained_bytes`` ends as :class:`UpstreamBroken`; one whose request is
    larger than that is not begun (:class:`RequestTooLarge`).
    """

    def __init__(self, request: TurnRequest, model: str | None = None) -> None:
        self.stream = request.stream
        self.model = request.model if model is None else model
        self.rounds_ended = 0
        self.over = False
        self._request = request
        self._rules = request.rules
        self._tools = request.declared.tools
        self._must_answer = request.declared.hidden or (self._rules.must_answer and bool(self._tools))
        self._renamed = model
        self._cursor = Cursor()
        self._round = _Round()
        self._open: View | None = None
        self._open_index = -1
        self._usages: list[Usage] = []
        self._answered = request.history.answered
        self._opening: Out = []
        self._results: list[Block] = []
        self._calls: list[Call] = []
        self._ids = set(request.history.ids)
        self._counted_calls = 0
        self._uses: dict[str, int] = {}
        self._returned: dict[str, int] = {}
        self._stop: str | None = None
        self._choice_refused = False
        self._sealer = self._rules.sealer
        self._retained = request.size
        self._asked = 0
        if self._retained > self._rules.max_retained_bytes:
            raise RequestTooLarge(f"the turn's request is larger than {self._rules.max_retained_bytes} bytes")

    # -- requests ----------------------------------------------------------------------------------------------------

    def request(self) -> bytes:
        """The body of the next upstream request."""
        self._round = _Round()
        choice = self._choice()
        known = choice is not None and choice["type"] in self._rules.server.refused_choices
        body = self._request.body(choice, refused=known or self._choice_refused)
        self._asked = len(body)
        return body

    @property
    def held(self) -> int:
        """Bytes that the turn holds: what it keeps, and the request of the round under way."""
        return self._retained + self._asked

    def _choice(self) -> Block | None:
        without_tools = self._last_round and self._must_answer
        return self._request.choice(answered=self._answered, without_tools=without_tools)

    @property
    def chooses(self) -> bool:
        """Whether the round under way was asked for with a ``tool_choice`` of the gateway's own."""
        return self._choice() is not None

    def asks_otherwise(self, status: int, body: bytes) -> bool:
        """Whether the round that upstream answered so can be asked for in another way: :meth:`request` then has it.

        It can, once, where upstream refuses the ``tool_choice`` that is the gateway's and not the client's: what the
        turn has found out is not to be lost to that.
        """
        if self._choice_refused or not self.chooses:
            return False
        self._choice_refused = status in REFUSALS and _NAMES_CHOICE.search(body) is not None
        return self._choice_refused

    def late_calls(self) -> list[Call]:
        """Native calls of the history that are run before the first round, in call order."""
        self._calls = [
            self._counted(make_call(self._tools[late.name], late.upstream_id, late.call_id, late.input, self._request))
            for late in self._request.history.late_calls
        ]
        return self._calls

    # -- a round's events --------------------------------------------------------------------------------------------

    @property
    def round_done(self) -> bool:
        """Whether the round has come to its ``message_stop``."""
        return self._round.state is State.DONE

    def delta(self, delta: Delta, out: Out) -> None:
        """Take one delta of the block that is open. Raises :class:`UpstreamBroken` for one out of place."""
        view = self._open
        if view is None or delta.index != self._open_index:
            raise UpstreamBroken("Upstream sent a delta for a block that is not open.")
        view.delta(delta, out)
        self._retained += delta.size
        if self._retained > self._rules.max_retained_bytes:
            raise self._grown()

    def feed(self, event: Event, raw: bytes | None, out: Out) -> None:
        """Take one upstream event; ``raw`` are its own bytes, where they may go to the client unchanged.

        Raises :class:`UpstreamBroken` for an event out of place, and what :func:`stream_error` makes of an error.
        """
        kind = event.get("type")
        if kind == "content_block_delta":
            self.delta(read_delta(event, raw), out)
        elif kind == "ping":
            out.append(event if raw is None else raw)
        elif kind == "error":
            raise stream_error(event)
        elif isinstance(kind, str) and kind in EVENT_TYPES:
            self._round.state = following(self._round.state, kind)
            _TAKE[kind](self, event, out)
        elif is_error(event):
            raise stream_error(event)
        elif not isinstance(kind, str):
            raise UpstreamBroken("Upstream sent an event without a type.")

    def _message_start(self, event: Event, out: Out) -> None:
        message = event.get("message")
        if not isinstance(message, dict):
            raise UpstreamBroken("Upstream sent message_start without a message.")
        self._take_usage(message)
        self._round.head = {name: message.get(name) for name in ("id", "model")}
        if self.rounds_ended == 0:
            message["usage"] = with_both_counters(message.get("usage") or {})
            message["content"] = []
            if self._renamed is not None:
                message["model"] = self._renamed
            out.append({"type": "message_start", "message": message})
            out += self._opening

    def _block_start(self, event: Event, out: Out) -> None:
        index, block = event.get("index"), event.get("content_block")
        if not isinstance(index, int) or index in self._round.indices:
            raise UpstreamBroken("Upstream started a block without an index of its own.")
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise UpstreamBroken("Upstream started a block without a type.")
        self._round.indices.add(index)
        self.retain(len(jsonvalue.write(block)))
        view = self._view(block)
        if self._round.views:
            view.follow(self._round.views[-1])
        self._round.views.append(view)
        self._open, self._open_index = view, index
        view.open(out)

    def _view(self, block: Block) -> View:
        match block["type"]:
            case "text":
                return TextView(block, self._cursor, sniff=not self._round.text_is_visible)
            case "thinking":
                return ThinkingView(block, self._cursor)
            case "tool_use" if isinstance(block.get("name"), str) and block["name"] in self._tools:
                return self._call_view(block, self._tools[block["name"]])
        return View(block, self._cursor)

    def _call_view(self, block: Block, tool: AnyTool) -> CallView:
        if not isinstance(block.get("id"), str) or not block["id"]:
            raise UpstreamBroken("Upstream sent a tool_use without an id.")
        if not tool.native or (self._last_round and self._must_answer):
            return CallView(block, self._cursor, tool)
        name = call_id(block["id"], self._ids, tool.kind.id_prefix)
        self._ids.add(name)
        return NativeCallView(block, self._cursor, tool, name)

    def _block_stop(self, event: Event, out: Out) -> None:
        if self._open is None or event.get("index") != self._open_index:
            raise UpstreamBroken("Upstream ended a block that is not open.")
        self._open.close(out)
        if isinstance(self._open, TextView) and self._open.visible:
            self._round.text_is_visible = True
        self._open = None

    def _message_delta(self, event: Event, out: Out) -> None:
        delta = event.get("delta")
        if not isinstance(delta, dict):
            raise UpstreamBroken("Upstream sent message_delta without a delta.")
        if not isinstance(delta.get("stop_reason"), str | None):
            raise UpstreamBroken("Upstream sent a stop_reason that is no string.")
        self._round.ending.update(delta)
        self._round.extras.update({name: event[name] for name in event.keys() - {"type", "delta", "usage"}})
        self._take_usage(event)

    def _message_stop(self, event: Event, out: Out) -> None:
        """The round is whole; what follows is for :meth:`end_round`."""

    def _take_usage(self, holder: Event) -> None:
        usage = holder.get("usage")
        if usage is not None:
            if not isinstance(usage, dict):
                raise UpstreamBroken("Upstream sent a usage that is no object.")
            latest(self._round.usage, usage)

    def retain(self, size: int) -> None:
        """Count bytes that are kept. Raises :class:`UpstreamBroken` where they are too many."""
        self._retained += size
        if self._retained > self._rules.max_retained_bytes:
            raise self._grown()

    def _grown(self) -> UpstreamBroken:
        return UpstreamBroken(f"The turn has grown over {self._rules.max_retained_bytes} bytes.")

    # -- between rounds ----------------------------------------------------------------------------------------------

    def end_round(self, out: Out) -> list[Call]:
        """Upstream's answer has ended: which calls to run now, in call order. Sets ``over``.

        Raises :class:`UpstreamBroken` where the round was cut.
        """
        if not self.round_done:
            raise UpstreamBroken("Upstream's stream ended before its message did.")
        said = self._round.ending.get("stop_reason")
        calls = [view for view in self._round.views if isinstance(view, CallView)]
        end = RoundEnd(
            whole=said in WHOLE,
            client_calls=any(view.kind == "tool_use" and not isinstance(view, CallView) for view in self._round.views),
            gateway_calls=bool(calls),
            last=self._last_round,
            must_answer=self._must_answer,
        )
        choice = self._choice()
        if self._choice_refused and choice is not None:  # it was that, then: without it upstream has answered
            self._rules.server.refused_choices.add(choice["type"])
        self._choice_refused = False
        runs, self.over, stop = step_after(end)
        self._stop = said if stop is None else stop
        self.rounds_ended += 1
        self._usages.append(self._round.usage)
        self._calls = [self._counted(self._call(view)) for view in calls if _is_run(view, runs)]
        self._sealer = self._rules.sealer.of_round(_visible_calls(self._round.views))
        self._results = []
        return self._calls

    def _call(self, view: CallView) -> Call:
        return make_call(view.tool, view.id, view.call_id, view.arguments, self._request)

    def _counted(self, call: Call) -> Call:
        """Rule 6: each call up to the tool's limit, and the turn's, uses one up, each later one is refused."""
        self._counted_calls += 1
        uses = self._uses[call.tool.name] = self._uses.get(call.tool.name, 0) + 1
        limit = call.tool.max_uses
        if self._counted_calls > self._rules.max_tool_calls or (limit is not None and uses > limit):
            return refuse(call)
        return call

    def answer(self, call: Call, outcome: Outcome, out: Out) -> None:
        """A call's outcome, to be given in call order; with the last one the next request is ready."""
        tool = call.tool
        told = tool.told(outcome)
        if call is self._calls[-1] and self._must_answer and not self.over and self._last_round:
            if not tool.native or tool.seals(outcome):
                told = told.ending_with(tool.kind.none_left)
            else:
                self._end_an_earlier_result()
        self.retain(size_of(told.content))
        self._results.append(tool_result(call.upstream_id, told))
        self._request.load(told.loads)
        block = result_block(call, outcome, told, self._sealer)
        if block is not None:
            events = out if self.rounds_ended else self._opening
            self._cursor.close(self._cursor.open(block, events), events)
            counter = tool.kind.counter
            if counter is not None and outcome.error is None:
                self._returned[counter] = self._returned.get(counter, 0) + 1
        if call is self._calls[-1]:
            self._answered = True
            if self.rounds_ended:
                kept = [value for view in self._round.views if (value := view.value()) is not None]
                self._request.add_round(kept, self._results)
            else:
                self._request.history.complete(self._results)

    def _end_an_earlier_result(self) -> None:
        """Say that no call is left in the last hidden result: a native one has been shown, and maybe sealed."""
        for call, result in zip(reversed(self._calls[:-1]), reversed(self._results), strict=True):
            if not call.tool.native:
                result["content"] += f"\n\n{call.tool.kind.none_left}"
                return

    @property
    def _last_round(self) -> bool:
        """Whether the round under way, or the one to be asked for next, is the last allowed."""
        return self.rounds_ended + 1 >= self._rules.max_rounds

    # -- the end -----------------------------------------------------------------------------------------------------

    def finish(self, out: Out, carried: Event | None = None) -> None:
        """End the message: its stop reason and usage, after an empty text block if nothing was visible.

        ``carried``: what ``message_delta`` is to have beside them.
        """
        if self._cursor.next == 0:
            self._empty_block(out)
        ending = {"stop_sequence": None, **self._round.ending, "stop_reason": self._stop}
        told = {**self._round.extras, **(carried or {})}
        out.append({"type": "message_delta", "delta": ending, "usage": self.usage(), **told})
        out.append({"type": "message_stop"})

    def _empty_block(self, out: Out) -> None:
        """One empty text block. It stands for the last round's white space, and carries the token ids of that."""
        index = self._cursor.open({"type": "text", "text": ""}, out)
        tokens = self._round.views[-1].waiting.leave() if self._round.views else {}
        if tokens:
            self._cursor.delta(index, EMPTY_DELTAS["text"], out, tokens)
        self._cursor.close(index, out)

    def last_answer(self) -> dict[str, Any]:
        """Of the round that has ended, upstream's ``id``, ``model``, ``stop_reason`` and ``usage``."""
        seen = self._round
        return {**seen.head, "stop_reason": seen.ending.get("stop_reason"), "usage": seen.usage}

    def spent(self) -> dict[str, Any]:
        """What all rounds so far took together."""
        return summed(self._usages)

    def usage(self) -> dict[str, Any]:
        """The message's usage so far (rule 8)."""
        native = self._request.declared.native
        usage = self.spent() if native else with_last_context(self.spent(), self._usages)
        usage = with_both_counters(usage)
        usage["iterations"] = [iteration(one) for one in self._usages]
        if native:
            usage["server_tool_use"] = {name: self._returned.get(name, 0) for name in self._rules.kinds.counters}
        return usage


def _visible_calls(views: list[View]) -> list[str]:
    """The client's ids of a round's calls, in order; none where one is alone and no other can be parted from it."""
    used = [view for view in views if view.kind == "tool_use"]
    calls = [view.call_id if isinstance(view, CallView) else view.start.get("id") for view in used]
    known = [call for call in calls if isinstance(call, str)]
    return known if len(known) > 1 else []


def _is_run(view: CallView, runs: Runs) -> bool:
    return runs is Runs.ALL or (runs is Runs.NATIVE and view.tool.native)


_TAKE = {
    "message_start": Turn._message_start,
    "content_block_start": Turn._block_start,
    "content_block_stop": Turn._block_stop,
    "message_delta": Turn._message_delta,
    "message_stop": Turn._message_stop,
}
