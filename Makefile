# `make help` lists the targets and variables. Everything is made below build; a second run redoes only what changed.

PYTHON ?= /usr/bin/python3
BUILD ?= build
plain := $(BUILD)
# Sanitizers of the C parts, such as SANITIZE=address,undefined: a build of its own beside the plain one.
SANITIZE ?=
# How long each fuzzer runs, in `make fuzz` and in `make test`.
FUZZ_SECONDS ?= 120
# How long `make chaos` goes on.
SECONDS ?= 600
# The commit whose figures `make count` prints, such as COMMIT=HEAD~1; the work tree's unless given.
COMMIT ?=
# Whose container engines `make test` and `make bench` use: this system's, or those of Debian's trixie, sid or
# experimental.
ENGINES ?=
# With ENGINES: 1 to have cgroups in one hierarchy, which may lack controllers.
UNIFIED ?=
# What `make mutants` is told besides: names of the list, or --all for every suite that judges from outside.
MUTANTS ?=
# What pytest is told besides, such as PYTEST=-x, PYTEST="-k docker" or PYTEST=tests/unit.
PYTEST ?=
# What `make lab` runs, such as LAB=files or LAB="files.polls --pair DRIVER-KERNEL"; SHELL=1: a prompt in its guest.
LAB ?=
# What `make hosts` runs: kernels, and --package or --cuts N; all kernels unless given.
HOSTS ?=

comma := ,
sanitizer_address := libasan.so
sanitizer_undefined := libubsan.so
sanitizer_thread := libtsan.so
ifneq ($(SANITIZE),)
override BUILD := $(BUILD)/sanitized-$(subst $(comma),-,$(SANITIZE))
setup_args := --config-settings=setup-args=-Db_sanitize=$(SANITIZE)
# Python is not built with a sanitizer, so its run-time libraries are loaded before the engine needs them.
sanitized := env ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	LD_PRELOAD="$(foreach name,$(subst $(comma), ,$(SANITIZE)),$(shell gcc -print-file-name=$(sanitizer_$(name))))"
endif

venv := $(BUILD)/venv
bin := $(venv)/bin
stamps := $(BUILD)/stamps
image := build/image/mgpu-test.tar
# Programs of others, for containers of the image.
foreign := build/foreign/installed
# Another release's engines, put in place of this system's for one command.
releases := build/engines
engines := $(if $(ENGINES),$(bin)/python -m tests.support.release $(if $(UNIFIED),--unified) $(releases)/$(ENGINES))
engines_made := $(if $(ENGINES),$(releases)/$(ENGINES).made)
pip := $(bin)/python -m pip -qq --disable-pip-version-check --no-input
packages := oci_specs placement runtime_hook native_sched sim containerd_api install mgpu_cli cluster
code := $(packages) base shim load lab/card
sources := meson.build pyproject.toml tools/python_sources.py \
	$(shell find $(code) -type d -name __pycache__ -prune -o -type f -print)
# Packages are added, renamed and removed too, and only the folders' times show that.
folders := $(shell find $(code) -type d -name __pycache__ -prune -o -type d -print)

# What is compiled into the sanitized build and is worked hard there: what the tests compile for themselves has its
# sanitizers in every run, and an engine's daemon in between adds nothing but its own time.
hardest := tests/native/holder/test_holder.py \
	$(addprefix tests/native/driver/test_,nvidia_calls.py nvidia_files.py nvidia_unpollable.py) tests/hostile \
	$(addprefix tests/containers/memory/test_,memory_cap.py release.py) \
	tests/containers/boundary/test_no_way_past.py \
	tests/containers/engines/test_bad_input.py

# Suites that run once more on the engines of another release.
promised := $(addprefix tests/containers/engines/test_,acceptance.py plain_engines.py lifecycle.py lifecycle_shim.py \
	refusal_lines.py shim.py user_namespaces.py) \
	tests/containers/node/test_install.py \
	tests/containers/boundary/test_no_way_past.py

# The suites of one of the runs that `make test` does at a time; another one has all others.
apart := $(addprefix tests/,chaos containers fuzz hostile)
# Those that start a guest with NVIDIA's driver.
guests := tests/lab/test_guest.py
# The longest first.
runs := run-containers run-others $(if $(SANITIZE)$(ENGINES),,run-lab run-sanitized run-trixie)
# What a product's engineer runs, or a job of a public CI: together all suites.
parts := unit native containers hostile cluster sim lab
part_unit := $(addprefix tests/,abi mutants recordings unit)
part_native := tests/native
part_containers := tests/containers tests/foreign
part_hostile := $(addprefix tests/,chaos fuzz hostile)
part_cluster := tests/cluster
part_sim := tests/sim
part_lab := tests/lab
# Once more, on another build or beside other engines.
again := test-sanitized test-trixie
on_sanitized_build = $(MAKE) --no-print-directory test SANITIZE=address,undefined PYTEST='$(hardest) -m "not (daemon or bench or gpu or soak)"'
# Of tests/unit: what looks at every source, and takes as long as all others.
not_unit := $(addprefix tests/unit/repository/test_,linters.py count.py newcomer.py docs_contributing.py site.py)
# Of these, what is timed, which tracing slows.
timed := tests/unit/daemon/metrics/test_metrics_text.py::test_128_containers_in_20_ms
ready = $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed $(image) $(foreign)
# Output is printed whole when the command has ended; until then a line a minute says how far it is.
told = $(bin)/python -m tests.support.told $@ build/$@.log 60 env
pytest = FUZZ_SECONDS=$(FUZZ_SECONDS) $(engines) $(sanitized) $(bin)/python -m pytest -m 'not bench and not gpu and not soak and not kubernetes and not package'

