# mqstore: two commands do everything on a fresh machine: `make run` and `make test`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Compiled modules are kept, whatever the environment says: without them a service's start takes twice the CPU.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; done)
VENV := .venv
BIN := $(VENV)/bin
STORE ?= data/store
OUT ?= build/expiry
ARGS ?=
# Tests wait for services, disks and JVMs about half of their time, so two cores serve four workers.
WORKERS ?= 4
# A test that fails is run once more, and named at the end when it passes then: it, or the code, has a race.
AGAIN ?= --reruns 1 --rerun-except TimedOut
ROWS ?=
STATES ?= 20000
SCHEDULES ?=
STORES ?=
SEED ?=
PART ?=
JOBS ?=
FUZZ_RECORDS ?= 10000000
KILLS ?= 100
KINDS ?=
MINUTES ?= 60
IMAGES ?= services spark
IMAGE_PREFIX ?=
IMAGE_BUILD ?=
KUBE ?= ../shared/kube
# What upgrades begin at: the last release, and before the first one the first chart there was.
PREVIOUS ?= $(shell git describe --tags --abbrev=0 2>/dev/null || \
	git log --diff-filter=A --format=%h -- charts/mqstore/Chart.yaml 2>/dev/null | tail -1)
VERSION := $(shell sed -n 's/^version: //p' charts/mqstore/Chart.yaml)

PACKAGES := libs/wire libs/storage libs/service libs/client libs/cli services/store-writer services/query \
	services/transaction-coordinator
PIP := $(BIN)/python -m pip --disable-pip-version-check
# uv installs in seconds what takes pip minutes. It does not read pip's index, so it is given it.
UV_INSTALL := UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$($(PIP) config get global.index-url 2>/dev/null)}" \
	$(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python
# Third-party packages come from the locks, so that nothing is resolved when ours are installed.
INSTALL_LOCKED := $(UV_INSTALL) --require-hashes --requirement
INSTALL_OURS := $(UV_INSTALL) --no-deps --no-build-isolation
JOBS_PACKAGE := spark-jobs
SETUP_INPUTS := requirements/build.txt requirements/run.txt libs/storage/setup.py \
	$(addsuffix /pyproject.toml,$(PACKAGES))
