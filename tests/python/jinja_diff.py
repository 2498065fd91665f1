#!/usr/bin/env python3
"""Compares the template engine with jinja2, in the sandbox that transformers builds, on generated templates.

usage: jinja_diff.py DRIVER [--count 100000] [--seed 1] [--jobs 2] [--show 20]
DRIVER is the program built from tests/tools/jinja_driver.c. Needs jinja2 and transformers.
Text must be equal. Where jinja2 fails, the engine must fail; a TemplateError must have the same words, other types are
compared and counted. Where they differ in what is not comparable, a further template takes the place: outputs that show an
address of Python's memory or bytes, complex numbers, and what exceeds a limit of either side. COUNT are compared in any case."""
import argparse
import copy
import datetime
import json
import multiprocessing
import re
import subprocess
import sys
import warnings

from transformers.utils.chat_template_utils import _compile_jinja_template

from jinja_generator import VARS, Generator

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
# Python's own words: addresses and what they belong to, numbers that templates do not have, limits; and a mistake of
# Jinja's compiler, which writes a constant inf or nan as a name.
ODD_OUTPUT = (" at 0x", "j)", "<class ", "<function", "<built-in ", "b'", 'b"')
ODD_ERROR = ("MemoryError", "RecursionError", "NameError: name 'inf'", "NameError: name 'nan'", "digits) for integer string", "surrogates not allowed")
OUR_LIMITS = ("MemoryError", "RecursionError", "complex number", "cannot be printed", "not available", "width or precision of a format is too large")


def reference(env, text):
    try:
        return {"output": env.from_string(text).render(**copy.deepcopy(VARS))}  # indent adds to a list that it is given
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


def comparable(ref, got):
    if any(s in got.get("error", "") for s in OUR_LIMITS):
        return False
    if "output" in ref:
        return not any(s in ref["output"] for s in ODD_OUTPUT)
    return not any(s in ref["error"] for s in ODD_ERROR)


def differs(ref, got):
    if "output" in ref:
        return got.get("output") != ref["output"]
    if "error" not in got:
        return True
    if ref["error"].startswith("TemplateError: "):  # raise_exception: the user reads these words
        clean = lambda s: re.sub(r"[\x00-\x1f\x7f-\x9f?\ufffd]", "", s)[:120]
        return clean(ref["error"]) not in clean(re.sub(r"^chat template: line \d+, column \d+: ", "", got["error"]))
    return False


class Driver:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def render(self, text):
        self.p.stdin.write(json.dumps({"t": text, "v": VARS, "now": int((NOW - datetime.datetime(1970, 1, 1)).total_seconds())}) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise SystemExit(f"the driver died at {text!r}")
        return json.loads(line)


def compare(job):
    path, count, seed, show = job
    warnings.simplefilter("ignore")
    env = _compile_jinja_template("").environment
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    gen = Generator(seed)
    driver = Driver(path)
    n = dict(compared=0, differ=0, replaced=0, errors=0, other_type=0)
    examples = []
    while n["compared"] < count:
        text = gen.template()
        ref, got = reference(env, text), driver.render(text)
        different = differs(ref, got)
        if different and not comparable(ref, got):
            n["replaced"] += 1
            continue
        n["compared"] += 1
        n["errors"] += "error" in ref
        kind = None
        if different:
            kind = "differ"
        elif "error" in ref and ref["error"].split(":")[0] not in got["error"]:
            kind = "other_type"
        if kind:
            n[kind] += 1
            if n[kind] <= show:
                examples.append(f"{kind}: template {text!r}\n  jinja2 {repr(ref)[:500]}\n  nibble {repr(got)[:500]}")
    driver.p.stdin.close()
    return n, examples


def main():
    p = argparse.ArgumentParser()
    p.add_argument("driver")
    p.add_argument("--count", type=int, default=100000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--show", type=int, default=10)
    a = p.parse_args()
    share = -(-a.count // a.jobs)
    jobs = [(a.driver, share, a.seed * 1000 + i, a.show) for i in range(a.jobs)]
    total = {}
    with multiprocessing.Pool(a.jobs) as pool:
        for n, examples in pool.imap_unordered(compare, jobs):
            print("\n".join(examples), flush=True)
            for k, v in n.items():
                total[k] = total.get(k, 0) + v
    print("{compared} templates compared ({errors} of them errors), {differ} differ; {replaced} not comparable and replaced; "
          "{other_type} errors of another type".format(**total))
    return 1 if total["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
