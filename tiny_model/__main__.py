"""`python -m tiny_model`: make the model in the cache folder, unless it is there.

Runs in any Python that has torch and transformers. In one that has not, it makes a virtual environment for them beside
the model, once, and goes on in that.
"""

import argparse
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

from tiny_model import cache_folder

REQUIREMENTS = ("torch>=2.6", "transformers>=4.56", "tokenizers>=0.22", "jinja2>=3.1")
SEED = 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="tiny_model", description="Make the tiny tool-calling model.")
    parser.add_argument("--output", type=Path, default=cache_folder() / "tiny-model", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="same seed, same threads, same weights; default: 1")
    parser.add_argument("--again", action="store_true", help="make it again where it is already there")
    options = parser.parse_args()
    if (options.output / "config.json").exists() and not options.again:
        print(f"The model is there: {options.output} (--again makes it anew)")
        return 0
    if find_spec("torch") is None or find_spec("transformers") is None:
        return _in_own_environment(sys.argv[1:])

    from tiny_model.train import train

    print(f"Making {options.output}: about 45 minutes on one core.", flush=True)
    unfinished = options.output.with_name(options.output.name + ".unfinished")
    if options.again:
        shutil.rmtree(unfinished, ignore_errors=True)
    train(unfinished, seed=options.seed, threads=options.threads)
    shutil.rmtree(options.output, ignore_errors=True)
    unfinished.rename(options.output)
    print(f"Made {options.output}")
    return 0


def _in_own_environment(arguments: list[str]) -> int:
    folder = cache_folder() / "tiny-model-venv"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"Installing torch and transformers into {folder} (once, a few minutes) …", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
        subprocess.run([python, *install], check=True)
        ready.touch()
    return subprocess.run([python, "-m", "tiny_model", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
