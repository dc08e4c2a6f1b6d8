# Every target prepares what it needs: a virtual environment in .venv from the lock, and for a control plane its programs,
# built once into a per-user cache. `make help` lists the targets.

PYTHON ?= python3
UPGRADE ?= --upgrade
BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/python -m pytest
# These tests alone have to cover the model and the engine; the others run twice as fast without tracing.
COVERING := tests/api tests/engine tests/scenarios
# Some of the others wait: with one worker more than there are cores, none is idle meanwhile.
MANY := -n $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 ))) --dist worksteal
# Budgets of CPU time are tested alone, without tracing and without other tests beside them.
SPEED := $(wildcard tests/*/test_speed.py)

# Python keeps the bytecode of tests, which saves each worker a second and a half, even where the environment forbids it.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo lab-up lab-down test quick lint unit scenario e2e workloads hooks images generate bench bench-peer crash
.PHONY: simulate mutations fuzz hostile fuzz-workloads fuzz-simulate fuzz-devices fuzz-cel fuzz-claims soak
.PHONY: chaos release-cli lock clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

setup: $(READY) ## install the locked dependencies and the project into .venv

$(READY): requirements/dev.lock pyproject.toml tools/setup.sh
	@PYTHON="$(PYTHON)" sh tools/setup.sh

demo: $(READY) ## show a local cluster with the chart: a tree that waits, is placed, and is preempted
	@$(BIN)/python tools/demo.py

lab-up: $(READY) ## start a local cluster that keeps running (LAB="--gates native", see cpg-lab up --help)
	@$(BIN)/cpg-lab up $(LAB)

lab-down: $(READY) ## stop every local cluster of this checkout
	@$(BIN)/cpg-lab down --all

test: lint unit simulate e2e ## run all checks and all tests, and play 500 nights

quick: $(READY) ## check what has changed, in less than a minute: style, types, imports, prose, unit tests concerned
	@$(BIN)/python tools/quick.py $(if $(SINCE),--since $(SINCE))

lint: $(READY) ## check style, types, import contracts and generated files
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/generate_crds.py --check
	$(BIN)/python tools/generate_metrics.py --check
	$(BIN)/python tools/generate_board.py --check
	$(BIN)/python tools/generate_reference.py --check
	$(BIN)/python tools/generate_diagrams.py --check

unit: $(READY) ## run the tests that need no control plane; model and engine have to be covered
	$(PYTEST) -n auto --dist worksteal -m "not speed" $(COVERING) --cov --cov-report=term --cov-fail-under=100
	$(PYTEST) $(MANY) -m "not speed" $(COVERING:%=--ignore=%) --ignore=tests/e2e
	$(PYTEST) -m speed $(SPEED)

scenario: $(READY) ## play one scenario and print every decision with its reasons (NAME=kep-6012/example)
	@$(BIN)/python tools/scenario.py "$(NAME)"

# Most of these tests wait most of the time, and control planes spend less time on garbage if they may have more of it.
e2e: $(READY) ## run the tests against real control planes, and the chart on real nodes if this machine can
	@$(BIN)/cpg-lab build
	@why=$$(sh tools/realnode.sh) && tests="e2e and not workloads" || tests="e2e and not workloads and not realnode"; \
	GOGC=400 $(PYTEST) tests/e2e -m "$$tests" -n 4 --dist loadfile --no-loadscope-reorder && \
	{ [ "$$tests" = "e2e and not workloads" ] || echo "NOT RUN: the chart in containers (pytest -m realnode): $$why"; }

workloads: $(READY) ## run the tests with the real controllers of JobSet, LeaderWorkerSet, Ray, Kubeflow Trainer and Kueue
	@$(BIN)/cpg-lab build --all
	$(PYTEST) tests/e2e -m workloads -n 2 --dist loadfile

hooks: $(READY) ## check every commit before it is made: style, types, imports, prose (.pre-commit-config.yaml)
	$(BIN)/pre-commit install

images: $(READY) ## build the container image (IMAGE="--base stand-in" if no base can be pulled, see tools/images.py --help)
	@$(BIN)/python tools/images.py $(IMAGE)

release-cli: $(READY) ## build the archives of kubectl cpg and its Krew manifest into dist/ (RELEASE="--url https://...", see tools/release_cli.py --help)
	@$(BIN)/python tools/release_cli.py $(RELEASE)

generate: $(READY) ## write the generated files
	$(BIN)/python tools/generate_crds.py
	$(BIN)/python tools/generate_board.py
	$(BIN)/python tools/generate_manifests.py
	$(BIN)/python tools/generate_metrics.py
	$(BIN)/python tools/generate_reference.py
	$(BIN)/python tools/generate_diagrams.py

bench: $(READY) ## measure the API model and the engine against their budgets
	$(BIN)/python bench/api.py
	$(BIN)/python bench/engine.py
	$(MAKE) bench-peer

bench-peer: $(READY) ## compare our scheduler with kube-scheduler (PEER="--quick trees", see bench/peer.py --help)
	@$(BIN)/cpg-lab build
	$(BIN)/python bench/peer.py $(PEER)

crash: $(READY) ## kill the scheduler twenty times while it binds and while it evicts, and stop the API server for 30 s
	CRASHES=20 OUTAGE=30 CRASH_RESULTS=bench/results $(PYTEST) $(addprefix tests/e2e/scheduler/crashes/test_,kills.py evictions.py outages.py)

simulate: $(READY) ## play nights in which everything fails, in virtual time (SEEDS=1-500, ARGS="--story --shrink", tests/simulation/README.md)
	@PYTHONPATH=tests/simulation $(BIN)/python -m cpg_simulation --seeds $(or $(SEEDS),1-500) $(ARGS)

mutations: $(READY) ## plant each bug of tests/simulation/mutations, and play nights until one shows it (NAME=fence, SEEDS=1-500)
	@PYTHONPATH=tests/simulation:bench $(BIN)/python -m cpg_simulation.mutations $(NAME) --seeds $(or $(SEEDS),1-500) --results bench/results $(ARGS)

fuzz: $(READY) ## fuzz decoders, HTTP, CEL, kubeconfigs and settings by coverage for ten minutes (SECONDS=60, SEED=1, FUZZ=--keep)
	$(BIN)/python bench/fuzz.py --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) $(FUZZ)

hostile: $(READY) ## send 100,000 malformed or extreme objects to the decoders and to an API server (OBJECTS=1000, SEED=1)
	HOSTILE_OBJECTS=$(or $(OBJECTS),100000) HOSTILE_SEED=$(or $(SEED),1) HOSTILE_RESULTS=bench/results $(PYTEST) -n 2 tests/hostile
	HOSTILE_OBJECTS=$(or $(OBJECTS),100000) HOSTILE_SEED=$(or $(SEED),1) HOSTILE_RESULTS=bench/results $(PYTEST) tests/e2e/hostile

fuzz-workloads: $(READY) ## play 200 seeded runs of owners of pods against a model (RUNS=20, SEED=1 for the first seed)
	FUZZ_RUNS=$(or $(RUNS),200) FUZZ_SEED=$(or $(SEED),1) FUZZ_MAX_SECONDS=5 FUZZ_RESULTS=bench/results $(PYTEST) tests/e2e/owners/test_seeded_runs.py

fuzz-simulate: $(READY) ## compare 200 seeded simulations with the scheduler on a real API server (RUNS=20, SEED=1 for the first seed)
	SIMULATE_RUNS=$(or $(RUNS),200) SIMULATE_SEED=$(or $(SEED),1) SIMULATE_RESULTS=bench/results $(PYTEST) tests/e2e/cli/test_simulated_runs.py

fuzz-devices: $(READY) ## compare 10,000 random allocations of devices with Kubernetes' own allocator (CASES=1000, SEED=1 for the first seed)
	DEVICE_CASES=$(or $(CASES),10000) DEVICE_SEED=$(or $(SEED),0) DEVICE_RESULTS=bench/results $(PYTEST) tests/e2e/differential/test_devices.py

fuzz-cel: $(READY) ## compare 10,000 seeded device selectors with upstream's compiler (CASES=1000, SEED=1 for the seed)
	CEL_CASES=$(or $(CASES),10000) CEL_SEED=$(or $(SEED),1) CEL_RESULTS=bench/results $(PYTEST) -s tests/e2e/differential/test_cel.py

fuzz-claims: $(READY) ## create and delete pods with claims while the scheduler is killed, and check every device (RUNS=20, SEED=1 for the first seed)
	CHURN_RUNS=$(or $(RUNS),10) CHURN_SEED=$(or $(SEED),1) CHURN_SECONDS=30 $(PYTEST) tests/e2e/devices/test_churn.py

soak: $(READY) ## change a cluster at random for half an hour and measure the scheduler's memory (SOAK=120 for two minutes, API=native)
	$(BIN)/python bench/soak.py --seconds $(or $(SOAK),1800) --api $(or $(API),crd)

chaos: $(READY) ## kill, suspend and cut off every process of a real control plane under load for 20 minutes (MINUTES=1, SEED=1)
	@$(BIN)/cpg-lab build
	PYTHONPATH=tests/chaos:bench $(BIN)/python -m cpg_chaos --minutes $(or $(MINUTES),20) --seed $(or $(SEED),1)

lock: $(READY) ## pin the newest versions of all dependencies with hashes (UPGRADE= keeps what is pinned, adds what is missing)
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		$(UPGRADE) -o requirements/runtime.lock pyproject.toml
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		$(UPGRADE) --constraints requirements/runtime.lock --group processes -o requirements/processes.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		$(UPGRADE) --group dev -o requirements/dev.lock pyproject.toml
	echo pip | $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		$(UPGRADE) -o requirements/image.lock -

clean: ## remove what was built or installed in this checkout (not the per-user cache)
	rm -rf .venv .lab build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage*
