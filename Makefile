# Everything is behind `make help`. Meson does the building; this file is the short way to it.

BUILD ?= build
PREFIX ?= /usr/local
LIBDIR ?= lib
FUZZ_SECONDS ?= 20
FUZZ_BUILD ?= build-fuzz
ASAN_BUILD ?= build-asan
MESON ?= meson
CLANG ?= clang

export BUILD

.DEFAULT_GOAL := all
.PHONY: all with-tests help quickstart behaviour test test-full test-vm asan bench bench-check fuzz lint format docs-check \
        install uninstall clean

all: $(BUILD)/build.ninja ## build the command, the library and the man pages
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@command -v $(MESON) >/dev/null || { echo "make: meson is missing: tools/deps build" >&2; exit 1; }
	$(MESON) setup $(BUILD) -Dtests=false

# Unit tests need one library more than the product, so they are built only when asked for.
with-tests: $(BUILD)/build.ninja
	@$(MESON) configure $(BUILD) -Dtests=true
	@ninja -C $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

quickstart: ## install what is missing, build, and take the tour
	@tools/deps build
	@$(MAKE) --no-print-directory all
	@tools/quickstart $(BUILD)/cordon

behaviour: ## one suite against every wall: native, docker, runc, crun, gVisor; the table must agree
	@tools/deps build test walls $(if $(filter 0,$(shell id -u)),docker)
	@$(MAKE) --no-print-directory all
	@tools/run-behaviour

test: ## install the test tools, build, run the unit tests and both end-to-end worlds
	@tools/deps build test walls $(if $(findstring --docker,$(TEST_ARGS)),docker)
	@$(MAKE) --no-print-directory with-tests
	@tools/run-tests $(TEST_ARGS)

test-full: ## the same with the slow cases, the Docker container and a browser
	@tools/deps build test walls docker browser
	@$(MAKE) --no-print-directory with-tests
	@CORDON_TEST_FULL=1 tools/run-tests --docker

test-vm: ## the engine's and the limits' suites in an emulated machine: another kernel, delegated cgroup v2
	@tools/deps build test vm
	@$(MAKE) --no-print-directory with-tests
	@tools/run-vm $(VM_ARGS)

asan: ## unit tests and a part of the end-to-end suite with address and undefined sanitizers
	@tools/deps build test
	@[ -f $(ASAN_BUILD)/build.ninja ] || $(MESON) setup $(ASAN_BUILD) --buildtype=debugoptimized \
	    -Db_sanitize=address,undefined
	@ninja -C $(ASAN_BUILD)
	@BUILD=$(ASAN_BUILD) tools/run-tests --sanitized

bench: ## measure against other sandboxes; writes bench/results/
	@tools/deps build bench
	@$(MAKE) --no-print-directory all
	@CORDON=$(BUILD)/cordon bench/run

bench-check: ## measure only what has a bar; fails when a bar is exceeded
	@tools/deps build bench
	@$(MAKE) --no-print-directory all
	@CORDON=$(BUILD)/cordon bench/run --check

fuzz: ## run every fuzzer for FUZZ_SECONDS (20)
	@tools/deps build fuzz
	@[ -f $(FUZZ_BUILD)/build.ninja ] || CC=$(CLANG) $(MESON) setup $(FUZZ_BUILD) \
	    --buildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false \
	    -Dtests=false -Dfuzz=true
	@ninja -C $(FUZZ_BUILD)
	@tools/run-fuzz $(FUZZ_BUILD) $(FUZZ_SECONDS)

lint: ## format, static analysis, include direction, lengths
	@tools/deps build test lint
	@$(MAKE) --no-print-directory with-tests
	@tools/lint

format: ## put the C files into the house's format
	@git ls-files -- src include tests fuzz bench tools | grep -E '\.[ch]$$' | xargs clang-format -i

docs-check: all ## do the documents say what the command does?
	@tools/check-docs $(BUILD)

install: all ## PREFIX (/usr/local), DESTDIR
	@$(MESON) configure $(BUILD) -Dprefix=$(abspath $(PREFIX)) -Dlibdir=$(LIBDIR)
	@DESTDIR=$(DESTDIR) $(MESON) install -C $(BUILD)

uninstall: ## remove what the last install put there
	@ninja -C $(BUILD) uninstall >/dev/null

clean: ## remove everything that was built
	rm -rf $(BUILD) $(ASAN_BUILD) $(FUZZ_BUILD)
