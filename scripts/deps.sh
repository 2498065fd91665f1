#!/bin/sh
# Installs the Debian packages that are missing. Usage: deps.sh build|check|all
#   build  what `make` and `make run` need
#   check  also what `make check` needs: numpy for the independent forward, xz for the vectors
#   all    also what `make check-all` needs: clang, sanitizer runtimes
# Does nothing, and needs no network, when everything is there.
set -eu

build="gcc make cmake pkg-config libc6-dev libssl-dev libpcre2-dev libutf8proc-dev libedit-dev libcmocka-dev python3 python3-venv"
check="$build python3-numpy xz-utils"
all="$check clang libclang-rt-14-dev"

case "${1:-build}" in
build) want=$build ;;
check) want=$check ;;
all) want=$all ;;
*) echo "deps.sh: unknown set '$1'; known: build, check, all" >&2; exit 2 ;;
esac

command -v dpkg-query >/dev/null 2>&1 || { echo "note: not a Debian system; these packages are needed: $want"; exit 0; }
missing=
for p in $want; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0

echo "installing Debian packages:$missing"
if [ "$(id -u)" -ne 0 ]; then
    echo "deps.sh: not root. Run: apt-get install$missing" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || echo "note: the package lists could not be refreshed; trying with the old ones"
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null || {
    echo "deps.sh: could not install:$missing (no network?)" >&2
    exit 1
}
