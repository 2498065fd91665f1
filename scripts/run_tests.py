#!/usr/bin/env python3
"""Runs every test of a build and prints what each covered.

  run_tests.py --build build/release [--only PATTERN] [--no-e2e] [--jobs N]

The C tests are the programs test_* of the build (cmocka); the end-to-end tests are tests/e2e/test_*.py (unittest, standard library
only), which drive the nibble program. Ends with a line "N passed, N failed, N skipped". Data for the tests is looked for in
NIBBLE_TEST_DATA (default ../shared), and where there is no such folder in tests/data; what is missing there is counted as skipped.
"""
import argparse
import concurrent.futures
import glob
import os
import re
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run_c(path):
    start = time.time()
    p = subprocess.run([path], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", timeout=3000)
    out = p.stdout
    passed = sum(int(m) for m in re.findall(r"\[  PASSED  \] (\d+) test", out))
    failed = sum(int(m) for m in re.findall(r"\[  FAILED  \] (\d+) test", out))
    skipped = sum(int(m) for m in re.findall(r"\[  SKIPPED \] (\d+) test", out)) + sum(int(m) for m in re.findall(r"(?m)^skipped: (\d+)", out))
    if p.returncode != 0 and failed == 0:
        failed = 1
    return path, passed, failed, skipped, p.returncode, out, time.time() - start


def run_e2e(path, build):
    start = time.time()
    env = dict(os.environ, NIBBLE_BUILD=os.path.abspath(build))
    p = subprocess.run([sys.executable, path], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", timeout=3000)
    out = p.stdout
    m = re.search(r"Ran (\d+) test", out)
    total = int(m.group(1)) if m else 0
    bad = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", out))
    whole = sum(int(n) for n in re.findall(r"skipped=(\d+)", out))  # tests; the others are parts of tests
    skipped = whole + sum(int(n) for n in re.findall(r"(?m)^skipped: (\d+)", out))
    if p.returncode != 0 and bad == 0:
        bad = 1
    return path, max(0, total - bad - whole), bad, skipped, p.returncode, out, time.time() - start


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits SIGINT ignored, and would hand it on
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", required=True)
    ap.add_argument("--only", default="")
    ap.add_argument("--no-e2e", action="store_true")
    ap.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    a = ap.parse_args()
    data = os.environ.get("NIBBLE_TEST_DATA", "../shared")
    there = os.path.isdir(os.path.join(ROOT, data))
    if not there:
        os.environ["NIBBLE_TEST_DATA"] = os.path.join("tests", "data")
    programs = sorted(p for p in glob.glob(os.path.join(a.build, "test_*")) if os.access(p, os.X_OK) and os.path.isfile(p) and re.search(a.only, os.path.basename(p)))
    scripts = [] if a.no_e2e else sorted(s for s in glob.glob(os.path.join(ROOT, "tests", "e2e", "test_*.py")) if re.search(a.only, os.path.basename(s)))
    total = [0, 0, 0]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        work = [pool.submit(run_c, p) for p in programs]
        work += [pool.submit(run_e2e, s, a.build) for s in scripts]
        for f in concurrent.futures.as_completed(work):
            try:
                path, passed, failed, skipped, code, out, seconds = f.result()
            except subprocess.TimeoutExpired as e:
                path, passed, failed, skipped, code, out, seconds = str(e.cmd), 0, 1, 0, "timeout", "", e.timeout
            total[0] += passed
            total[1] += failed
            total[2] += skipped
            print(f"{os.path.basename(path):44} {passed:5} passed {failed:3} failed {skipped:3} skipped  {seconds:7.1f} s", flush=True)
            for line in out.splitlines():
                if re.match(r"(covered|skipped|speed|note): ?", line):
                    print("    " + line[:200])
            if failed:
                lines = [l for l in out.splitlines() if not l.startswith(("[ RUN", "[       OK"))]
                print("\n".join("    | " + l[:300] for l in lines[-60:]), flush=True)
                print(f"    exit code {code}")
    print(f"test data: {data}" if there else f"test data: {data} is missing; tests/data served instead, and the published tokenizers and templates were skipped")
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    sys.exit(1 if total[1] or not total[0] else 0)


if __name__ == "__main__":
    main()
