"""The server that runs the models: what it serves, how it is asked, and what is changed on the way to it."""

from gateway.model_server.rules import ModelRules
from gateway.model_server.server import ModelServer

__all__ = ["ModelRules", "ModelServer"]
