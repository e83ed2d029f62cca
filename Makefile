# make demo   the whole job on the built-in digits: profile, plan, train 20 devices, compare with FedAvg, pictures
# make test   the test suite;  make test-browser  the web pages, in Chromium
# make coverage  the tests once more, and which branches of the code they did not take; fails where those are too many
# make mutants  a sample of small changes of the code, and which of them no test notices; MUTANTS="planning --count 40 --seed 1" chooses
# make docs   the documentation site, into build/site; a warning or a link that leads nowhere is an error
# make check  linters, types, layers, packages, documentation, then the tests: what CI runs
# make bench  measured ratios against peers and limits
# make bench-peers  Airsplit beside its peers, each in an environment of its own under build/peers
# make bench-network  the networked system on shaped links (needs root and iproute2);  make bench-chaos  and under attack by chance
# make audit  licences of all dependencies, into docs/dependencies.md, and their known vulnerabilities (needs the advisory database)
# make zoo    profile and cut the networks of torchvision and Hugging Face
# Each sets up everything it needs in .venv, and is quick the second time.

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
	  echo "$(VENV) is there already, and not made by make: what Airsplit needs is added to it, and nothing is deleted"; \
	else $(PYTHON) -m venv --clear $(VENV) && touch $(VENV)/.made-by-make; fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) --constraint constraints.txt --editable '.[dev,docs,network,dashboard]'
	@touch $@

demo: $(READY)
	@rm -rf $(OUT)/demo
	@mkdir -p $(OUT)/demo
	@echo "1. What each layer of the model computes and sends"
	@$(BIN)/airsplit profile alexnet32 --model-arg width=0.25 --model-arg channels=1 --plot $(OUT)/demo/profile.png
	@echo "2. Where to cut it for 20 unequal devices, and how to share the radio"
	@$(BIN)/airsplit plan demo --out $(OUT)/demo/plan.json
	@echo "3. Who holds which digits"
	@$(BIN)/airsplit data digits --plot $(OUT)/demo/labels.png
	@echo "4. Train, split federated learning beside federated averaging"
	@$(BIN)/airsplit compare demo --algorithms sfl,fedavg --seeds 1 --out $(OUT)/demo/runs
	@$(BIN)/airsplit export $(OUT)/demo/runs/sfl-seed0 --average --out $(OUT)/demo/model.safetensors
	@echo
	@echo "Two columns tell the story: the accuracy at the end, and the time to the same accuracy."
	@echo "Look at $(OUT)/demo: profile.png, labels.png, runs/report.html and runs/sfl-seed0/report.html;"
	@echo "the trained model is model.safetensors."

test: $(READY)
	@$(BIN)/python -m pytest -q -n 2

# Pages in a real browser: Debian's Chromium, which is installed where there is none.
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

# The packages hold what they must and no more, and the wheel, made from the source package, works in an empty environment.
wheel: $(READY)
	@rm -rf dist build/wheel-check
	@$(BIN)/python -m build --outdir dist . > /dev/null
	@$(BIN)/python tests/packages.py dist
	@$(PYTHON) -m venv build/wheel-check
	@build/wheel-check/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) --constraint constraints.txt dist/*.whl
	@cd build && wheel-check/bin/airsplit --version && wheel-check/bin/airsplit plan paper-alexnet --json > /dev/null && wheel-check/bin/airsplit doctor
	@cd build && ! wheel-check/bin/airsplit dashboard
	@rm -rf build/wheel-check
	@echo "The packages hold what they must, and the wheel installs into an empty environment and plans."

docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The documentation is in build/site; to read it with search: python3 -m http.server --bind 127.0.0.1 --directory build/site"

# pip-audit skips what its database does not answer for; --strict makes that an error.
audit: $(READY)
	@$(BIN)/python docs/_site/dependencies.py
	@$(BIN)/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

bench: $(READY)
	@$(BIN)/python benchmarks/planner.py
	@$(BIN)/python benchmarks/models.py
	@$(BIN)/python benchmarks/training.py

# A peer that cannot be installed is told so in the tables; the others are measured all the same.
build/peers/%/.ready: benchmarks/peers/requirements-%.txt benchmarks/peers/constraints.txt
	@echo "Setting up build/peers/$* (once) …"
	@rm -rf build/peers/$*
	@mkdir -p build/peers
	@{ $(PYTHON) -m venv build/peers/$* && build/peers/$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint benchmarks/peers/constraints.txt --requirement $< && touch $@; } 2> build/peers/$*.log \
	  || { rm -rf build/peers/$*; echo "$* cannot be installed: build/peers/$*.log says why."; }

bench-peers: $(READY) $(PEERS)
	@PYTHONPATH=benchmarks $(BIN)/python -m peers.run --out benchmarks/results/peers.md

bench-network: $(READY)
	@PYTHONPATH=benchmarks $(BIN)/python -m network.run

bench-chaos: $(READY)
	@PYTHONPATH=benchmarks $(BIN)/python -m network.run --only chaos

# mutmut has an environment of its own; the tests run in that of the package.
$(MUTMUT_READY):
	@echo "Setting up build/mutants (once) …"
	@rm -rf build/mutants
	@$(PYTHON) -m venv build/mutants/venv
	@build/mutants/venv/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS) --constraint constraints.txt mutmut==3.8.1 libcst==1.9.0
	@touch $@

mutants: $(READY) $(MUTMUT_READY)
	@build/mutants/venv/bin/python benchmarks/mutants.py $(MUTANTS)

# What protoc makes of the messages is committed, so that nobody needs it to install; a test compares.
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
