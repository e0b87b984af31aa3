"""One target under atheris: `python -m tests.fuzz.target NAME [libFuzzer's flags]`."""

import sys

import atheris

with atheris.instrument_imports(include=["gateway", "tests.fuzz"]):
    from tests.fuzz.targets import TARGETS

_, name, *flags = sys.argv
atheris.Setup([sys.argv[0], *flags], TARGETS[name])
atheris.Fuzz()
