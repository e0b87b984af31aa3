"""The routes under schemathesis: requests made from `/openapi.json`, answers held to it.

python -m tests.fuzz.routes [schemathesis' options]
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
from pydantic import SecretStr

from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import Answer, ScriptedUpstream, SeenRequest, json_answer, message, sse, sse_answer, text

PROGRAM = Path(sys.executable).with_name("schemathesis")
CACHE = Path(".cache/fuzz")
"""Where it keeps what it found for the next run."""


def upstream_says(seen: SeenRequest) -> Answer:
    """A model server's answer to whatever came, in the shape that was asked for."""
    if seen.method != ("GET" if seen.target.startswith("/v1/models") else "POST"):
        return json_answer({"detail": "Method Not Allowed"}, 405, [("allow", "GET")])
    if seen.target.startswith("/v1/models"):
        return json_answer({"object": "list", "data": [{"id": "qwen3", "max_model_len": 4096}]})
    try:
        body = msgspec.json.decode(seen.body, type=dict[str, Any])
    except msgspec.DecodeError:
        return json_answer(
            {"error": {"message": "the body is no JSON object", "type": "Bad Request", "code": 400}}, 400
        )
    return sse_answer(sse(text("Hello."))) if body.get("stream") is True else json_answer(message(text("Hello.")))


async def main() -> int:
    """Once without gateway keys, once with one; the status of the worse run."""
    worst = 0
    for keys in ((), ("team-a",)):
        async with ScriptedUpstream(upstream_says) as upstream:
            settings = Settings(upstream=upstream.origin, upstream_dialect="vllm", log_level="error")
            if keys:
                settings = settings.model_copy(update={"api_keys": tuple(SecretStr(key) for key in keys)})
            search = ScriptedSearch(default=found("Nothing."))
            async with running_gateway(settings, search=search) as gateway:
                # Without a version the list of models, and what it makes of parameters, is upstream's.
                headers = ["--header=anthropic-version: 2023-06-01", *(f"--header=x-api-key: {key}" for key in keys)]
                command = [
                    str(PROGRAM),
                    "run",
                    f"{gateway.url}/openapi.json",
                    "--warnings=off",
                    *headers,
                    *sys.argv[1:],
                ]
                process = await asyncio.create_subprocess_exec(*command, cwd=CACHE)
                worst = max(worst, await process.wait())
    return worst


if __name__ == "__main__":
    CACHE.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(main()))
