#!/usr/bin/env bash
# Comparisons with the Python packages of others: jinja2 and transformers, tokenizers, and the producers of quantised checkpoints.
# Ends with a line "N passed, N failed". Usage: check_packages.sh BUILD
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1
data=${NIBBLE_TEST_DATA:-../shared}
passed=0 failed=0

ok() { # name command...
    local name=$1 start=$SECONDS
    shift
    if "$@" > "build/packages-$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "$name: passed, $((SECONDS - start)) s: $(tail -1 "build/packages-$name.log" | cut -c1-160)"
    else
        failed=$((failed + 1))
        echo "$name: FAILED, $((SECONDS - start)) s"
        tail -30 "build/packages-$name.log" | cut -c1-300
    fi
}

# torch without the CUDA libraries that it links but never calls on a CPU: empty ones take their place. Packages that ask for all of torch, or for data sets
# and kernels that nothing here calls, come without what they depend on; what their import really needs is named. The stamp holds this list.
loose=(torch accelerate 'compressed-tensors==0.20.*' 'nvidia-modelopt==0.47.*' 'gptqmodel==7.7.*' autoawq==0.2.9 'mlx-lm==0.32.*' pypcre logbar tokenicer device-smi defuser threadpoolctl dill)
whole=(filelock typing_extensions sympy networkx jinja2==3.1.6 fsspec 'setuptools>=77' numpy psutil loguru pydantic rich tqdm pyyaml scipy pulp omegaconf pillow requests protobuf
    'transformers==5.24.*' 'tokenizers==0.23.*' 'gguf==0.19.*' safetensors ml_dtypes sentencepiece 'mlx[cpu]==0.32.*')
make_venv() {
    local dir=build/venv-packages
    [ "$(cat "$dir/.installed" 2> /dev/null)" = "${loose[*]} ${whole[*]}" ] && return 0
    python3 -m venv "$dir" || return 1
    "$dir/bin/pip" install -q --disable-pip-version-check --no-deps "${loose[@]}" &&
        "$dir/bin/pip" install -q --disable-pip-version-check "${whole[@]}" &&
        python3 "$data/cuda_stubs.py" "$("$dir/bin/python3" -c 'import site; print(site.getsitepackages()[0])')" > /dev/null &&
        echo "${loose[*]} ${whole[*]}" > "$dir/.installed"
}

make_venv > build/packages-install.log 2>&1 || { tail -20 build/packages-install.log; echo "0 passed, 1 failed"; exit 1; }
python=build/venv-packages/bin/python3
ok jinja2 "$python" tests/python/jinja_diff.py "$build/tool_jinja_driver" --count "${NIBBLE_JINJA_COUNT:-100000}"
ok jinja-trust "$python" tests/python/jinja_trust.py "$build/tool_jinja_driver" "$data"
ok tokenizers "$python" tests/python/tokenizer_diff.py "$build/tool_tok_driver" "$data" --mb "${NIBBLE_TOKENIZER_MB:-5}"
rm -rf build/tokenizers
ok tokenizers-make "$python" tests/python/make_tokenizers.py build/tokenizers
ok tokenizers-made "$python" tests/python/tokenizer_diff.py "$build/tool_tok_driver" build/tokenizers --mb "${NIBBLE_MADE_MB:-1}"
ok tokenizers-mixed "$python" tests/python/tokenizer_mutate.py "$build/tool_tok_driver" "$data" --count "${NIBBLE_MUTATE_COUNT:-1500}"
ok chat "$python" tests/python/chat_diff.py "$build/tool_jinja_driver" "$data/chat_templates" --count "${NIBBLE_CHAT_COUNT:-60000}"
rm -rf build/producers
ok producers-make "$python" tests/python/make_producers.py build/producers
ok producers "$python" tests/python/test_producers.py "$build/nibble" build/producers
ok defects "$python" tests/python/test_defects.py "$build/nibble" build/producers
ok export "$python" tests/python/test_export.py "$build/nibble" build/producers
ok gguf-models "$python" tests/python/test_gguf_models.py "$build/nibble" "$data"
ok tokenizer-files "$python" tests/python/test_tokenizer_files.py "$build/nibble"
ok variants "$python" tests/python/check_variants.py "$build/nibble"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
