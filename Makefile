# nibble: thin front of CMake. `make` builds build/release/nibble; `make run` answers a prompt; `make check` tests.
# Each target installs the Debian packages that are missing (as root) and says what it does. A second run needs no network.

BUILD   ?= release
JOBS    ?= $(shell nproc)
CC      ?= cc
PROMPT  ?= What is the capital of France?
MODEL   ?=
export PROMPT MODEL
export NIBBLE_TEST_DATA ?= ../shared
export NIBBLE_MODELS ?= $(CURDIR)/build/store

.PHONY: all release debug asan tsan run check check-all bench format tidy clean deps

all: release

release debug asan tsan: deps
	@scripts/build.sh $@ all $(JOBS)

deps:
	@scripts/deps.sh build

run: deps
	@scripts/build.sh release nibble $(JOBS)
	@scripts/run_model.sh

check:
	@scripts/deps.sh check
	@scripts/build.sh release all $(JOBS)
	@scripts/get_model.sh smollm2 --optional > /dev/null
	@python3 scripts/run_tests.py --build build/release

check-all:
	@scripts/check_all.sh

bench: release
	@build/release/nibble bench --shape s1100

format:
	@git ls-files 'src/*.[ch]' 'include/*.h' 'tests/*.[ch]' | xargs clang-format -i

tidy: release
	@git ls-files 'src/*.c' | grep -v x86 | xargs -P$(JOBS) -n4 clang-tidy -p build/release --quiet

clean:
	rm -rf build
