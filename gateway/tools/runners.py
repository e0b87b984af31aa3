"""The runners of the kinds of tool whose calls need IO: one line each."""

from collections.abc import Callable, Mapping

from gateway.settings import Settings
from gateway.tools.runner import AnyRunner
from gateway.tools.tool_search import make_tool_search
from gateway.tools.web_search import make_search

MAKERS: Mapping[str, Callable[[Settings], AnyRunner]] = {
    "web_search": make_search,
    "tool_search": make_tool_search,
}
"""By the name of the kind (:attr:`gateway.turn.kind.Kind.name`)."""


def make_runners(settings: Settings, given: Mapping[str, AnyRunner]) -> Mapping[str, AnyRunner]:
    """The runners that the settings describe; of the kinds in ``given``, those.

    Raises :class:`gateway.errors.SettingsError`.
    """
    made = {name: make(settings) for name, make in MAKERS.items() if name not in given}
    return {**made, **given}
