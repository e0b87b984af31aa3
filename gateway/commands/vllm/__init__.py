"""vLLM as the gateway starts it: which parsers a model needs, and a server that lives as long as the gateway."""

from gateway.commands.vllm.families import FAMILIES, Family, family_of
from gateway.commands.vllm.server import running_vllm, vllm_arguments

__all__ = ["FAMILIES", "Family", "family_of", "running_vllm", "vllm_arguments"]
