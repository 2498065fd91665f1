#!/usr/bin/env python3
"""Speed and memory of imports, and whether they keep their floors (specs/create.md 7.2).

    bench_import.py FOLDER [--size GB] [--nibble PROGRAM] [--threads N] [--repeat N] [--keep] [--assert]

Makes a random checkpoint of about GB 10^9 bytes (2) in FOLDER, once in BF16 and once as ModelOpt writes NVFP4, imports both into a store in the same
folder, and prints for each: MB of source per second, the seconds that went into syncing, and the peak of anonymous memory (RssAnon, so without the page
cache and mapped files). The source is read once beforehand. With --assert it exits with 1 where a figure is worse than its floor:
400 MB/s from float to nvfp4, 1,000 MB/s for what is quantised already, 1 GiB. Floors of speed are meant for a FOLDER on tmpfs.
"""
import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

H, F, V, HEADS = 2048, 8192, 4096, 16
FLOORS = {"float to nvfp4": 400, "nvfp4 as it is": 1000}
MEMORY = 1 << 30
BLOCK = 1 << 24
# A byte of the upper half of a BF16 value: its sign stays, its size is 2^-9 to 2^-6. A byte of E4M3: finite and positive.
UPPER = bytes((b & 0x80) | 0x3B + (b & 1) for b in range(256))
SCALES = bytes(0x30 + b % 0x28 for b in range(256))


def random_bytes(generator, n, kind):
    """Bytes of n values: "bf16", "codes" or "scales"."""
    b = bytearray(generator.randbytes(n))
    if kind == "bf16":
        b[1::2] = b[1::2].translate(UPPER)
    return b.translate(SCALES) if kind == "scales" else b


def layer(i):
    p = f"model.layers.{i}."
    shapes = {"self_attn.q_proj": (H, H), "self_attn.k_proj": (H, H), "self_attn.v_proj": (H, H), "self_attn.o_proj": (H, H),
              "mlp.gate_proj": (F, H), "mlp.up_proj": (F, H), "mlp.down_proj": (H, F)}
    return p, shapes


def tensors(size, packed):
    """(name, dtype, shape, kind) until about `size` bytes are listed, and the number of layers."""
    out = [("model.embed_tokens.weight", "BF16", (V, H), "bf16"), ("model.norm.weight", "BF16", (H,), "bf16")]
    used, layers = 2 * V * H, 0
    while used < size or not layers:
        p, shapes = layer(layers)
        for n in ("input_layernorm", "post_attention_layernorm"):
            out.append((p + n + ".weight", "BF16", (H,), "bf16"))
        for n, (o, k) in shapes.items():
            if packed:
                out += [(p + n + ".weight", "U8", (o, k // 2), "codes"), (p + n + ".weight_scale", "F8_E4M3", (o, k // 16), "scales"),
                        (p + n + ".weight_scale_2", "F32", (), "one")]
                used += o * k * 9 // 16
            else:
                out.append((p + n + ".weight", "BF16", (o, k), "bf16"))
                used += 2 * o * k
        layers += 1
    return out, layers


def make(folder, size, packed):
    """A llama of as many layers as fit."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    listed, layers = tensors(size, packed)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H, "intermediate_size": F, "num_hidden_layers": layers, "num_attention_heads": HEADS,
              "num_key_value_heads": HEADS, "head_dim": H // HEADS, "vocab_size": V, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu"}
    if packed:
        config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    header, at = {}, 0
    for name, dtype, shape, _ in listed:
        n = {"BF16": 2, "U8": 1, "F8_E4M3": 1, "F32": 4}[dtype]
        for d in shape:
            n *= d
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    generator = random.Random(1)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, kind in listed:
            left = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
            while left:
                n = min(left, BLOCK)
                f.write(struct.pack("<f", 0.01) if kind == "one" else random_bytes(generator, n, kind))
                left -= n


def warm(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        while f.read(BLOCK):
            pass


def anonymous(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            return next((int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon:")), 0)
    except OSError:
        return 0


def measure(a, source, quantize, store):
    """One import into an empty store: its report, and the most anonymous memory that it was seen to have."""
    shutil.rmtree(store, ignore_errors=True)
    args = [a.nibble, "create", "bench", "--from", source, "--quantize", quantize, "--json", "--quiet"]
    if a.threads:
        args += ["--threads", str(a.threads)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        p = subprocess.Popen(args, env=dict(os.environ, NIBBLE_MODELS=store), stdout=out, stderr=err)
        peak = 0
        while p.poll() is None:
            peak = max(peak, anonymous(p.pid))
            time.sleep(0.005)
        out.seek(0)
        err.seek(0)
        if p.returncode:
            sys.exit(f"bench_import.py: {' '.join(args[:6])} failed: {err.read().strip()[-300:]}")
        return json.load(out), peak


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--size", type=float, default=2.0, help="of each source, in 10^9 bytes")
    parser.add_argument("--nibble", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release", "nibble"))
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=1, help="the best run counts")
    parser.add_argument("--keep", action="store_true", help="leave the sources and the store")
    parser.add_argument("--assert", dest="check", action="store_true", help="exit with 1 below a floor")
    a = parser.parse_args()
    bad = 0
    work = os.path.join(a.folder, "bench-import")
    for label, packed, quantize in (("float to nvfp4", False, "nvfp4"), ("nvfp4 as it is", True, "none")):
        source = os.path.join(work, "packed" if packed else "float")
        make(source, a.size * 1e9, packed)
        warm(source)
        runs = [measure(a, source, quantize, os.path.join(work, "store")) for _ in range(a.repeat)]
        report = min((r for r, _ in runs), key=lambda r: r["seconds"])
        peak = max(p for _, p in runs)
        speed = report["source_bytes"] * 1e-6 / max(report["seconds"], 1e-9)
        print(f"{label}: {report['source_bytes'] * 1e-9:.2f} GB, {speed:.0f} MB/s of source ({report['seconds']:.2f} s, {report['sync_seconds']:.2f} s of it syncing), "
              f"{peak / 2**20:.0f} MiB of anonymous memory at most")
        for what, wrong in ((f"{speed:.0f} MB/s is below {FLOORS[label]}", speed < FLOORS[label]), (f"{peak / 2**20:.0f} MiB are more than {MEMORY >> 20}", peak > MEMORY)):
            if a.check and wrong:
                print(f"FAILED {label}: {what}")
                bad += 1
        if not a.keep:
            shutil.rmtree(work)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
