"""The sans-IO core: what a turn is. Plain data in, plain data out; no socket, no clock.

A *round* is one request to upstream and its answer, a *turn* all the rounds behind one request of the client's. A
*gateway tool* is run here (:mod:`gateway.turn.kind`), any other by the client. A gateway tool is *native* where the
client declared it by Anthropic's type and sees its calls and results, *hidden* where the client declared a function
that the gateway took over, and sees nothing of them. :mod:`gateway.turn.ownership` says which is which.

These are the rules of a turn. The code cites them by number; under each stand the tests that hold it.

1. *The request.* Upstream is asked what the client asked, member by member and byte by byte, with these exceptions: a
   typed gateway tool is declared as a function, and so is a client tool that Anthropic defines by its type alone; a
   server tool that nobody here has is refused, or left out; native calls and results of the history, and thinking that
   rule 11 marked, become what upstream said and was told; blocks of other server tools become calls and results with
   what can be seen of them, or text; the rounds of this turn that have ended come after the messages; ``tool_choice``
   changes by rules 2 and 5. Each round may use the whole ``max_tokens``.

   - tests/turn/test_request.py::test_all_else_goes_upstream_as_the_bytes_it_came_in
   - tests/turn/test_turn.py::test_a_typed_tool_is_declared_upstream_as_a_function
   - tests/handling/test_anthropics_tools.py::test_a_client_tool_has_its_published_schema_upstream
   - tests/handling/test_anthropics_tools.py::test_a_server_tool_that_nobody_here_has_is_refused
   - tests/handling/test_anthropics_tools.py::test_a_pair_becomes_a_call_and_its_result
   - tests/turn/test_properties.py::test_any_native_history_comes_back_as_the_prompt_it_was

2. *A forced choice* (``tool_choice`` of type ``any`` or ``tool``) is kept until a gateway tool has answered, be it in
   this turn or in the one that the request goes on with. From then on it is ``auto``, or the model could never stop;
   ``disable_parallel_tool_use`` stays.

   - tests/turn/test_turn.py::test_forced_choice_holds_for_the_first_round_only
   - tests/turn/test_turn.py::test_native_round_cap_pauses_the_turn_with_its_results

3. *Running.* Calls are run only when their round has ended *whole*: it came to its ``message_stop``, with the stop
   reason ``tool_use`` or ``end_turn``. They run side by side; what they came to goes upstream in one user message, in
   the order of the calls. Arguments that are no JSON object, and whatever fails, are results that say so to the model,
   and the turn goes on.

   - tests/turn/test_turn.py::test_a_round_that_did_not_end_whole_runs_nothing
   - tests/turn/test_lifecycle.py::test_a_stream_cut_anywhere_runs_nothing
   - tests/turn/test_turn.py::test_parallel_calls_are_answered_in_call_order
   - tests/turn/test_turn.py::test_a_failed_search_is_told_to_the_model_and_the_turn_goes_on
   - tests/handling/test_run.py::test_calls_run_side_by_side

4. *The client's calls* end the turn, with ``tool_use``, when their round has ended whole. Native calls beside them are
   run, and their results are in the message; they join the client's own when it comes back, whatever order it puts the
   blocks in: the seal of a result knows which calls were of its round. Hidden calls beside them are neither run nor
   shown: nothing would carry their results to the next request.

   - tests/turn/test_turn.py::test_native_calls_beside_a_client_call_are_run_and_shown_after_the_rounds_blocks
   - tests/turn/test_turn.py::test_hidden_call_beside_a_client_call_is_neither_run_nor_shown
   - tests/turn/test_history.py::test_a_mixed_round_goes_on_with_every_result_in_call_order
   - tests/handling/test_orders.py::test_a_mixed_round_is_one_round

5. *The last round* that a turn may have is no error. It *must answer* where a hidden tool is declared, for the client
   could not go on with calls that it does not see, and where the operator says so, for clients that do not go on. It is
   then asked for with ``tool_choice: none``, whatever the client forced (a server that refuses that, or the ``auto`` of
   rule 2, is asked without a choice and without the gateway's tools, and remembered for it), and the results before it
   end with a sentence that says that no call is left (a native result only where the text that it seals can hold the
   sentence: what is visible stays without it). A gateway call that comes nevertheless, native ones too, is neither run
   nor shown, and the turn ends with ``tool_use`` for the client's calls, else with ``end_turn``. Where it need not
   answer, its calls are run, and the turn stops with ``pause_turn``: the client goes on with it by sending the message
   back. :mod:`gateway.turn.ending` has rules 3 to 5 as a table.

   - tests/turn/test_turn.py::test_last_round_with_a_hidden_tool_cannot_search
   - tests/turn/test_turn.py::test_only_round_with_a_hidden_tool_beats_a_forced_choice
   - tests/handling/test_refused_choice.py::test_the_last_round_is_asked_again_without_choice_and_tools
   - tests/turn/test_turn.py::test_native_round_cap_pauses_the_turn_with_its_results
   - tests/handling/test_last_round.py::test_the_operator_can_have_an_answer_instead_of_a_pause
   - tests/turn/test_history.py::test_the_sentence_before_the_last_round_is_sealed_too
   - tests/turn/test_ending.py::test_what_follows_from_a_rounds_end

6. *max_uses* of a native tool counts its calls over one request of the client's, in order; those of the history do not
   count. A call within it counts however it ends; each call after it is answered, without being run, as one too many.
   The operator's ``max_tool_calls`` counts the calls of all gateway tools in the same way, hidden ones too, and those
   of the history that are run now.

   - tests/turn/test_turn.py::test_max_uses_counts_calls_over_the_whole_request
   - tests/turn/test_turn.py::test_a_turn_has_so_many_calls_whatever_their_tools
   - tests/turn/test_history.py::test_a_call_without_result_beside_client_results_is_run_then

7. *One message.* The client gets one message, with the first round's id and the last one's stop reason, and its blocks
   numbered without a gap. It has the visible blocks of all rounds as the model made them; after a round's last block
   come its native results, in the order of the calls, each as soon as none before it is missing. Text that is nothing
   but white space is left out, of the message and of the next round's request; a message without any block gets an
   empty text. A JSON answer is the fold of the events that a stream would have had.

   - tests/turn/test_properties.py::test_any_turn_is_one_legal_message_and_the_same_in_both_transports
   - tests/turn/test_turn.py::test_several_rounds_are_one_message
   - tests/turn/test_turn.py::test_hidden_search_is_run_and_not_seen
   - tests/handling/test_run.py::test_a_native_result_is_shown_as_soon_as_it_and_those_before_it_are_done

8. *Usage.* Of a round, the last value seen of each counter counts. The message has the sum over its rounds of each
   integer, inside objects too, and the last round's value of whatever else there is; ``iterations`` has an entry for
   each round. A turn whose request *declares* a native tool has ``server_tool_use`` with the number of native calls
   that returned: an error is not counted, nor is a hidden call. Where it declares none, the counters of the input and
   the cache are the last round's: the client, which cannot know of several rounds, takes them for the size of its
   context, and would shorten a conversation that has room. Log and metrics have the sums.

   - tests/turn/test_turn.py::test_several_rounds_are_one_message
   - tests/turn/test_usage.py::test_without_a_native_tool_the_context_is_the_last_rounds
   - tests/turn/test_usage.py::test_with_a_native_tool_the_context_is_the_sum
   - tests/handling/test_usage.py::test_log_and_metrics_keep_what_all_rounds_took
   - tests/turn/test_turn.py::test_native_errors_have_their_code_and_their_fixed_sentence
   - tests/turn/test_turn.py::test_both_presentations_in_one_request

9. *Timing and failure.* The client gets nothing before upstream's first head; where that is not 200, status and body
   pass. Later, silence is broken by pings, and a failure ends a stream with an ``error`` event and gives a JSON request
   upstream's status and body, or 502 or 504 where there is none. An ``error`` event of upstream's own passes with its
   message. What has failed never ends like a message. The exception: a stream that is made from JSON answers begins, by
   a ping, when it has been silent for long.

   - tests/handling/test_run.py::test_a_first_round_that_is_refused_passes_as_it_is
   - tests/handling/test_run.py::test_a_later_round_that_is_refused
   - tests/handling/test_run.py::test_a_stream_that_breaks_ends_in_an_error_and_runs_nothing
   - tests/handling/test_run.py::test_upstreams_own_error_event_passes_with_its_message
   - tests/handling/test_run.py::test_pings_keep_a_silent_stream_warm

10. *Leaving.* When the client goes, whatever the turn is doing, the request upstream is closed and the calls that run
    are cancelled: nothing works for nobody.

    - tests/handling/test_run.py::test_when_the_client_goes_everything_is_let_go

11. *Thinking as text.* Where the first visible text of a round begins with ``<think>``, it is a ``thinking`` block up
    to ``</think>``, or to its end, in both transports, however it is cut. The block's ``signature`` is a marker that
    makes it the very text again that it was, when it comes back. A tag anywhere else is text. A ``thinking`` block
    always has a ``signature``, empty at its start.

    - tests/turn/test_turn.py::test_think_text_becomes_a_thinking_block
    - tests/turn/test_turn.py::test_think_text_goes_back_upstream_as_it_was
    - tests/turn/test_turn.py::test_a_tag_elsewhere_is_text
    - tests/turn/test_turn.py::test_thinking_always_has_a_signature
"""

