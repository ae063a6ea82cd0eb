# One command for each thing; `make help` lists them.

PYTHON ?= python3
EXITD_SCALE ?= 0.02
# How many files of system tests run at once: each test has directories, daemons and containers of its own. Such a file
# waits for most of its time (for limits, deaths, a disk): it takes a quarter to a half of a processor.
WORKERS ?= 4
# Of the others a part waits for a disk or a clock: with two at once no processor is idle beside the C of `make check`.
UNIT_WORKERS ?= 2

export PYTHON EXITD_SCALE

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
C_FILES := $(wildcard shim/*/*.[ch])
PROTO_FILES := $(wildcard protos/*/*.proto protos/*/*/*.proto)
BUILD_FILES := setup.py shim/build_native.py
# So that the exitd and exitctl that tests start by name are this tree's.
RUN := PATH="$(CURDIR)/$(VENV)/bin:$$PATH"
# Which options of exitctl and exitd the tests have used, see tests/optionrecord. Begun anew by the unit tests.
OPTIONS := "$(CURDIR)/build/options"
RECORDED := mkdir -p $(OPTIONS) && $(RUN) OPTIONS_RECORD=$(OPTIONS) \
	PYTHONPATH="$(CURDIR)/tests/optionrecord$${PYTHONPATH:+:$$PYTHONPATH}"
BEGUN := rm -rf $(OPTIONS)
# In the order of tests/conftest.py, long files first.
AT_ONCE := --dist loadfile --no-loadscope-reorder
UNIT = $(RECORDED) $(PY) -m pytest --numprocesses $(UNIT_WORKERS) $(AT_ONCE) \
	--timeout 120 --ignore tests/system -m "not system and not slow_build"
# About half of them, by time; the other half is all the others.
HALF := $(addprefix tests/supervisor/,api cli containerd engine model monitor runtime)
# Named, since every process of the run reads the files of all tests.
SYSTEM_TESTS = tests/system $(shell grep -lr --include='test_*.py' -e mark.slow_build -e mark.system tests)
SYSTEM = $(RECORDED) $(PY) -m pytest --numprocesses $(WORKERS) $(AT_ONCE) -m "system or slow_build" $(SYSTEM_TESTS)
TYPES_AND_C := $(PY) -m mypy supervisor shim tests .ci client $(wildcard bench) && .ci/check-c $(PY)
# Before a line of work in a run of `make ci` that is not the longest: it takes what the system tests leave. Those wait for
# much of their time, and when they come to work they should not wait for a processor, too.
LATER := renice -n 5 -p $$$$ >/dev/null &&
JUDGED := $(PY) -m tests.optionrecord $(OPTIONS)
.PHONY: help deps venv bytecode demo test unit system options check ci smoke bench compare compare-check rig attack soak deb wheels vm vm-test api clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## */\1\t/p' $(MAKEFILE_LIST) | expand -t 15

deps: ## look for the commands the host must have; install missing ones (Debian, root; NO_INSTALL=1 only lists them)
	@.ci/deps

venv: $(VENV)/.built ## the environment in .venv, with everything built; quick when nothing has changed
	@:

# A Python that cannot start, or an environment that was moved, is made anew. `compat`: a line with this directory in it,
# where setuptools would otherwise leave code that every Python of the environment runs at its start, for 25 ms.
$(VENV)/.installed: pyproject.toml
	@.ci/deps --build
	@[ "$$(cat $(VENV)/.home 2>/dev/null)" = "$(CURDIR)" ] && $(PY) -c '' 2>/dev/null || \
		{ rm -rf $(VENV) && $(PYTHON) -m venv $(VENV) && echo "$(CURDIR)" >$(VENV)/.home; }
	@touch $(VENV)/.fresh
	@$(PY) .ci/build_requires.py | xargs $(PIP)
	@$(PY) .ci/build_requires.py | xargs $(PIP) --no-build-isolation --config-settings editable_mode=compat \
		--editable '.[test]'
	@touch $@

