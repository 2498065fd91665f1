#!/bin/sh
# Configures and builds one kind of build. Usage: build.sh release|debug|asan|tsan TARGET JOBS
# The compiler's output goes to build/KIND.log; what went wrong is printed.
set -eu
cd "$(dirname "$0")/.."
kind=$1 target=$2 jobs=$3
mkdir -p build
cmake -S . -B "build/$kind" -DNB_BUILD="$kind" > "build/$kind.cmake.log" 2>&1 || { cat "build/$kind.cmake.log" >&2; exit 1; }
[ -e "build/$kind/nibble" ] || echo "building build/$kind (log: build/$kind.log); the first time takes a minute or two"
if ! cmake --build "build/$kind" --target "$target" -j"$jobs" > "build/$kind.log" 2>&1; then
    grep -nE 'error|warning|undefined|Error' "build/$kind.log" | head -40 >&2
    echo "the build failed: build/$kind.log" >&2
    exit 1
fi
echo "built build/$kind/nibble"
