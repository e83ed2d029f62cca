# make demo           profile, plan and train 20 devices, compare with FedAvg, draw pictures
# make test           the test suite
# make test-browser   tests of the web pages, in Chromium
# make check          linters, types, layers, packages, docs, then all tests: what CI runs
# make coverage       the test suite, and which branches it did not take; fails if too many
# make mutants        small changes to the code that no test notices;
#                     MUTANTS="planning --count 40 --seed 1" chooses room, number and seed
# make docs           the documentation site, into build/site; warnings and dead links are errors
# make bench          measured ratios against peers and limits
# make bench-peers    Airsplit next to its peers, each in its own environment below build/peers
# make bench-network  the network on shaped links (needs root and iproute2)
# make bench-chaos    the network while devices and servers are killed at random
# make audit          licenses into docs/dependencies.md, and known vulnerabilities (online)
# make zoo            profile and cut the models of torchvision and Hugging Face
# make clean          delete everything that the others made
#
# Each target sets up what it needs in .venv, and is quick the second time.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ZOO_READY := $(VENV)/.zoo-ready
OUT := out
PIP_OPTIONS ?=
MUTANTS ?=
MUTMUT_READY := build/mutants/.ready
PEERS := $(patsubst benchmarks/peers/requirements-%.txt,build/peers/%/.ready,$(wildcard benchmarks/peers/requirements-*.txt))

.PHONY: demo test test-browser coverage check lint wheel proto bench bench-peers bench-network bench-chaos mutants docs audit zoo clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Airsplit needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) (once; torch makes it a minute or two) …"
	@if [ -d $(VENV) ] && [ ! -e $(VENV)/.made-by-make ]; then \
	  echo "$(VENV) exists and was not made by make: adding what Airsplit needs, deleting nothing"; \
	else $(PYTHON) -m venv --clear $(VENV) && touch $(VENV)/.made-by-make; fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) --constraint constraints.txt --editable '.[dev,docs,network,dashboard]'
	@touch $@

demo: $(READY)
	@rm -rf $(OUT)/demo
	@mkdir -p $(OUT)/demo
	@echo "1. What each layer of the model computes and sends"
	@$(BIN)/airsplit profile alexnet32 --model-arg width=0.25 --model-arg channels=1 --plot $(OUT)/demo/profile.png
	@echo "2. Where to cut it for 20 unequal devices, and how to share the band"
	@$(BIN)/airsplit plan demo --out $(OUT)/demo/plan.json
	@echo "3. Which device holds which digits"
	@$(BIN)/airsplit data digits --plot $(OUT)/demo/labels.png
	@echo "4. Train: split federated learning and federated averaging"
	@$(BIN)/airsplit compare demo --algorithms sfl,fedavg --seeds 1 --out $(OUT)/demo/runs
	@$(BIN)/airsplit export $(OUT)/demo/runs/sfl-seed0 --average --out $(OUT)/demo/model.safetensors
	@echo
	@echo "Compare two columns: the final accuracy, and the time to reach the same accuracy."
	@echo "Pictures and pages are in $(OUT)/demo: profile.png, labels.png, runs/report.html,"
	@echo "runs/sfl-seed0/report.html; the trained model is model.safetensors."

test: $(READY)
	@$(BIN)/python -m pytest -q -n 2

# Installs Debian's Chromium if there is none.
test-browser: $(READY)
	@command -v chromium > /dev/null || { echo "Installing Chromium …"; \
	  $(if $(filter 0,$(shell id -u)),,sudo) sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium' > /dev/null; }
	@$(BIN)/python -m pytest -q tests/browser

coverage: $(READY)
	@rm -f .coverage .coverage.*
	@mkdir -p $(OUT)
	@$(BIN)/python -m pytest -q -n 2 --cov --cov-report=json:$(OUT)/coverage.json
	@$(BIN)/python tests/branches.py $(OUT)/coverage.json

check: lint wheel docs test test-browser

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# Checks what the packages contain, and that the wheel works in an empty environment.
wheel: $(READY)
	@rm -rf dist build/wheel-check
	@$(BIN)/python -m build --outdir dist . > /dev/null
	@$(BIN)/python tests/packages.py dist
	@$(PYTHON) -m venv build/wheel-check
	@build/wheel-check/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) --constraint constraints.txt dist/*.whl
	@cd build && wheel-check/bin/airsplit --version && wheel-check/bin/airsplit plan paper-alexnet --json > /dev/null && wheel-check/bin/airsplit doctor
	@cd build && ! wheel-check/bin/airsplit dashboard
	@rm -rf build/wheel-check
	@echo "The packages are complete; the wheel installs into an empty environment and plans."

docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The documentation is in build/site. To read it with search:"
	@echo "  python3 -m http.server --bind 127.0.0.1 --directory build/site"

# Without --strict, pip-audit skips packages that its database has no answer for.
audit: $(READY)
	@$(BIN)/python docs/_site/dependencies.py
	@$(BIN)/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

bench: $(READY)
	@$(BIN)/python benchmarks/planner.py
	@$(BIN)/python benchmarks/models.py
	@$(BIN)/python benchmarks/training.py

# If a peer cannot be installed, the tables say so, and the others are measured.
build/peers/%/.ready: benchmarks/peers/requirements-%.txt benchmarks/peers/constraints.txt
	@echo "Setting up build/peers/$* (once) …"
	@rm -rf build/peers/$*
	@mkdir -p build/peers
	@{ $(PYTHON) -m venv build/peers/$* && build/peers/$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint benchmarks/peers/constraints.txt --requirement $< && touch $@; } 2> build/peers/$*.log \
	  || { rm -rf build/peers/$*; echo "$* cannot be installed; see build/peers/$*.log."; }

bench-peers: $(READY) $(PEERS)
	@PYTHONPATH=benchmarks $(BIN)/python -m peers.run --out benchmarks/results/peers.md

bench-network: $(READY)
	@PYTHONPATH=benchmarks $(BIN)/python -m network.run

bench-chaos: $(READY)
	@PYTHONPATH=benchmarks $(BIN)/python -m network.run --only chaos

# mutmut has its own environment; the tests run in the package's.
$(MUTMUT_READY):
	@echo "Setting up build/mutants (once) …"
	@rm -rf build/mutants
	@$(PYTHON) -m venv build/mutants/venv
	@build/mutants/venv/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) --constraint constraints.txt mutmut==3.8.1 libcst==1.9.0
	@touch $@

mutants: $(READY) $(MUTMUT_READY)
	@build/mutants/venv/bin/python benchmarks/mutants.py $(MUTANTS)

# The generated code is committed, so that installing needs no protoc; a test compares it.
proto: $(READY)
	@$(BIN)/python -m grpc_tools.protoc -Isrc/airsplit/network/wire --python_out=src/airsplit/network/wire --pyi_out=src/airsplit/network/wire airsplit.proto

$(ZOO_READY): $(READY)
	@echo "Adding torchvision and transformers to $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[zoo]'
	@touch $@

zoo: $(ZOO_READY)
	@PYTHONPATH=benchmarks $(BIN)/python -m zoo.run --out benchmarks/results/zoo.md

clean:
	@rm -rf $(VENV) build dist $(OUT) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.*
