# Everything a developer types. `make` alone lists it.

# The first interpreter that is new enough; `make PYTHON=/path/to/python install` overrides.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; done)

BIN := .venv/bin
READY := .venv/.ready
SOURCES := gateway recorder tests e2e bench load cassettes examples tiny_model

.DEFAULT_GOAL := help
.PHONY: help install demo test check format e2e-claude e2e-claude-newest e2e-vllm tiny-model record bench load load-short faults compare fuzz docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(READY)  ## make .venv with the project and what its tests need

# pip reads dependency groups from 25.1 on; the one that comes with Python can be older.
$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found: set PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { \
		echo "$(PYTHON) has no working venv module (Debian: apt install python3-venv)" >&2; rm -rf .venv; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

demo: $(READY)  ## one request through the loop, with no GPU, key or network
	@$(BIN)/messages-gateway demo

test: $(READY)  ## the tests, two at a time; ARGS='-k sse' picks some
	$(BIN)/pytest -n 2 $(ARGS)

check: $(READY)  ## lint, format, strict types, the walls between the rooms, known vulnerabilities
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/audit.py

format: $(READY)  ## rewrite the sources as `make check` wants them
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

e2e-claude: $(READY)  ## the real Claude Code, an older and a newer (installed by npm), against a scripted upstream
	@$(BIN)/python -m e2e.claude $(ARGS)

e2e-claude-newest: $(READY)  ## the same with the Claude Code that npm has today
	@$(BIN)/python -m e2e.claude --newest $(ARGS)

e2e-vllm: $(READY)  ## the anthropic SDK against a real vLLM (CPU build, a tiny model; large downloads, once)
	@$(BIN)/python -m e2e.vllm $(ARGS)

tiny-model: $(READY)  ## make the tiny model that calls tools (45 minutes on one core, once)
	@$(BIN)/python -m tiny_model $(ARGS)

record: $(READY)  ## record the cassettes again, from a real vLLM serving the tiny model
	@$(BIN)/python -m cassettes.record $(ARGS)

bench: $(READY)  ## CPU time of the gateway beside its peers; ARGS=--help lists what can be chosen
	@$(BIN)/python -m bench.run $(ARGS)

load: $(READY)  ## many streams, many turns, clients that stop reading: nothing lost, memory flat (ten minutes)
	@$(BIN)/python -m load.run $(ARGS)

load-short: $(READY)  ## the same in under a minute
	@$(BIN)/python -m load.run --short $(ARGS)

faults: $(READY)  ## whatever can fail, at every place of a request, and answers cut at every byte (some minutes)
	FAULTS=long $(BIN)/pytest tests/faults $(ARGS)

compare: $(READY)  ## what this gateway and its peers do with the same requests
	@$(BIN)/python -m e2e.compare $(ARGS)

fuzz: .cache/fuzz/venv/.ready  ## atheris on what reads bytes, schemathesis on the routes; ARGS='--seconds 600 sse'
	@.cache/fuzz/venv/bin/python -m tests.fuzz $(ARGS)

# An environment of its own: schemathesis would be a plugin of every test.
.cache/fuzz/venv/.ready: pyproject.toml
	@test -x .cache/fuzz/venv/bin/python || $(PYTHON) -m venv .cache/fuzz/venv
	.cache/fuzz/venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	.cache/fuzz/venv/bin/python -m pip install --quiet --disable-pip-version-check --editable . --group fuzz
	@touch $@

docs: .venv/.docs  ## build the pages into site/, as strictly as can be
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.venv/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	@touch $@

clean:  ## remove everything that `make install` and the tests left
	rm -rf .venv .cache build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
