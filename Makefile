# Pombo. The two commands to know: make run, make test.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORTS ?=
# sqlite, firestore or redis: make run STORE=redis
STORE ?=
# The only list of services.
ALL_SERVICES := $(shell cat services/names.txt 2>/dev/null)
# The data directory of run: make run DATA=.pombo2 PORTS=9000 starts a second stack next to the first
DATA ?=
# Options for pytest, for example to select tests: make test ARGS="-k receipts"
ARGS ?=
# Parallel test processes: they wait half of the time. The contract suites, with their 64 threads, run separately.
WORKERS ?= 5
# The tests start hundreds of Python processes, and each would compile all modules if the environment forbade a cache.
quick test test-all: export PYTHONDONTWRITEBYTECODE :=
# Programs started here name make's variables in their errors (local/invocation.py).
run demo try chaos: export POMBO_CALLED_BY := make
# The pombo option for a variable that has a value, or is set but empty: then pombo reports which values it takes.
option = $(if $(or $($(1)),$(filter command,$(origin $(1)))),--$(2) '$(subst ','\'',$($(1)))')
# Refuse a variable that the goal does not take, instead of ignoring it.
takes = @$(foreach name,$(filter-out $(1),STORE DATA PORTS MESSAGES SECONDS SEED),$(if $(filter command,$(origin $(name))),\
	echo "pombo: make $@ takes no $(name); it takes: $(1)" >&2; exit 2;)) :
CONTRACT := -n 3 --dist worksteal
TOGETHER = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/contract
# make quick: three processes, because some tests wait; without the tests that start pytest or pip-audit many times.
QUICK := -n 3 --dist loadfile --no-loadscope-reorder $(patsubst %,--ignore tests/unit/test_%.py,\
	audit beside_a_stack mutation watchdog)
QUICK_STACK := tests/services/test_stack_duplicates.py::test_a_webhook_that_comes_three_times_is_answered_once
# make chaos: the number of messages, the duration, and the random seed
MESSAGES ?=
SECONDS ?=
SEED ?=
# make deploy: staging or prod
ENVIRONMENT ?=
# make rollback, drop-candidate: which services
SERVICES ?= $(ALL_SERVICES)

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev python-as-asked run demo try quick test test-all contract compiled check lint types format lock images pin-images mirror-images deploy rollback drop-candidate chaos mutants bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup: python-as-asked $(VENV)/.run-time ## create the virtual environment, with the run-time packages
setup-dev: python-as-asked $(VENV)/.development ## the same, with the development packages

# pip's output on a failure is long: it goes to a file, and one sentence says what to do.
# In CI the modules that are imported are compiled when they are, in several processes; pip would compile all, in one.
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check --retries 2 $(if $(CI),--no-compile)
define install
	@{ $(PIP) --require-hashes -r $(1) && $(PIP) --no-deps --no-build-isolation -e .; } >$(VENV)/pip.log 2>&1 \
		|| { echo "pombo: Cannot install the packages of $(1): check that the package index answers (PyPI, or the one in" \
			"PIP_INDEX_URL), then run make again; $(VENV)/pip.log has pip's output" >&2; exit 1; }
endef

# A virtual environment works only with the Python that created it.
VERSION_OF = -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
define check-python
	@test ! -x $(BIN)/python || { asked=$$($(PYTHON) $(VERSION_OF)) \
		|| { echo "pombo: $(PYTHON) does not run here; $(VENV) already exists, so omit PYTHON" >&2; exit 1; }; \
		there=$$($(BIN)/python $(VERSION_OF)); test "$$asked" = "$$there" \
		|| { echo "pombo: $(VENV) has Python $$there and $(PYTHON) is Python $$asked: omit PYTHON, or remove" \
			"$(VENV) and run make again" >&2; exit 1; }; }
endef
python-as-asked:
	$(if $(filter command,$(origin PYTHON)),$(check-python),@:)

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null \
		|| { echo "pombo: $(PYTHON) is not installed; name Python 3.11 or newer, for example: make $(or $(MAKECMDGOALS),run) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "pombo: $(PYTHON) is not Python 3.11 or newer; name one that is, for example: make $(or $(MAKECMDGOALS),run) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "pombo: Python's venv is missing; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "• Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "pombo: Cannot create the virtual environment $(VENV)" >&2; exit 1; }

$(VENV)/.run-time: requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "• Installing the run-time packages (about half a minute the first time)"
	$(call install,requirements.lock)
	@touch $@

$(VENV)/.development: requirements-dev.lock pyproject.toml | $(VENV)/bin/python
	@echo "• Installing the development packages"
	$(call install,requirements-dev.lock)
	@touch $@ $(VENV)/.run-time

run: setup ## start all of Pombo on this machine and send a first message: STORE=redis, DATA=.pombo2 PORTS=9000
	$(call takes,STORE DATA PORTS)
	@exec $(BIN)/python -m cli.tour $(call option,STORE,store) $(call option,DATA,data-dir) $(call option,PORTS,ports)

demo: setup ## the same, then stop: exit 0 if the reply was sent
	$(call takes,STORE PORTS)
	@exec $(BIN)/python -m cli.tour --once $(call option,STORE,store) $(call option,PORTS,ports)

