#!/usr/bin/env python3
"""Compares the strict chat layer with transformers on invented conversations, for every template of a folder.

usage: chat_diff.py DRIVER TEMPLATES [--count 3000] [--tokens 300] [--seed 1] [--show 10]
DRIVER is the program built from tests/tools/jinja_driver.c; TEMPLATES holds *.jinja files. Needs jinja2 and transformers.
Before that, which special tokens a template sees, for --tokens pairs of tokenizer_config.json and special_tokens_map.json.
Text must be equal; where transformers fails, the layer must fail, with the template's own words for TemplateError."""
import argparse
import copy
import datetime
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings

from transformers import AutoTokenizer
from transformers.utils import chat_template_utils as u

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
WORDS = ["Hi", "", "  spaced  ", "line\nbreak\n", "naïve 日本 🙂", "<think>a</think>b", "<|im_end|>", "{{ x }}", "\"quoted\" 'both'", "a\tb\\c", "</tool_call>", "\u2028", "None", "0", "<think>\n\n</think>\n\nok"]


class Conversation:
    def __init__(self, r):
        self.r = r

    def content(self, kind):
        r = self.r
        k = r.random()
        if k < .75:
            return r.choice(WORDS)
        if k < .93:
            parts = [{"type": "text", "text": r.choice(WORDS)} for _ in range(r.randint(1, 3))]
            if kind == "user" and r.random() < .3:
                parts.insert(r.randint(0, len(parts)), {"type": r.choice(["image", "audio", "video"])})
            return parts
        return None

    def value(self, depth=2):
        r = self.r
        k = r.random()
        if depth and k < .15:
            return [self.value(depth - 1) for _ in range(r.randint(0, 3))]
        if depth and k < .3:
            return {r.choice(["a", "b c", "é", ""]): self.value(depth - 1) for _ in range(r.randint(0, 3))}
        return r.choice([1, 0, -5, 1.0, 2.5, 1e22, 1e-7, 12345678901234567890, True, False, None, "s", "é\"'\n", ""])

    def calls(self):
        r = self.r
        out = []
        for i in range(r.choice([1, 1, 1, 2])):
            args = {k: self.value() for k in r.sample(["q", "city", "n", "größe"], r.randint(0, 3))}
            fn = {"name": r.choice(["f", "get_weather", "über"]), "arguments": json.dumps(args, ensure_ascii=False) if r.random() < .2 else args}
            call = {"id": f"abcdefg{r.randint(10, 99)}", "type": "function", "function": fn}
            if r.random() < .1:
                del call["id"]
            out.append(fn if r.random() < .05 else call)
        return out

    def message(self, role):
        r = self.r
        m = {"role": role, "content": self.content(role)}
        if role == "assistant":
            if r.random() < .35:
                m["tool_calls"] = self.calls()
            if r.random() < .3:
                m[r.choice(["reasoning_content", "thinking", "reasoning"])] = r.choice(WORDS + [None])
            if r.random() < .1:
                m["tool_calls"] = r.choice([None, []])
        if role == "tool":
            m.update({k: v for k, v in (("tool_call_id", "abcdefg11"), ("name", "f")) if r.random() < .7})
        if r.random() < .08:
            del m["content"]
        if r.random() < .03:
            m["extra"] = self.value()
        return m

    def tool(self):
        r = self.r
        props = {n: {"type": r.choice(["string", "integer", ["string", "null"], "array", "object"]), "description": r.choice(WORDS), "default": self.value(1)} for n in r.sample(["q", "city", "n", "é"], r.randint(0, 3))}
        fn = {"name": r.choice(["f", "get_weather"]), "description": r.choice(WORDS), "parameters": {"type": "object", "properties": props, "required": list(props)[:1]}}
        if r.random() < .1:
            fn["return"] = {"type": "string", "description": "r"}
        return {"type": "function", "function": fn}

    def request(self):
        r = self.r
        roles = [r.choice(["system", "developer"])] if r.random() < .4 else []
        for _ in range(r.choice([1, 1, 2, 3])):
            roles.append("user")
            roles += r.choice([[], ["assistant"], ["assistant"], ["assistant", "tool", "assistant"], ["assistant", "tool"]])
        if r.random() < .1:
            roles.insert(r.randint(0, len(roles)), r.choice(["user", "assistant", "system", "tool", "other"]))
        c = {"messages": [self.message(x) for x in roles], "add_generation_prompt": r.random() < .6}
        if r.random() < .4:
            c["tools"] = [self.tool() for _ in range(r.randint(0, 2))]
        if r.random() < .08:
            c["documents"] = [{"title": "t", "text": r.choice(WORDS)}]
        if r.random() < .15 and roles[-1] == "assistant":
            c["continue_final_message"], c["add_generation_prompt"] = True, False
        for k, v in (("enable_thinking", True), ("enable_thinking", False), ("thinking", True), ("reasoning_effort", "low"), ("date_string", "1 Jan"), ("preserve_thinking", True), ("add_vision_id", True)):
            if r.random() < .08:
                c[k] = v
        return c


