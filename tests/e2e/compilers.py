#!/usr/bin/env python3
"""The same bits from two builds (gcc and clang), from every tier: compilers.py BUILD BUILD. Ends with "N passed, N failed"."""
import json
import os
import subprocess
import sys
import tempfile

import harness


def digests(build, directory, tier):
    with tempfile.TemporaryDirectory() as tmp:
        p = subprocess.run([os.path.join(build, "nibble"), "compare", directory, "--tier", tier, "--threads", "2", "--json", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, TMPDIR=tmp))
        if p.returncode == 6:
            return None
        b = json.loads(p.stdout)["b"]
        return b["digest"], b["float32_digest"]


def main():
    passed = failed = 0
    for d in harness.reference_models():
        seen = {}
        for build in sys.argv[1:]:
            for tier in harness.tiers():
                seen[(build, tier)] = digests(build, d, tier)
        values = set(seen.values())
        if values == {None}:
            continue
        if len(values) == 1:
            passed += 1
        else:
            failed += 1
            print(f"{os.path.basename(d)}: {seen}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
