#!/usr/bin/env python3
"""Gemma 3 270M from its Q4_K_M GGUF file, asked for by name (239 MB: not part of the gate):

    scripts/get_model.sh gemma3-270m && build/venv-packages/bin/python3 tests/python/check_gemma3_270m.py build/release/nibble build/models/gemma-3-270m-q4_k_m.gguf

Every stored tensor against what the package gguf dequantises (Q5_0, Q4_K, Q8_0 and F32 exactly, Q6_K within the rounding to bf16); likelihood of a text and greedy
ids against transformers on those weights in float32; and texts that the model must continue sensibly."""
import json
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dequant_reference as ref  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEXT = os.path.join(ROOT, "tests", "data", "prose.txt")
WINDOW, WINDOWS, STEPS = 256, 4, 24
EXACT = {"Q5_0": "int5", "Q4_K": "int4", "Q8_0": "int8", "F32": "f32"}  # what holds them; Q6_K has no exact format
PROMPTS = [("The opposite of hot is", "cold"), ("Monday, Tuesday, Wednesday, Thursday,", "Friday"), ("1, 2, 3, 4, 5, 6, 7,", "8"), ("The sun rises in the", "east")]


class Program:
    def __init__(self, nibble, folder):
        self.nibble, self.env = nibble, dict(os.environ, NIBBLE_MODELS=os.path.join(folder, "store"))

    def __call__(self, *args, env=None):
        return subprocess.run([self.nibble, *map(str, args)], env=dict(self.env, **(env or {})), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout.decode()


def check_tensors(report, store, path):
    """Types as expected, values as the package's."""
    kinds = {(t["from"], t["type"].split(":")[0], t["lossless"]) for t in report["tensors"]}
    assert kinds == {(k, v, True) for k, v in EXACT.items()} | {("Q6_K", "bf16", False)}, kinds
    source, stored = ref.gguf_source(path), ref.stored_weights(ref.Store(store, "gemma"))
    lossy = {t["name"] for t in report["tensors"] if not t["lossless"]}
    for name, want in source.items():
        got = np.asarray(stored[name][0]).reshape(want.shape).astype(np.float32)
        want = want.astype(np.float32)
        if name in lossy:
            want = torch.from_numpy(want).bfloat16().float().numpy()
        assert np.array_equal(got, want), name
    print(f"covered: {len(source)} tensors bit for bit, {len(lossy)} of them rounded to bf16")
    return {k: torch.from_numpy(np.asarray(v).reshape(source[k].shape).astype(np.float32)) for k, (v, _) in stored.items() if k in source}


def publisher(path, weights):
    """transformers' model. What the metadata does not say: every sixth layer is full attention; norms are stored with the one that the code adds."""
    f = gguf.GGUFReader(path).fields

    def number(key):
        return f["gemma3." + key].parts[-1][0].item()
    layers, vocab = number("block_count"), weights["model.embed_tokens.weight"].shape[0]
    config = Gemma3TextConfig(vocab_size=vocab, hidden_size=number("embedding_length"), intermediate_size=number("feed_forward_length"), num_hidden_layers=layers,
                              num_attention_heads=number("attention.head_count"), num_key_value_heads=number("attention.head_count_kv"), head_dim=number("attention.key_length"),
                              query_pre_attn_scalar=number("attention.key_length"), sliding_window=number("attention.sliding_window"), rms_norm_eps=number("attention.layer_norm_rms_epsilon"),
                              max_position_embeddings=number("context_length"), attn_implementation="eager",
                              layer_types=["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)],
                              rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    model = Gemma3ForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict({k: v - 1 if "norm" in k else v for k, v in weights.items()}, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    model.tie_weights()
    model.model.embed_tokens.embed_scale = torch.tensor(float(config.hidden_size) ** 0.5)  # in float32 mode the factor is not rounded (docs/decisions.md 10)
    return model


def check_likelihood(run, model, folder):
    ids = [int(i) for i in run("tokenize", "gemma", "--ids", "--no-special", "--file", TEXT).split()]
    ids = ids[:WINDOW * WINDOWS]
    path = os.path.join(folder, "ids.txt")
    with open(path, "w") as f:
        f.write(" ".join(map(str, ids)))
    got = json.loads(run("perplexity", "gemma", "--ids", path, "--window", WINDOW, "--float32", "--json", "--quiet"))
    shipped = json.loads(run("perplexity", "gemma", "--ids", path, "--window", WINDOW, "--json", "--quiet"))
    total = scored = 0
    with torch.no_grad():
        for at in range(0, len(ids), WINDOW):
            w = torch.tensor([ids[at:at + WINDOW]])
            total += torch.nn.functional.cross_entropy(model(w).logits[0, :-1].double(), w[0, 1:], reduction="sum").item()
            scored += w.shape[1] - 1
    assert got["scored"] == shipped["scored"] == scored
    mean = total / scored
    print(f"covered: {scored} positions; nats per token: transformers {mean:.5f}, float32 mode {got['nll_per_token'] - mean:+.1e}, as shipped {shipped['nll_per_token'] - mean:+.1e}")
    assert abs(got["nll_per_token"] - mean) < 1e-4
    assert abs(shipped["nll_per_token"] - mean) < 1e-2
    assert mean < 5  # sensible: a random model has 12.5


def check_greedy(run, model):
    for prompt, word in PROMPTS:
        ids = [int(i) for i in run("tokenize", "gemma", "--ids", prompt).split()]
        assert ids[0] == 2, "BOS is missing"
        with torch.no_grad():
            want = model.generate(torch.tensor([ids]), max_new_tokens=STEPS, do_sample=False, eos_token_id=None, pad_token_id=0)[0, len(ids):].tolist()
        args = ("run", "gemma", "--ids", ",".join(map(str, ids)), "--json", "--temp", "0", "-n", STEPS, "--ignore-eos")
        assert json.loads(run(*args, env={"NIBBLE_F32": "1"}))["ids"] == want, prompt
        text = run("run", "gemma", prompt, "--temp", "0", "-n", STEPS)
        print(f"covered: {prompt!r} -> {text.strip()[:60]!r}")
        assert word.lower() in text.lower(), text


def main():
    nibble, path = sys.argv[1], sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        run = Program(nibble, folder)
        report = json.loads(run("create", "gemma", "--from", path, "--quiet", "--json"))
        run("verify", "gemma", "--deep")
        model = publisher(path, check_tensors(report, os.path.join(folder, "store"), path))
        check_likelihood(run, model, folder)
        check_greedy(run, model)
    print("passed")


if __name__ == "__main__":
    main()
