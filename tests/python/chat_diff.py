#!/usr/bin/env python3
"""Compares the strict chat layer with transformers on invented conversations, for every template of a folder.

usage: chat_diff.py DRIVER TEMPLATES [--count 3000] [--seed 1] [--show 10]
DRIVER is the program built from tests/tools/jinja_driver.c; TEMPLATES holds *.jinja files. Needs jinja2 and transformers.
Text must be equal; where transformers fails, the layer must fail, with the template's own words for TemplateError."""
import argparse
import copy
import datetime
import json
import os
import random
import subprocess
import sys
import warnings

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
    c["messages"]
    compiled = u._compile_jinja_template(text)
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


def words(s):
    return "".join(c if ord(c) >= 32 and c != "\x7f" else "?" for c in s)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("driver")
    p.add_argument("templates")
    p.add_argument("--count", type=int, default=3000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=10)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    r = random.Random(a.seed)
    names = sorted(n for n in os.listdir(a.templates) if ".jinja" in n)
    texts = {n: open(os.path.join(a.templates, n), newline="", encoding="utf-8").read() for n in names}
    driver = subprocess.Popen([a.driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    now = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())
    bad = errors = 0
    for i in range(a.count):
        name = names[i % len(names)]
        c = Conversation(r).request()
        ref = reference(texts[name], c)
        driver.stdin.write(json.dumps({"t": texts[name], "c": c, "now": now}) + "\n")
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
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