# meson and ninja come from the venv.
export PATH := $(abspath $(bin)):$(PATH)
export PIP_ROOT_USER_ACTION := ignore
.DELETE_ON_ERROR:
.PHONY: help demo test $(runs) $(parts:%=test-%) $(again) engines-newest engines-experimental engines-unified soak kubernetes kubernetes-churn chaos fuzz mutants lint dev unit coverage docs count bench build image package package-test node-image gpu-kit lab lab-all hosts format protos clean
.DEFAULT_GOAL := help
# What these have made by another make is made one after the other.
ifeq ($(filter $(runs),$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

help:
	@echo 'make demo    set up, then show two simulated GPUs shared by containers of a private containerd'
	@echo 'make test    set up, then run every test that needs no GPU: 24 minutes on two processors'
	@echo 'make test-PART one part of it, and its minutes on two processors beside the others: unit 6, native 5,'
	@echo '             containers 17, hostile 7, cluster 8, sim 2, lab 5; once more: sanitized 6, trixie 2'
	@echo 'make engines-newest  what is promised of every engine, with those of Debian unstable and experimental'
	@echo 'make soak    set up, then start and end containers by the hundred while engines restart and mgpud is killed'
	@echo 'make kubernetes  what a cluster does with mgpu in it: KUBECONFIG, and MGPU_NODE="ssh {}"'
	@echo 'make kubernetes-churn  pods come and go in it for SECONDS=$(SECONDS), and parts are killed meanwhile'
	@echo 'make chaos   set up, then kill, stop and starve parts of mgpu for SECONDS=$(SECONDS); MGPU_CHAOS_SEED=N repeats one'
	@echo 'make fuzz    every fuzzer for FUZZ_SECONDS=$(FUZZ_SECONDS) each'
	@echo 'make mutants builds known mistakes in the mediator, one at a time, and says which test sees each'
	@echo 'make dev     set up, build, and install the hooks of git if pre-commit is there'
	@echo 'make unit    the unit tests alone, without containers'
	@echo 'make coverage what the unit and the native tests reach, by room, and what is below its floor'
	@echo 'make lint    the linters alone'
	@echo 'make docs    the pages as a site, in $(BUILD)/site/html; a link that leads nowhere is an error'
	@echo 'make count   how large and how entangled the sources are; COMMIT=... says it of another commit'
	@echo 'make bench   measure; prints a table and writes $(BUILD)/bench.json; ONLY="routes idle": some of it'
	@echo 'make build   mgpu installed into $(venv)'
	@echo 'make image   the image that tests and demo run: $(image)'
	@echo 'make package packages for each Debian release, and an archive, in $(BUILD)/packages'
	@echo 'make package-test installs, upgrades and removes them in a root of their release'
	@echo 'make node-image the images that a cluster runs: $(BUILD)/node-image/mgpu.tar'
	@echo 'make gpu-kit what tests/gpu/bringup.sh needs on a bare machine with a card, in build/gpu-kit'
	@echo 'make lab     NVIDIA'"'"'s own kernel driver in a guest, on an emulated card, three minutes: LAB=files; SHELL=1 for a prompt'
	@echo 'make lab-all every test of it on every pair of driver and kernel, and on a GH100: an hour and more'
	@echo 'make hosts   a container, and kills, on each kernel of Debian; HOSTS="6.1 --package", HOSTS="--cuts 12": docs/hosts.md'
	@echo 'make format  rewrite the sources as the linters want them'
	@echo 'make protos  generate the bindings of containerd'"'"'s API anew'
	@echo 'make clean   remove build'
	@echo
	@echo 'Variables: PYTHON=$(PYTHON)  BUILD=$(BUILD)  SANITIZE=address,undefined  PYTEST="-x -k docker"'

demo: $(stamps)/demo-system $(stamps)/installed $(image)
	@$(bin)/python -m demo

# Three runs at a time: a test waits longer than it works, and a run has one test at a time. The longest one is read as it
# goes on.
ifeq ($(PYTEST),)
test: $(ready) $(engines_made)
	@echo 'three runs of pytest at a time: what the others say is printed when they have ended, and a line a minute'
	@$(MAKE) --no-print-directory --jobs=3 --keep-going $(runs)
else
test: $(ready) $(engines_made)
	@$(pytest) $(PYTEST)
endif

run-containers:
	@$(pytest) $(apart)

run-others:
	@$(told) $(pytest) $(addprefix --ignore=,$(apart) $(guests))

run-lab:
	@echo "NVIDIA's own driver in a guest: what it decides, and guests that break"
	@$(told) $(pytest) -s $(guests)

run-sanitized:
	@echo 'once more, what runs the C parts hardest, with AddressSanitizer and UndefinedBehaviorSanitizer'
	@$(told) $(on_sanitized_build)

# Nothing is made anew beside runs that use it: the first run's __pycache__ makes the sources' folders newer.
run-trixie:
	@echo 'once more, what is promised of every engine, with those of Debian 13'
	@$(told) $(MAKE) --no-print-directory ready= engines-trixie

$(parts:%=test-%): test-%: $(ready) $(engines_made)
	@$(pytest) $(part_$*) $(PYTEST)

test-sanitized: $(ready)
	@$(on_sanitized_build)

test-trixie: engines-trixie

engines-newest:
	@rm -f $(releases)/sid.made $(releases)/experimental.made
	@$(MAKE) --no-print-directory --keep-going engines-sid engines-experimental engines-unified

engines-%:
	@$(MAKE) --no-print-directory test ENGINES=$* PYTEST='$(promised)'

# podman 6 takes no other hierarchy; containerd's CRI gives every sandbox a limit.
engines-experimental:
	@$(MAKE) --no-print-directory test ENGINES=experimental PYTEST='-q $(promised) -k "not podman"'

engines-unified:
	@$(MAKE) --no-print-directory test ENGINES=experimental UNIFIED=1 PYTEST='-q $(promised) -k "not cri and not test_pods and not test_pod_without and not (remapped and crun)"'

soak: $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed $(image) $(foreign)
	@$(sanitized) $(bin)/python -m pytest -m soak $(PYTEST)

kubernetes: $(stamps)/test-system $(stamps)/test-tools
	@$(bin)/python -m pytest -m kubernetes tests/kubernetes $(PYTEST)

kubernetes-churn: $(stamps)/test-system $(stamps)/test-tools
	@$(bin)/python -m tests.kubernetes.churn $(SECONDS)

chaos: $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed $(image)
	@MGPU_CHAOS_SECONDS=$(SECONDS) $(sanitized) $(bin)/python -m pytest -s tests/chaos -m 'not soak' $(PYTEST)

fuzz: $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(bin)/python -m pytest tests/fuzz $(PYTEST)

mutants: $(ready)
	@$(bin)/python -m tests.mutants $(MUTANTS)

lint: $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed
	@$(bin)/python -m pytest tests/unit/repository/test_linters.py $(PYTEST)

dev: $(stamps)/build-system $(stamps)/test-tools $(stamps)/installed
	@! command -v pre-commit >/dev/null || pre-commit install $(addprefix --hook-type ,pre-commit commit-msg pre-push)
	@echo 'ready: make unit, make lint; make test as root runs everything'

unit: $(stamps)/test-tools $(stamps)/installed
	@$(bin)/python -m pytest tests/unit $(addprefix --ignore=,$(not_unit)) $(PYTEST)

coverage: $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed
	@MGPU_COVERED=1 $(pytest) -p tests.support.covered tests/unit tests/native $(addprefix --ignore=,$(not_unit)) \
		--deselect $(timed) $(PYTEST)

docs: $(stamps)/test-tools
	@$(bin)/python -m tools.site $(BUILD)/site

count: $(stamps)/test-system $(stamps)/test-tools
	@$(bin)/python -m tools.count $(COMMIT)

bench: $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed $(image) $(engines_made)
	@$(engines) $(bin)/python -m tests.bench --output $(BUILD)/bench.json $(addprefix --only ,$(ONLY))

build: $(stamps)/build-system $(stamps)/installed

image: $(stamps)/demo-system $(image)

package: $(stamps)/build-system $(stamps)/installed
	@$(bin)/python -m tools.package $(BUILD)/packages

package-test: $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed
	@$(bin)/python -m pytest tests/containers/node/test_package.py $(PYTEST)

node-image: $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed
	@$(bin)/python -m tools.node_image $(BUILD)/node-image/mgpu.tar

gpu-kit: $(stamps)/test-system $(stamps)/test-tools $(stamps)/installed
	@$(bin)/python -m tests.gpu.kit build/gpu-kit

# SHELL is make's own variable too: the command line's alone is meant.
prompt := $(if $(filter command,$(origin SHELL)),--shell)
override SHELL := /bin/sh

lab: $(stamps)/test-system $(stamps)/installed $(image) $(foreign)
	@$(bin)/python -m lab $(prompt) $(LAB)

lab-all: $(stamps)/test-system $(stamps)/installed $(image) $(foreign)
	@$(bin)/python -m lab --every-pair $(LAB)

hosts: $(stamps)/test-system $(stamps)/installed
	@$(bin)/python -m lab.hosts $(HOSTS)

format: $(stamps)/test-system $(stamps)/test-tools
	@$(bin)/ruff check --quiet --fix . || true
	@$(bin)/ruff format --quiet .
	@find $(code) tests -name '*.[ch]' -exec clang-format -i {} +

protos: $(stamps)/test-tools
	@$(bin)/python tools/protos.py

clean:
	rm -rf --one-file-system build

# setup.sh is quick when nothing is missing, so it is asked every time: a stamp would not see a removed package.
$(stamps)/%-system: FORCE
	@tools/setup.sh $*
	@mkdir -p $(@D) && touch $@

FORCE:

$(venv)/pyvenv.cfg: | $(stamps)/build-system
	@echo 'venv: $(venv)'
	@$(PYTHON) -c 'import sys; sys.exit("mgpu needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] \
		if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(if $(SANITIZE),--without-pip) $(venv)

ifneq ($(SANITIZE),)
# What is not ours is the plain build's: nothing of it has another form with sanitizers. Our own packages come first.
$(stamps)/build-tools $(stamps)/test-tools: $(stamps)/%-tools: $(plain)/stamps/%-tools $(venv)/pyvenv.cfg
	@mkdir -p $(@D)
	@for folder in $(plain)/venv/lib/python*/site-packages; do \
		realpath "$$folder" >"$(venv)/lib/$$(basename "$$(dirname "$$folder")")/site-packages/plain.pth"; done
	@for program in $(plain)/venv/bin/*; do \
		test -e "$(bin)/$${program##*/}" || ln -s "$$(realpath -s "$$program")" $(bin); done
	@touch $@

$(plain)/stamps/%:
	@$(MAKE) --no-print-directory SANITIZE= BUILD=$(plain) $@
else
$(stamps)/build-tools: pyproject.toml tools/requirements.py $(venv)/pyvenv.cfg
	@echo 'venv: packages to build and run'
	@mkdir -p $(@D)
	@$(bin)/python tools/requirements.py build run >$@.txt
	@$(pip) install -r $@.txt
	@touch $@

$(stamps)/test-tools: pyproject.toml tools/requirements.py $(stamps)/build-tools
	@echo 'venv: packages to test'
	@$(bin)/python tools/requirements.py test cluster scheduler docs >$@.txt
	@$(pip) install -r $@.txt
	@touch $@
endif

$(stamps)/installed: $(sources) $(folders) $(stamps)/build-tools
	@$(bin)/python -m tools.abi parity >/dev/null
	@echo 'build: mgpu into $(venv)'
	@$(pip) install --no-build-isolation --no-deps --force-reinstall \
		--config-settings=build-dir=$(BUILD)/meson $(setup_args) .
	@mkdir -p $(BUILD)/bin && ln -sf '$(abspath $(bin))'/mgpu* $(BUILD)/bin
	@touch $@

$(releases)/%.made: tools/debian_root.py tests/engines.txt | $(stamps)/test-system $(stamps)/build-tools
	@echo 'engines: those of $*, into $(releases)/$* (half a minute)'
	@$(bin)/python -m tools.debian_root $* $(releases)/$* $$(cat tests/engines.txt)
	@touch $@

$(image): tests/image/build.sh tests/image/nvidia_smi.py tools/pack_image.py tests/image/requirements.txt | $(stamps)/demo-system $(stamps)/build-tools
	@echo 'image: $@ (about a minute)'
	@tests/image/build.sh '$(abspath $(bin)/python)' $(@D)
	@touch $@

# The image's Python and libc, whatever this machine has.
$(foreign): pyproject.toml tools/requirements.py | $(stamps)/build-tools
	@echo 'foreign: programs from PyPI and Debian into $(@D)'
	@rm -rf --one-file-system $(@D) && mkdir -p $(@D)
	@$(bin)/python tools/requirements.py foreign >$(@D)/requirements.txt
	@$(pip) install --target $(@D)/packages --python-version 3.11 --implementation cp --abi cp311 --abi none \
		--platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 \
		--only-binary :all: -r $(@D)/requirements.txt
	@$(bin)/python tools/requirements.py foreign-550 >$(@D)/requirements-550.txt
	@$(pip) install --target $(@D)/packages-550 --no-deps -r $(@D)/requirements-550.txt
	@$(bin)/python -m tools.debian_root trixie $(@D)/nvtop nvtop
	@touch $@
