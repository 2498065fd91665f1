#!/bin/sh
# make run: import a model once, then answer a prompt. In the environment:
#   MODEL   a checkpoint directory or a GGUF file, or gemma3-270m (239 MB are fetched); empty: SmolLM2-135M-Instruct
#   PROMPT  the prompt
set -eu
cd "$(dirname "$0")/.."
nibble=build/release/nibble
model=${MODEL:-}
name=smollm2
if [ "$model" = gemma3-270m ] && [ ! -e "$model" ]; then
    name=$model model=
elif [ -n "$model" ]; then
    [ -e "$model" ] || { echo "make run: MODEL=$model does not exist" >&2; exit 3; }
    # Two models of one name in different places stay apart.
    base=$(basename "$model" .gguf | tr -c 'A-Za-z0-9_.\n-' '-' | sed 's/^[^A-Za-z0-9]*//' | cut -c1-60)
    name=${base:-model}-$(realpath "$model" | sha256sum | cut -c1-8)
fi
if ! $nibble show "$name" >/dev/null 2>&1; then
    [ -n "$model" ] || model=$(scripts/get_model.sh "$name")
    echo "+ nibble create $name --from $model" >&2
    $nibble create "$name" --from "$model"
fi
echo "+ nibble run $name -n 400 \"$PROMPT\"" >&2
exec $nibble run "$name" -v --temp 0 -n 400 "$PROMPT" < /dev/null
