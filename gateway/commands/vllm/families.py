"""Which parsers and flags vLLM needs for a model, by the model's name.

The names are those of vLLM's ``--tool-call-parser`` and ``--reasoning-parser`` (checked with vLLM 0.32), the choice for
a family is that of vLLM's tool calling and reasoning pages, its recipes, or the model's own card:
https://docs.vllm.ai/en/latest/features/tool_calling/, https://docs.vllm.ai/en/latest/features/reasoning_outputs/,
https://github.com/vllm-project/recipes. ``--trust-remote-code``, which some cards ask for, is in none: running code
from a model's repository is for the operator to decide. DeepSeek V3, V3.1 and R1 also want one of the chat templates in
vLLM's ``examples``, which its package leaves out: ``--vllm-arg '--chat-template FILE'``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Family:
    """Models that speak alike.

    ``names`` are globs of a model's name in lower case, without its owner or folder. ``reasoning_parser`` is None where
    the models do not think: a reasoning parser could take their whole answer for thinking. ``flags`` are what else
    ``vllm serve`` has to be told.
    """

    names: Sequence[str]
    tool_parser: str
    reasoning_parser: str | None = None
    flags: Sequence[str] = ()

    @property
    def tool_flags(self) -> tuple[str, ...]:
        """What makes vLLM hand out tool calls."""
        return ("--enable-auto-tool-choice", "--tool-call-parser", self.tool_parser, *self.flags)

    @property
    def reasoning_flags(self) -> tuple[str, ...]:
        """What makes vLLM hand out thinking apart from text."""
        return ("--reasoning-parser", self.reasoning_parser) if self.reasoning_parser else ()


FAMILIES = (
    # Distilled and merged models carry two names: the one whose chat template they use comes first.
    Family(("*deepseek-v4.1*",), "deepseek_v41", "deepseek_v41", ("--tokenizer-mode", "deepseek_v41")),
    Family(("*deepseek-v4*",), "deepseek_v4", "deepseek_v4", ("--tokenizer-mode", "deepseek_v4")),
    Family(("*deepseek-v3.2*",), "deepseek_v32", "deepseek_v3", ("--tokenizer-mode", "deepseek_v32")),
    Family(("*deepseek-v3.1*",), "deepseek_v31", "deepseek_v3"),
    Family(("*deepseek-r1-0528*",), "deepseek_v3", "deepseek_r1"),
    Family(("*deepseek-v3*",), "deepseek_v3"),
    Family(("*hermes*",), "hermes"),
    Family(("*xlam*",), "xlam"),
    Family(("*gpt-oss*",), "openai", "openai_gptoss"),
    Family(("*qwen3-coder*", "*qwen3_coder*"), "qwen3_coder"),
    Family(("*qwen3.5*", "*qwen3.6*", "*qwen3.7*"), "qwen3_coder", "qwen3"),
    Family(("*qwen3*thinking*", "*qwq*"), "hermes", "deepseek_r1"),
    Family(("*qwen3*instruct*", "*qwen2.5*"), "hermes"),
    Family(("*qwen3*",), "hermes", "qwen3"),
    Family(("*glm-4.7*", "*glm-5*"), "glm47", "glm45"),
    Family(("*glm-4.5*", "*glm-4.6*"), "glm45", "glm45"),
    Family(("*kimi-k3*",), "kimi_k3", "kimi_k3"),
    Family(("*kimi-k2-instruct*",), "kimi_k2"),
    Family(("*kimi-k2*",), "kimi_k2", "kimi_k2"),
    # Its other parser, minimax_m2_append_think, leaves the thinking in the text.
    Family(("*minimax-m2*",), "minimax_m2", "minimax_m2"),
    Family(("*minimax-m3*",), "minimax_m3", "minimax_m3"),
    Family(("*magistral*", "*ministral*reasoning*"), "mistral", "mistral"),
    Family(("*mistral*", "*mixtral*", "*devstral*", "*ministral*"), "mistral"),
    Family(("*llama-4*",), "llama4_pythonic"),
    Family(("*llama-3.[123]*", "*llama3.[123]*"), "llama3_json"),
    Family(("*nemotron-3*",), "qwen3_coder", "nemotron_v3"),
    Family(("*granite-4*",), "granite4"),
    Family(("*granite-3*",), "granite"),
    Family(("*gemma-4*",), "gemma4", "gemma4"),
    Family(("*seed-oss*",), "seed_oss", "seed_oss"),
    Family(("*mimo-v2*",), "mimo", "mimo"),
    Family(("*step-3.5*", "*step-3.7*"), "step3p5", "step3p5"),
    Family(("*step3*",), "step3", "step3"),
    Family(("*ernie-4.5*thinking*",), "ernie45", "ernie45"),
    Family(("*hunyuan-a13b*",), "hunyuan_a13b", "hunyuan_a13b"),
    Family(("*command-a-reasoning*",), "cohere_command3", "cohere_command3"),
    Family(("*longcat*",), "longcat"),
    Family(("*olmo-3*think*",), "olmo3", "olmo3"),
    Family(("*olmo-3*",), "olmo3"),
    Family(("*phi-4-mini*",), "phi4_mini_json"),
    Family(("*lfm2*",), "lfm2"),
    Family(("*internlm2*",), "internlm"),
    Family(("*jamba*",), "jamba"),
)
"""The first that matches wins."""


def family_of(*names: str) -> Family | None:
    """The family of a model: of the first of its names (the served name, the repository, the folder) that is known."""
    for name in names:
        last = name.rstrip("/").rpartition("/")[2].lower()
        for family in FAMILIES:
            if any(fnmatchcase(last, pattern) for pattern in family.names):
                return family
    return None
