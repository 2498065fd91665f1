#!/bin/sh
# Makes a Python environment under build/venv and installs packages there. Usage: venv.sh NAME PACKAGE...
# A stamp remembers what was installed, so that a second run needs no network. Prints the path of its python.
set -eu
cd "$(dirname "$0")/.."
name=$1
shift
dir=build/$name
stamp=$dir/.installed
want=$(printf '%s\n' "$@" | sort)
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$want" ]; then
    echo "making a Python environment in $dir: $*" >&2
    [ -x "$dir/bin/python3" ] || python3 -m venv "$dir" >&2
    "$dir/bin/pip" install --quiet --disable-pip-version-check "$@" >&2
    printf '%s\n' "$want" > "$stamp"
fi
echo "$PWD/$dir/bin/python3"