def reference(text, c):
    c = copy.deepcopy(c)
    try:
        compiled = u._compile_jinja_template(text)
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}
    compiled.globals["strftime_now"] = lambda f: NOW.strftime(f)
    old = u._compile_jinja_template
    u._compile_jinja_template = lambda t: compiled
    try:
        messages = u._normalize_chat_messages(c.pop("messages"))
        out, _ = u.render_jinja_template(conversations=[messages], chat_template=text, bos_token="<s>", eos_token="</s>", pad_token="<pad>", **c)
        return {"output": out[0]}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}
    finally:
        u._compile_jinja_template = old


# ---- which special tokens a template sees ----
STANDARD = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
NAMES = STANDARD + ["image_token", "boi_token", "think", "additional_special_tokens", "extra_special_tokens"]
TOKENIZER = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
             "post_processor": None, "decoder": None, "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1}, "unk_token": "<unk>"}}


def token_files(r):
    """A random tokenizer_config.json and special_tokens_map.json (or None)."""
    number = itertools.count()

    def flags(content, kind):
        return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, **kind}

    def value(kind):
        text = f"<{next(number)}>"
        return r.choice([text, text, flags(text, kind), None])

    config, tokens = {}, {}
    for name in NAMES[:9]:
        if r.random() < .5:
            config[name] = value({"__type": "AddedToken"})
        if r.random() < .5:
            tokens[name] = value({})
    for file in (config, tokens):
        for name in ("additional_special_tokens", "extra_special_tokens"):
            k = r.random()
            if k < .2:
                file[name] = [f"<{next(number)}>"]
            elif k < .4 and not (file is tokens and name[0] == "a"):
                file[name] = {n: f"<{next(number)}>" for n in r.sample(["image_token", "think", "boi_token"], 2)}
    if r.random() < .4:
        config["added_tokens_decoder"] = {str(2 + i): flags(f"<{i}>", {"special": True}) for i in range(2)}
    if r.random() < .2:
        config["add_bos_token"] = True
    return config, tokens if r.random() < .8 else None


def diff_tokens(driver, r, count):
    text = "".join("%s={{ %s }};" % (n, n) for n in NAMES)
    bad = 0
    for _ in range(count):
        config, tokens = token_files(r)
        with tempfile.TemporaryDirectory() as d:
            for name, content in (("tokenizer.json", TOKENIZER), ("tokenizer_config.json", config), ("special_tokens_map.json", tokens)):
                if content is not None:
                    with open(os.path.join(d, name), "w") as f:
                        json.dump(content, f)
            want = AutoTokenizer.from_pretrained(d).apply_chat_template([{"role": "user", "content": ""}], chat_template=text, tokenize=False)
        driver.stdin.write(json.dumps({"t": text, "c": {"messages": []}, "tokenizer_config": config, "special_tokens_map": tokens}) + "\n")
        driver.stdin.flush()
        got = json.loads(driver.stdout.readline())
        if got.get("output") != want:
            bad += 1
            print(json.dumps(config), json.dumps(tokens), f"\n  transformers {want}\n  nibble       {got}")
    print(f"{count} pairs of token files: {bad} differ")
    return bad


def words(s):
    return "".join(c if ord(c) >= 32 and c != "\x7f" else "?" for c in s)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("driver")
    p.add_argument("templates")
    p.add_argument("--count", type=int, default=3000)
    p.add_argument("--tokens", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=10)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    r = random.Random(a.seed)
    names = sorted(n for n in os.listdir(a.templates) if ".jinja" in n)
    texts = {n: open(os.path.join(a.templates, n), newline="", encoding="utf-8").read() for n in names}
    driver = subprocess.Popen([a.driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    now = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())
    missed = diff_tokens(driver, r, a.tokens)
    bad = errors = 0
    for i in range(a.count):
        name = names[i % len(names)]
        c = Conversation(r).request()
        ref = reference(texts[name], c)
        driver.stdin.write(json.dumps({"t": texts[name], "c": c, "now": now, "tokenizer_config": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}}) + "\n")
        driver.stdin.flush()
        got = json.loads(driver.stdout.readline())
        errors += "error" in ref
        same = ref.get("output") == got.get("output") and ("error" in ref) == ("error" in got)
        if same and ref.get("error", "").startswith("TemplateError: "):
            same = words(ref["error"])[:300] in got["error"]
        if not same:
            bad += 1
            if bad <= a.show:
                print(name, json.dumps(c, ensure_ascii=False)[:1500])
                print("  transformers", repr(ref)[-700:])
                print("  nibble      ", repr(got)[-700:])
    driver.stdin.close()
    print(f"{a.count} conversations with {len(names)} templates, {errors} of them errors: {bad} differ")
    return 1 if bad or missed else 0


if __name__ == "__main__":
    sys.exit(main())