try: setup ## send every sample webhook to Pombo and show each outcome
	$(call takes,STORE PORTS)
	@exec $(BIN)/python -m cli.tour samples $(call option,STORE,store) $(call option,PORTS,ports)

quick: setup-dev ## the unit tests, and one webhook through a running stack, in under a minute on two cores; no check
	@$(BIN)/python -m pytest $(QUICK) -q -m "not slow" $(QUICK_STACK) tests/unit $(ARGS)

test: setup-dev ## check, then every test that is quick enough for CI
	$(call tested,-m "not slow")

test-all: setup-dev ## every test
	$(call tested)

# The contract suites mostly wait, so mypy, which takes one core for a minute, runs beside them and gives way to them.
define tested
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory --jobs 2 compiled contract SELECTED='$(1)'
	@$(BIN)/python -m pytest $(TOGETHER) $(1) $(ARGS) || test $$? -eq 5
endef

contract: setup-dev
	@$(BIN)/python -m pytest $(CONTRACT) $(SELECTED) tests/contract $(ARGS) || test $$? -eq 5

# pytest rewrites every assert and keeps the result. Without this each of its processes would, in a fresh clone. What
# cannot be collected is reported by the run itself.
compiled: setup-dev
	@nice $(MAKE) --no-print-directory types
	@nice $(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || :

check: lint types ## formatting, lint, types, known vulnerabilities of the dependencies

lint: setup-dev
	@$(BIN)/ruff format --check --quiet . || { echo "pombo: make format fixes this" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .

types: setup-dev
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python .ci/audit.py requirements.lock requirements-dev.lock

format: setup-dev ## format the code
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

UV_COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header

lock: setup-dev ## regenerate the lock files from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	@$(UV_COMPILE) pyproject.toml -o requirements.lock
	@$(UV_COMPILE) --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	@for service in $(ALL_SERVICES); do \
		$(UV_COMPILE) -c requirements.lock --group pyproject.toml:$$service -o services/$$service/requirements.txt; \
	done
	@$(UV_COMPILE) -c requirements.lock bench/baselines/requirements.in -o bench/baselines/requirements.txt

images: ## build the images of all services with this machine's Docker
	@docker version --format '{{.Server.Version}}' >/dev/null 2>&1 \
		|| { echo "pombo: Docker does not answer here; cloudbuild.yaml builds the images in the project" >&2; exit 1; }
	@for service in $(ALL_SERVICES); do \
		docker build --file services/$$service/Dockerfile --build-arg PYTHON_IMAGE="$$(cat services/base-image.txt)" \
			--tag pombo/$$service . || exit 1; \
	done

pin-images: setup ## pin the digests of the images that the builds use
	@$(BIN)/python -m infra.release.pin_images

mirror-images: setup ## copy those images into the project's registry, and print the substitutions that select them: PROJECT=, REGION=
	$(somewhere)
	@$(BIN)/python -m infra.release.mirror --project="$(PROJECT)" --region="$(REGION)"

chaos: setup ## inject faults while messages arrive, and account for each: STORE=, MESSAGES=, SECONDS=, SEED=
	$(call takes,STORE MESSAGES SECONDS SEED)
	@exec $(BIN)/pombo chaos $(call option,STORE,store) $(call option,MESSAGES,messages) \
		$(call option,SECONDS,seconds) $(call option,SEED,seed)

mutants: setup-dev ## plant small mistakes in the code and list those that no test notices (hours): make mutants ARGS=--domain
	@exec nice -n 15 $(BIN)/python -m tests.mutation $(ARGS)

deploy: ## deploy to an empty project with billing, or deploy what has changed: PROJECT=, REGION=, ENVIRONMENT=prod
	@test -n "$(PROJECT)" -a -n "$(REGION)" \
		|| { echo "pombo: say where: make deploy PROJECT=my-project REGION=europe-west1" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "pombo: $(PYTHON) is not Python 3.11 or newer; name one that is, for example: make deploy PYTHON=python3.12" >&2; exit 1; }
	@exec $(PYTHON) -m infra.release.deploy --project="$(PROJECT)" --region="$(REGION)" $(call option,ENVIRONMENT,environment)

rollback: ## serve the image from before the last promotion again: make rollback PROJECT=my-project REGION=europe-west1
	$(call of-a-service,rollback)

drop-candidate: ## remove the image of an interrupted deployment from the services: PROJECT=, REGION=
	$(call of-a-service,drop)

define somewhere
	@test -n "$(PROJECT)" -a -n "$(REGION)" \
		|| { echo "pombo: say where: make $@ PROJECT=my-project REGION=europe-west1" >&2; exit 2; }
endef
define of-a-service
	$(somewhere)
	@$(PYTHON) -m infra.release.candidate $(1) $(SERVICES) --project="$(PROJECT)" --region="$(REGION)"
endef

bench: setup-dev ## measure the services beside other servers, in the same run: make bench ARGS="--rounds 1 --seconds 1"
	@exec $(BIN)/python -m bench $(ARGS)

clean: ## remove everything that make created, including the data of make run
	@rm -rf $(VENV) .pombo .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
