"""Ask one question through the Claude Agent SDK, and print its result as Claude Code prints its own.

A program of its own, run by an interpreter that has the SDK: `agent_sdk_program.py EXECUTABLE QUESTION TOOL…`.
"""

import asyncio
import json
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def main(executable: str, question: str, *tools: str) -> None:
    """Ask, and print the last message."""
    options = ClaudeAgentOptions(cli_path=executable, allowed_tools=[*tools])
    async for message in query(prompt=question, options=options):
        if isinstance(message, ResultMessage):
            result = {"is_error": message.is_error, "num_turns": message.num_turns, "result": message.result}
            print(json.dumps({**result, "modelUsage": message.model_usage}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
