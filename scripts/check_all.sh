#!/usr/bin/env bash
# make check-all: the other compiler, the sanitizers, the fuzz corpora, the Python packages. Each part prints its time.
# Ends with a line "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh all || exit 1
mkdir -p build
jobs=$(nproc)
passed=0 failed=0

note() { printf '%-28s %6s s  %s\n' "$1" "$2" "$3"; }

count() { # adds the last "N passed, N failed" of a log
    read -r p f < <(grep -E '^[0-9]+ passed, [0-9]+ failed' "$1" | tail -1 | awk '{print $1+0, $3+0}')
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0}))
}

run_part() { # name command...
    local name=$1 start=$SECONDS log=build/check-all-$1.log
    shift
    if "$@" > "$log" 2>&1; then
        count "$log"
        note "$name" $((SECONDS - start)) "$(grep -E '^[0-9]+ passed' "$log" | tail -1)"
    else
        local before=$failed
        count "$log"
        [ "$failed" -eq "$before" ] && failed=$((failed + 1))
        note "$name" $((SECONDS - start)) "FAILED"
        tail -60 "$log" | cut -c1-300
    fi
}

build() { # folder NB_BUILD compiler [cmake options]
    cmake -S . -B "build/$1" -DNB_BUILD="$2" -DCMAKE_C_COMPILER="$3" "${@:4}" && cmake --build "build/$1" -j"$jobs"
}

tests() { python3 scripts/run_tests.py --build "build/$1" "${@:2}"; }

clang_tests() { build clang release clang && tests clang; }
asan_tests() { build asan asan gcc && NIBBLE_TEST_SMALL=1 tests asan --no-e2e; }
tsan_tests() { build tsan tsan gcc && NIBBLE_TEST_SMALL=1 tests tsan --no-e2e --only '_(lanes|exec|session|cache|publish|store|run|api)'; }
same_bits() { python3 tests/e2e/compilers.py build/release build/clang; }

fuzz_corpora() {
    local ok=0 bad=0 seconds=${NIBBLE_FUZZ_SECONDS:-20}
    cmake -S . -B build/fuzz -DNB_BUILD=asan -DCMAKE_C_COMPILER=clang -DNB_FUZZ=ON && cmake --build build/fuzz -j"$jobs" --target fuzzers || return 1
    for f in build/fuzz/fuzz_*; do
        [ -x "$f" ] && [ -f "$f" ] || continue
        local name=${f##*/fuzz_} corpus
        corpus=$(mktemp -d)
        local seeds=tests/fuzz/corpus/$name
        [ -d "$seeds" ] || seeds=
        if "$f" -timeout=20 -rss_limit_mb=3000 -max_total_time="$seconds" -artifact_prefix="$corpus/" "$corpus" $seeds > "build/fuzz-$name.log" 2>&1; then
            ok=$((ok + 1))
        else
            bad=$((bad + 1))
            echo "fuzz_$name:"
            tail -40 "build/fuzz-$name.log"
        fi
        rm -rf "$corpus"
    done
    echo "$ok passed, $bad failed"
    [ "$bad" -eq 0 ]
}

packages() { scripts/check_packages.sh build/release; }

run_part clang clang_tests
run_part same-bits same_bits
run_part asan asan_tests
run_part tsan tsan_tests
run_part fuzz fuzz_corpora
run_part packages packages
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
