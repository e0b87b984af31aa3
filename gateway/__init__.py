"""The gateway as a library: :class:`Gateway`, an ASGI application, is made of :class:`Settings`."""

from typing import TYPE_CHECKING

__all__ = ["Gateway", "Settings", "__version__"]

if TYPE_CHECKING:
    from gateway.app import Gateway
    from gateway.settings import Settings

    __version__: str
else:

    def __getattr__(name: str) -> object:
        # Looked up when asked for: whoever imports a part, as the command line does, loads that part alone.
        match name:
            case "Gateway":
                from gateway.app import Gateway

                return Gateway
            case "Settings":
                from gateway.settings import Settings

                return Settings
            case "__version__":
                from importlib.metadata import version

                return version("messages-gateway")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