# An installation builds all this, too: nothing is built again that has not changed since one began.
$(VENV)/.built: $(VENV)/.installed $(C_FILES) $(PROTO_FILES) $(BUILD_FILES)
	@rm -f shim/_native.cpython-*.so # one that was made by hand would be imported before the one made here
	@[ -e $(VENV)/.fresh ] && [ -z "$$(find $(filter-out $(VENV)/%,$^) -newer $(VENV)/.fresh)" ] || \
		$(PY) setup.py --quiet build_ext --inplace build_protos --inplace build_scripts --build-dir $(VENV)/bin
	@rm -f $(VENV)/.fresh
	@touch $@

# Even where Python may not write it by itself: the tests start hundreds of daemons and commands.
bytecode: venv
	@$(PY) -m compileall -q -x '/test_[^/]*\.py$$' supervisor shim protos tests bench client
	@$(PY) .ci/rewritten.py

demo: deps venv ## the main job on real containers: seven ways to end, each with its true code (root)
	@$(RUN) $(PY) -m supervisor.cli.demo

test: unit system options ## the whole test suite (root, runc)

unit: bytecode ## the tests that need neither root nor runc
	@$(BEGUN) && $(UNIT)

system: deps bytecode ## the tests on real containers, and those that build whole distributions (root, runc)
	@$(SYSTEM)

options: venv ## name each option of exitctl and exitd that no test has used since `make unit` or `make check` began
	@$(JUDGED)

check: bytecode ## lint, types, the tests without root, all C with musl, glibc and sanitizers
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(BEGUN)
	@.ci/beside '$(UNIT)' '$(TYPES_AND_C)'

# In the machine of `make vm`, in few minutes; by KVM where that works.
SMOKE = .ci/deps --vm && export EXITD_VM_SUITE=$(SUITE) EXITD_VM_KVM=1 && $(PY) -m tests.vm.image && \
	$(PY) -m tests.vm --timeout 1800 --capture=no tests/vm/check_smoke.py

smoke: venv ## boot a Debian machine with exitd's package in QEMU and see true ends in it; SUITE= (root, network; docs/vm.md)
	@$(SMOKE)

# Three lines of work are enough: with more, some of the system tests come too late for their limits. The smoke comes
# when the shortest line has ended. What builds the environment is one line of work, for a minute on a fresh clone: the
# fuzzers, which need a compiler only, run beside it. It is `make`, not $(MAKE), so that a dry run says it.
ci: UNIT_WORKERS = 1
ci: deps ## `make check` and `make test` at once, which is quicker, and `make smoke`: what CI runs (root, runc, network)
	@.ci/deps --vm
	@.ci/beside 'make --no-print-directory bytecode' shim/core/fuzz/run
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(BEGUN)
	@.ci/beside '$(SYSTEM)' '$(LATER) $(UNIT) $(HALF) && $(SMOKE)' '$(LATER) $(TYPES_AND_C) programs && $(UNIT) tests $(HALF:%=--ignore %)'
	@$(JUDGED)

bench: deps bytecode ## measure, beside other shims (root)
	@.ci/deps --bench
	@$(RUN) $(PY) -m bench

compare: deps bytecode ## the same pods on every way this machine has, as build/compare/report.html (root); PICTURE=1: docs/comparison.svg
	@$(RUN) $(PY) -m supervisor.cli compare --out build/compare $(if $(PICTURE),--picture docs/comparison.svg)

compare-check: venv ## look at the comparison's page in headless Chromium; REPORT=FILE names another than `make compare`'s
	@PYTHON=$(PY) .ci/compare-check $(REPORT)

rig: export EXITD_TEST_TRANSPORT = grpc # `make test` has them over ttrpc
rig: deps bytecode ## the whole test suite at full size: pairs of kills, thousands of containers; takes long (root)
	@$(MAKE) --no-print-directory test EXITD_SCALE=1