from gateway.turn import jsonvalue
from gateway.turn.deferred import Mode
from gateway.turn.fold import Fold
from gateway.turn.kind import Call, Outcome
from gateway.turn.kinds import KINDS, Kinds
from gateway.turn.lifecycle import Event, events_of, read_answer, read_event, read_message
from gateway.turn.presentation import Out
from gateway.turn.probe import Holds, look
from gateway.turn.request import TurnRequest, TurnRules, read_ours, read_request, translate_body, translate_count
from gateway.turn.rounds import MessagesRounds, Rounds, TokenRounds
from gateway.turn.seal import Sealer
from gateway.turn.token_round import TokenRound
from gateway.turn.turn import Turn

__all__ = [
    "KINDS",
    "Call",
    "Event",
    "Fold",
    "Holds",
    "Kinds",
    "MessagesRounds",
    "Mode",
    "Out",
    "Outcome",
    "Rounds",
    "Sealer",
    "TokenRound",
    "TokenRounds",
    "Turn",
    "TurnRequest",
    "TurnRules",
    "events_of",
    "jsonvalue",
    "look",
    "read_answer",
    "read_event",
    "read_message",
    "read_ours",
    "read_request",
    "read_turn",
    "translate_body",
    "translate_count",
]


def read_turn(body: bytes, rules: TurnRules, model: str | None = None, mode: Mode = "expand") -> Turn | None:
    """The turn that a ``/v1/messages`` body asks for; None where nothing of the gateway's is in it.

    ``model`` is the name the message is to carry where it is not upstream's, ``mode`` what upstream is given of
    deferred tools. Raises
    :class:`gateway.errors.InvalidRequest` for what the loop must read and cannot.
    """
    request = read_request(body, rules, mode)
    return None if request is None else Turn(request, model)
