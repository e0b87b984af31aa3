"""What an operator may wonder about, in the log: once a process and name, as every request would say it again."""

import structlog


class LoggedNotices:
    """The :class:`gateway.turn.request.Notices` of a process."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def left(self, function: str) -> None:
        """A client's function of that name stays the client's."""
        if self._is_new("left", function):
            structlog.get_logger().warning(
                "function left to the client",
                tool=function,
                why="its schema has not the arguments of the gateway's; an alias gives it over all the same",
            )

    def dropped(self, server_tool: str) -> None:
        """A request declared a server tool of this type, and went on without."""
        if self._is_new("dropped", server_tool.rstrip("0123456789_")):
            structlog.get_logger().warning(
                "server tool left out", tool=server_tool, why="nobody here has it, and --unknown-server-tools is drop"
            )

    def _is_new(self, what: str, name: str) -> bool:
        told = (what, name) in self._told
        self._told.add((what, name))
        return not told