# Each seed is one attack with so many exits.
EXITS ?= 10000
SEEDS ?= 1 2 3

# What the page is made of. Results of one commit can be added: `python -m tests.attack --merge` writes a page of all.
ATTACKED = tests/attack/results

attack: deps bytecode ## lives under kills, stops and failures, judged; writes docs/reliability.md; EXITS=, SEEDS= (root; hours)
	@mkdir -p build
	@$(RUN) $(PY) -m tests.attack --seed $(SEEDS) --exits $(EXITS) --out build/attack.json --page docs/reliability.md; \
		status=$$?; cp build/attack.json build/results.json && rm -f $(ATTACKED)/*.json && \
		mv build/results.json $(ATTACKED)/$(firstword $(SEEDS)).json; exit $$status

LIVES ?= 10000

soak: deps bytecode ## so many lives through one exitd, and whether it grows with them; writes docs/soak.md; LIVES= (root; an hour)
	@mkdir -p build
	@$(RUN) $(PY) -m tests.soak --lives $(LIVES) --out build/soak.json --page docs/soak.md

DEB_SUITES ?= bookworm trixie forky
DEB_REVISION ?= 1

deb: venv ## Debian packages in build/deb, one for each suite, with all of Python's that they need; DEB_SUITES=, DEB_REVISION= (network)
	@$(PY) .ci/deb.py --revisions $(DEB_REVISION) $(DEB_SUITES)

wheels: venv ## an sdist and a wheel as PyPI takes them, and the client's, in dist
	@$(RUN) $(PY) .ci/wheels.py

# Debian's name of the machine: trixie (Linux 6.12, systemd 257), bookworm (Linux 6.1, systemd 252), forky (testing).
# Without one `make vm` and `make vm-test` take all three, one after the other, and `make smoke` trixie.
SUITE ?=
VM_SUITES = $(or $(SUITE),$(DEB_SUITES))
# What is checked in it: files of tests/vm, or checks of them as pytest names them. What compares exitd with podman and
# writes a page of that is run for itself.
CHECKS ?= $(filter-out tests/vm/check_play_beside_podman.py,$(wildcard tests/vm/check_*.py))
# How many machines run at once, with a file of checks each: one uses one processor and up to 3 GB.
MACHINES ?= 2
# Of the disks: those that all checks need. Where some are chosen the others are made when they are needed.
KINDS ?= $(if $(filter file,$(origin CHECKS)),disk tests quick tasks,disk)
AT_ONCE = --numprocesses $(MACHINES) --dist loadfile --no-loadscope-reorder

vm: venv ## the disks of three Debian machines with systemd and cgroup v2, exitd from this tree on them; SUITE= names one (root, network; docs/vm.md)
	@.ci/deps --vm
	@for suite in $(VM_SUITES); do EXITD_VM_SUITE=$$suite $(PY) -m tests.vm.image $(KINDS) || exit; done

vm-test: vm ## boot those machines in QEMU, without KVM, and check exitd in them; SUITE=, CHECKS=; takes an hour each (docs/vm.md)
	@failed=; for suite in $(VM_SUITES); do \
		EXITD_VM_SUITE=$$suite EXITD_VM_PAGE=docs/platforms.md \
			$(PY) -m tests.vm --timeout 7200 $(AT_ONCE) $(CHECKS) || failed="$$failed $$suite"; \
	done; [ -z "$$failed" ] || { echo "vm-test: failed in$$failed" >&2; exit 1; }

api: venv ## write the API's descriptor set anew; refused when something was taken away
	@$(PY) .ci/frozen_api.py

clean: ## remove everything that was built
	@rm -rf $(VENV) build dist *.egg-info shim/_bin shim/*.so shim/_native.c shim/*.o shim/*/*.o .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find protos -name '*_pb2.py' -delete -o -name '*_pb2.pyi' -delete
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