KERNEL := $(addprefix libs/storage/mqstore/storage/,_kernel.pyx _kernel.h) \
	$(wildcard libs/storage/mqstore/storage/kernel/*.pxi)
# Stamps stand for what is installed; they lie in the virtual environment and go with it.
RUN_READY := $(VENV)/.ready-to-run
TEST_READY := $(VENV)/.ready-to-test
SPARK_READY := $(VENV)/.ready-for-spark
DOCS_READY := $(VENV)/.ready-for-docs
SANITIZE := -fsanitize=address,undefined
FUZZ_KERNEL := build/fuzz/.ready

.PHONY: run test test-ci e2e e2e-full e2e-failover images previous browser prometheus nightly setup index-rebuild expiry-report bench growth simulate simulate-shard soak \
	fuzz docs lint fmt clean help

run: export MQSTORE_STORE = $(STORE)
run: $(RUN_READY) ## start the services over STORE (default data/store); Ctrl-C ends them
	@$(BIN)/mqstore run --parent-pid $$PPID $(ARGS)

test: $(TEST_READY) ## run all tests that need no cluster; names those that it had to skip
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow and not nightly" $(AGAIN) $(ARGS)

test-ci: $(SPARK_READY) ## run the longer tests: simulation, fuzz, random stores, Spark
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "slow and not nightly" --timeout 1200 $(AGAIN) $(ARGS)

images: ## build the images of the services and of Spark, by docker, podman or buildah, or IMAGE_BUILD=TOOL; IMAGE_PREFIX=…/ BASE_IMAGE=NAME@sha256:…
	@build='$(IMAGE_BUILD)' base='$(BASE_IMAGE)'; for name in $(IMAGES); do \
		file=docker/$$name.Dockerfile tag=$(IMAGE_PREFIX)mqstore/$$name:$(VERSION); \
		if [ -n "$$build" ]; then $$build $$file . $$tag; \
		elif command -v docker >/dev/null; then docker build $${base:+--build-arg BASE_IMAGE=$$base} -f $$file -t $$tag .; \
		elif command -v podman >/dev/null; then podman build $${base:+--build-arg BASE_IMAGE=$$base} --format docker -f $$file -t $$tag .; \
		elif command -v buildah >/dev/null; then buildah build $${base:+--build-arg BASE_IMAGE=$$base} --layers --format docker -f $$file -t $$tag .; \
		else echo "make images needs docker, podman or buildah, or IMAGE_BUILD=TOOL" >&2; exit 2; fi || exit; \
	done

previous: ## build chart and image of the previous release (PREVIOUS=REF), from which `make e2e-full` upgrades
	@rm -rf build/previous && mkdir -p build/previous
	@git archive $(PREVIOUS) | tar -x -C build/previous
	@$(KUBE)/build-image build/previous/docker/services.Dockerfile build/previous mqstore/services:previous

e2e e2e-full: E2E_TESTS := tests/e2e
e2e: E2E := cluster and not nightly
e2e: E2E_IMAGES := services
e2e-full: E2E := cluster
e2e-full: E2E_IMAGES := services spark
e2e-full: E2E_BEFORE := previous
e2e-failover: E2E := cluster
e2e-failover: E2E_IMAGES := services
e2e-failover: E2E_TESTS := -s tests/e2e/test_many_failovers.py
e2e-failover: AGAIN :=
e2e-failover: export MQSTORE_E2E_KILLS = $(KILLS)
e2e-failover: export MQSTORE_E2E_KINDS = $(KINDS)
e2e e2e-full e2e-failover: $(TEST_READY) ## test the chart on KUBECONFIG's cluster; e2e-full: long tests too, with PREVIOUS=REF; e2e-failover: KILLS=100 leaders, KINDS="delete kill stop partition"
	@[ -n "$$KUBECONFIG" ] || { echo "make $@ needs a cluster: set KUBECONFIG" >&2; exit 2; }
	@# The test cluster's tools lie beside its KUBECONFIG; any other one pulls IMAGE_PREFIX's images.
	@tools=$$(dirname "$$KUBECONFIG")/bin; [ ! -x "$$tools/kubectl" ] || export PATH="$$tools:$$PATH"; \
		if [ -x "$$tools/kubectl" ] && [ -x $(KUBE)/build-image ]; then \
			$(MAKE) $(E2E_BEFORE) images IMAGES="$(E2E_IMAGES)" IMAGE_BUILD=$(KUBE)/build-image || exit; fi; \
		MQSTORE_E2E_IMAGE_PREFIX=$(IMAGE_PREFIX) MQSTORE_E2E_KUBE=$(KUBE) \
		$(BIN)/python -m pytest -m "$(E2E)" $(E2E_TESTS) $(AGAIN) $(ARGS)

browser: ## install Debian's chromium where no chromium is there, as root; `make test` tests the console in it
	@command -v chromium >/dev/null || { apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; }

prometheus: ## get build/prometheus and build/promtool from Debian's package; tests of alerts and dashboard use them
	@rm -rf build/debian && mkdir -p build/debian && cd build/debian && apt-get download -qq prometheus && \
		dpkg-deb -x prometheus_*.deb . && mv -t .. usr/bin/prometheus usr/bin/promtool && rm -rf "$$PWD"

nightly: $(SPARK_READY) ## run all tests, with more and new random examples, for instance 50 stores for each version and direction
	@MQSTORE_EXPLORE=1 MQSTORE_COMPAT_EXAMPLES=50 MQSTORE_COMPAT_MESSAGES=200 $(BIN)/python -m pytest \
		--timeout 0 $(ARGS)

setup: $(RUN_READY) ## install the services and .venv/bin/mqstore into the virtual environment

expiry-report: $(SPARK_READY) ## report what retention will delete of STORE and which groups have not read it, as a page in OUT
	@$(BIN)/mqstore-expiry-report $(STORE) --out "$(OUT)" $(ARGS) || { code=$$?; [ $$code = 1 ] || exit $$code; \
		echo 'mqstore: the report has findings; see the page' >&2; }

growth: $(TEST_READY) ## measure what 10 and 100 times as many topics, queues, groups… cost; ARGS="topics queues": some kinds
	@$(BIN)/python -m tests.bench.growth $(ARGS)

bench: $(SPARK_READY) ## measure against RocketMQ and write the table of docs/benchmarks.md; ROWS="append reads": some rows, no table
	@$(BIN)/python -m tests.bench $(or $(ROWS),--document docs/benchmarks.md)

simulate: $(TEST_READY) ## test crash states on a simulated disk: STATES=1000000, JOBS=1, or SEED=… to replay one
	@$(BIN)/python -m tests.simulation STATES=$(STATES) $(foreach name,SEED PART JOBS,$(if $($(name)),$(name)=$($(name))))

simulate-shard: $(TEST_READY) ## test replicas of a shard over faults: SCHEDULES=100000, STORES=1 with real stores, or SEED=… to show one
	@$(BIN)/python -m tests.simulation.shard $(foreach name,SCHEDULES SEED STORES JOBS,$(if $($(name)),$(name)=$($(name))))

soak: $(SPARK_READY) ## run a mixed load for MINUTES (60) at 70 % of its peak, with a graph of memory and latencies in build/soak.svg
	@$(BIN)/python -m tests.soak --minutes $(MINUTES)

index-rebuild: $(SPARK_READY) ## rebuild the index of STORE (or of several shards) from its log; ARGS=--dry-run, --verify
	@$(BIN)/mqstore-index-rebuild $(STORE) $(ARGS)

fuzz: $(TEST_READY) $(FUZZ_KERNEL) ## test FUZZ_RECORDS (10 million) mutated inputs, with the kernel under the sanitizers
	@LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc $(BIN)/python -m tests.fuzz \
		--kernel build/fuzz/mqstore/storage/_kernel.*.so --records $(FUZZ_RECORDS)

docs: $(DOCS_READY) ## build the documentation site, reference pages included, into build/site
	@mkdir -p build # not --quiet: that lets warnings pass
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build >build/docs.log 2>&1 || { cat build/docs.log; exit 1; }
	@echo "built build/site: open build/site/index.html, or for the search run"
	@echo "  $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000"

lint: $(SPARK_READY) ## check with ruff, mypy --strict, and the direction of imports
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-logo

fmt: $(TEST_READY) ## format the code and sort its imports
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

clean: ## remove everything that was built (never a store)
	rm -rf $(VENV) build libs/storage/build libs/storage/mqstore/storage/_kernel.c libs/storage/mqstore/storage/*.so
	find . -name __pycache__ -prune -exec rm -rf {} +; rm -rf libs/*/*.egg-info services/*/*.egg-info $(JOBS_PACKAGE)/*.egg-info

help: ## print this list
	@awk -F':.*## ' '/^[a-z0-9 -]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "mqstore needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments; install python3-venv" >&2; exit 2; }
	@echo "making a virtual environment in $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)

$(RUN_READY): $(SETUP_INPUTS) $(KERNEL) | $(BIN)/python
	@echo "installing the services (once; a minute or two)" >&2
	@$(PIP) install --quiet --require-hashes --requirement requirements/build.txt
	@command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || \
		$(INSTALL_LOCKED) requirements/compiler.txt
	@$(INSTALL_LOCKED) requirements/run.txt --compile-bytecode
	@$(INSTALL_OURS) $(addprefix --editable ,$(PACKAGES))
	@$(PIP) check >/dev/null || { $(PIP) check; exit 1; }
	@touch $@

# Little is optimized: most of a run's time is Python's.
$(FUZZ_KERNEL): $(KERNEL) libs/storage/setup.py | $(RUN_READY)
	@echo "building the kernel with the address sanitizer (a minute)" >&2
	@mkdir -p build/fuzz
	@cd libs/storage && CFLAGS="-O1 -g1 $(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer" \
		LDFLAGS="$(SANITIZE)" ../../$(BIN)/python setup.py -q build_ext --force \
		--build-lib ../../build/fuzz --build-temp ../../build/fuzz/objects
	@touch $@

$(TEST_READY): $(RUN_READY) $(DOCS_READY) requirements/test.txt $(JOBS_PACKAGE)/pyproject.toml
	@echo "installing the test tools (once)" >&2
	@$(INSTALL_LOCKED) requirements/test.txt
	@$(INSTALL_OURS) --editable $(JOBS_PACKAGE)
	@# Compiles all test modules and what they import once: otherwise each worker of a run does so.
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true
	@touch $@

$(DOCS_READY): $(RUN_READY) requirements/docs.txt
	@echo "installing the generator of the documentation site (once)" >&2
	@$(INSTALL_LOCKED) requirements/docs.txt
	@touch $@

# Spark is large: only its jobs, what tests them and the type checker need it.
$(SPARK_READY): $(TEST_READY) requirements/spark.txt
	@echo "installing Spark (once; 500 MB)" >&2
	@$(INSTALL_LOCKED) requirements/spark.txt
	@touch $@
