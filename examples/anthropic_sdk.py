"""Ask a question that needs the web, with Anthropic's SDK and its own server tool, through the gateway.

    pip install anthropic
    python examples/anthropic_sdk.py "What is the latest stable Rust release?" [MODEL]

The gateway is expected at http://127.0.0.1:9000, or where ANTHROPIC_BASE_URL says.
"""

import os
import sys

import anthropic


def main(question: str, model: str) -> None:
    client = anthropic.Anthropic(
        base_url=os.environ.get("ANTHROPIC_BASE_URL", "http://127.0.0.1:9000"),
        api_key=os.environ.get("ANTHROPIC_API_KEY", "any"),
    )
    with client.messages.stream(
        model=model,
        max_tokens=1024,
        tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}],
        messages=[{"role": "user", "content": question}],
    ) as stream:
        for text in stream.text_stream:
            print(text, end="", flush=True)
        message = stream.get_final_message()
    print()
    for block in message.content:
        if block.type == "web_search_tool_result" and isinstance(block.content, list):
            for result in block.content:
                print(f"  {result.title}\n    {result.url}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "qwen3")
