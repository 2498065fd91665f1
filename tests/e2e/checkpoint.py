"""Checkpoints to break: safetensors files taken apart and put together again, folders copied with changes, a tiny tokenizer, a checkpoint of some size."""
import json
import os
import shutil
import struct

import harness

# byte-level: "\u010a" is a newline, "\u0120" a space, "\u011b" the escape character
TOKENS = {c: i for i, c in enumerate(["a", "b", "c", "d", "e", "f", "g", "h", "ab", "cd", "\u010a", "\u0120", "\u011b"])}
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
              "vocab": TOKENS, "merges": ["a b", "c d"]},
}
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def read_safetensors(path):
    """(metadata, {name: (dtype, shape, bytes)}) in the file's order."""
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    meta = header.pop("__metadata__", {})
    return meta, {k: (v["dtype"], v["shape"], raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items()}


def write_safetensors(path, tensors, meta=None, edit=None):
    """edit changes the header (a dict) before it is written."""
    header, at = {}, 0
    if meta:
        header["__metadata__"] = meta
    for k, (dtype, shape, data) in tensors.items():
        header[k] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    if edit:
        edit(header)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def copy(src, dst, config=None, tensors=None, header=None, tokenizer=False):
    """A copy of a checkpoint. config and tensors are functions that change the parsed file; header changes the safetensors header."""
    shutil.copytree(src, dst)
    if config:
        path = os.path.join(dst, "config.json")
        with open(path) as f:
            c = json.load(f)
        config(c)
        with open(path, "w") as f:
            json.dump(c, f)
    if tensors or header:
        path = os.path.join(dst, "model.safetensors")
        meta, t = read_safetensors(path)
        if tensors:
            tensors(t)
        write_safetensors(path, t, meta, header)
    if tokenizer:
        with open(os.path.join(dst, "tokenizer.json"), "w") as f:
            json.dump(TOKENIZER, f)
        with open(os.path.join(dst, "tokenizer_config.json"), "w") as f:
            json.dump({"chat_template": TEMPLATE}, f)
    return dst


def gguf(path, meta, tensors=None):
    """A GGUF file. meta: strings, ints (u32), floats (f32), bools, lists of one of these; tensors: {name: (dims, bytes)}, all F32."""
    def string(s):
        s = s.encode()
        return struct.pack("<Q", len(s)) + s

    def value(v):
        if isinstance(v, list):
            items = [value(x) for x in v]
            return 9, struct.pack("<IQ", items[0][0], len(v)) + b"".join(x for _, x in items)
        if isinstance(v, str):
            return 8, string(v)
        if isinstance(v, bool):
            return 7, struct.pack("<?", v)
        return (6, struct.pack("<f", v)) if isinstance(v, float) else (4, struct.pack("<I", v))

    head, data, tensors = b"", b"", tensors or {}
    for k, v in meta.items():
        kind, packed = value(v)
        head += string(k) + struct.pack("<I", kind) + packed
    for name, (dims, raw) in tensors.items():
        head += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", 0, len(data))
        data += raw + bytes(-len(raw) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta)) + head
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)
    return path


def big(dst, layers=10, hidden=512, ffn=2048, vocab=8192, tokenizer=True):
    """A llama of about 90 MB of BF16 whose values are all small and finite."""
    os.makedirs(dst)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 8, "num_key_value_heads": 2,
              "head_dim": hidden // 8, "intermediate_size": ffn, "vocab_size": vocab, "tie_word_embeddings": True, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "max_position_embeddings": 8192, "hidden_act": "silu"}
    with open(os.path.join(dst, "config.json"), "w") as f:
        json.dump(config, f)
    pattern = struct.pack("<16H", *(0x3c00 + 0x8000 * (i * 7 % 3 == 0) + i * 5 for i in range(16)))

    def matrix(n, k):
        return "BF16", [n, k], (pattern * (n * k // 16 + 1))[:2 * n * k]

    t = {"model.embed_tokens.weight": matrix(vocab, hidden), "model.norm.weight": ("BF16", [hidden], b"\x80\x3f" * hidden)}
    kv = 2 * hidden // 8
    for i in range(layers):
        p = f"model.layers.{i}."
        for name, n, k in (("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", kv, hidden), ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, hidden),
                           ("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden), ("mlp.down_proj", hidden, ffn)):
            t[p + name + ".weight"] = matrix(n, k)
        for name in ("input_layernorm", "post_attention_layernorm"):
            t[p + name + ".weight"] = ("BF16", [hidden], b"\x80\x3f" * hidden)
    write_safetensors(os.path.join(dst, "model.safetensors"), t)
    if tokenizer:
        with open(os.path.join(dst, "tokenizer.json"), "w") as f:
            json.dump(TOKENIZER, f)
    return dst


def llama():
    """Folder of a reference model with a plain llama forward."""
    return next(d for d in harness.reference_models() if harness.model_type(d) == "llama")
