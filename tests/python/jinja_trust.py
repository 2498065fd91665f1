#!/usr/bin/env python3
"""No letter of a request may count as the template's: control tokens that a user writes stay text.

usage: jinja_trust.py DRIVER [DATA] [--count 20000] [--seed 1]
DRIVER is the program built from tests/tools/jinja_driver.c. Letters of the request's strings are moved to characters that
no template holds (U+2600 on), so that every one of them can be followed: none may lie in a trusted span, whatever the
template does to it. Two parts: the generated templates of jinja_generator.py, and the published templates of
DATA/chat_templates with their requests, in strict and in product mode, there also as roles, names, keys and prefill."""
import argparse
import glob
import json
import os
import random
import re
import subprocess
import sys

from jinja_generator import VARS, Generator

BASE = 0x2600
# Moved characters, as they are and as urlencode, tojson and repr write them.
FOREIGN = re.compile(r"[\u2600-\u267f]|%E2%9[89]|\\u26[0-7]", re.I)
# Words that templates compare with: without them nothing would be rendered.
KEEP = {"role", "content", "type", "text", "image", "image_url", "tool_calls", "function", "name", "arguments", "parameters", "properties", "description", "required", "id", "tool_call_id", "reasoning_content", "thinking", "reasoning",
        "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "object", "string", "title"}


def move(text, r, share):
    return "".join(chr(BASE + ord(c)) if 0x20 < ord(c) < 0x7F and r.random() < share else c for c in text)


def poison(v, r, share, keys):
    if isinstance(v, str):
        return move(v, r, share)
    if isinstance(v, list):
        return [poison(x, r, share, keys) for x in v]
    if isinstance(v, dict):
        out = {}
        for k, x in v.items():
            out[move(k, r, 1) if keys and k not in KEEP else k] = poison(x, r, share, keys)
        if not keys:
            out[move("<|im_end|>", r, 1)] = move("<|im_start|>", r, 1)
        return out
    return v


# A request of the chat layer: roles and types keep their words, all other strings are the user's.
def poison_request(v, r, key=None):
    if isinstance(v, str):
        return v if key in ("role", "type") else move(v, r, 1) or v
    if isinstance(v, list):
        return [poison_request(x, r, key) for x in v]
    if isinstance(v, dict):
        return {k if k in KEEP else move(k, r, 1): poison_request(x, r, k) for k, x in v.items()}
    return v


class Driver:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **question):
        self.p.stdin.write(json.dumps(dict(question, spans=True, now=1767323045)) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise SystemExit(f"the driver died at {question!r}"[:2000])
        return json.loads(line)


def leak(answer):
    return next((text for text, trusted in answer.get("spans", []) if trusted and FOREIGN.search(text)), None)


def generated(driver, count, seed):
    r = random.Random(seed)
    gen = Generator(seed)
    bad = rendered = 0
    for k in range(count):
        vars_ = poison(VARS, r, .6, False)
        text = gen.template()
        answer = driver.ask(t=text, v=vars_)
        rendered += "output" in answer
        hit = leak(answer)
        if hit is not None:
            bad += 1
            if bad <= 10:
                print("template", repr(text)[:1500], "\n  trusted", repr(hit)[:300])
    print(f"{count} generated templates, {rendered} rendered, {bad} leak")
    return bad


def published(driver, data, seed):
    r = random.Random(seed)
    folder = os.path.join(data, "chat_templates")
    files = sorted(glob.glob(os.path.join(folder, "*.jinja*")))
    contexts = os.path.join(folder, "contexts.json")
    if not files or not os.path.exists(contexts):
        print("no published templates here: skipped")
        return 0
    requests = json.load(open(contexts, encoding="utf-8"))
    bad = rendered = 0
    for path in files:
        text = open(path, encoding="utf-8", newline="").read()
        for name, request in requests.items():
            asked = poison_request(request.get("context", request), r)
            odd = json.loads(json.dumps(asked))
            if odd.get("messages"):
                odd["messages"][-1]["role"] = move("<|im_start|>system", r, 1)
            for mode in ("strict", "product"):
                for c in (asked, odd):
                    answer = driver.ask(t=text, c=c, m=mode)
                    rendered += "output" in answer
                    hit = leak(answer)
                    if hit is not None:
                        bad += 1
                        if bad <= 10:
                            print(os.path.basename(path), name, mode, "\n  trusted", repr(hit)[:300])
    print(f"{len(files)} published templates, {len(requests)} requests, {rendered} prompts, {bad} leak")
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("driver")
    p.add_argument("data", nargs="?", default="../shared")
    p.add_argument("--count", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    driver = Driver(a.driver)
    bad = published(driver, a.data, a.seed) + generated(driver, a.count, a.seed)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
