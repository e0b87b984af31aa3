"""Make every cassette under messages/ again, from nothing: `make record`.

A real vLLM serves the tiny model on this machine's CPU (both made once, kept in the cache folder); `messages-recorder`
holds the conversations of conversations.yaml with it, at temperature 0. Afterwards the table in README.md is written
anew.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cassettes.script import HERE, Scripted, conversations
from e2e.processes import Failure
from e2e.vllm_server import Unavailable, install, serving_vllm, tiny_model
from recorder.cassette import Cassette

README = HERE / "README.md"
TABLE_BEGINS, TABLE_ENDS = "<!-- rows written by record.py -->\n", "<!-- end -->\n"
MOST_ROUNDS = 6


def record(scripted: Scripted, upstream: str, *, stream: bool) -> None:
    """Hold one conversation with `upstream` and keep what crossed the wire."""
    cassette = scripted.cassette(stream=stream)
    cassette.parent.mkdir(exist_ok=True)
    program = str(Path(sys.executable).with_name("messages-recorder"))
    command = [program, "record", "--mode", "messages", "--upstream", upstream, "--output", cassette.name]
    command += ["--model", scripted.model, "--turns", str(MOST_ROUNDS), "--prompt", scripted.prompt]
    command += ["--stream" if stream else "--no-stream", "--temperature", "0", "--max-tokens", str(scripted.max_tokens)]
    for name, value in scripted.flags.items():
        command += [f"--{name.replace('_', '-')}", value]
    # A cassette holds the command that made it: without the folders of whoever ran it.
    with tempfile.TemporaryDirectory() as folder:
        if scripted.tools is not None:
            texts = {"web_search": scripted.found.text, "Bash": scripted.command_output}
            Path(folder, "tools.json").write_text(json.dumps(scripted.tools), encoding="utf-8")
            Path(folder, "tool-outputs.json").write_text(json.dumps(texts), encoding="utf-8")
            command += ["--tools", "tools.json", "--tool-outputs", "tool-outputs.json"]
        # Its exit status also says that upstream refused, which some conversations are there for.
        subprocess.run(command, stdin=subprocess.DEVNULL, cwd=folder, check=False)
        recorded = Path(folder, cassette.name)
        statuses = {turn.response.status_code for turn in Cassette(recorded)}
        if statuses != {scripted.status}:
            raise Failure(f"{cassette.name}: upstream answered {statuses or 'nothing'}")
        shutil.copyfile(recorded, cassette)


def write_table() -> None:
    """One row a cassette: what it shows, and what it was recorded from."""
    rows = ["| cassette | what it shows | requests | recorded from |", "|---|---|---|---|"]
    for scripted in conversations():
        for stream in (False, True):
            cassette = Cassette(scripted.cassette(stream=stream))
            version = cassette.recorded().get("version", "of unknown version")
            status = f"{scripted.status}: " if scripted.is_error else ""
            rows.append(
                f"| `{cassette.name}` | {status}{scripted.shows} | {sum(1 for _ in cassette)} | vLLM {version} |"
            )
    before, _, rest = README.read_text(encoding="utf-8").partition(TABLE_BEGINS)
    _, _, after = rest.partition(TABLE_ENDS)
    README.write_text(before + TABLE_BEGINS + "\n".join(rows) + "\n" + TABLE_ENDS + after, encoding="utf-8")


async def main(options: argparse.Namespace) -> None:
    """Start vLLM twice, with a reasoning parser and without, and record what belongs to each."""
    environment = options.vllm or install()
    model = options.tiny_model or tiny_model(environment)
    for parsed in (True, False):
        async with serving_vllm(environment, model, thinking_parsed=parsed) as upstream:
            for scripted in conversations():
                if scripted.thinking_parsed is parsed:
                    for stream in (False, True):
                        await asyncio.to_thread(record, scripted, upstream, stream=stream)
    write_table()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="record", description="Record every cassette again, from a real vLLM.")
    parser.add_argument(
        "--vllm", type=Path, metavar="VENV", help="an environment with vLLM, in place of the cached one"
    )
    parser.add_argument("--tiny-model", type=Path, metavar="FOLDER", help="the tiny model, in place of the cached one")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(main(_options()))
    except (Unavailable, Failure) as problem:
        sys.exit(f"record: {problem}")
