"""What the end-to-end tests share: the program under test, temporary stores, test data found by structure."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("NIBBLE_BUILD", os.path.join(ROOT, "build", "release"))
NIBBLE = os.path.join(BUILD, "nibble")
DATA = os.path.join(ROOT, os.environ.get("NIBBLE_TEST_DATA", "../shared"))


def reference_models():
    """Folders with a config, weights and a reference: those of the test data, else those of the repository."""
    for base in (os.path.join(DATA, "reference_models"), os.path.join(ROOT, "tests", "data", "reference_models")):
        if os.path.isdir(base):
            found = [os.path.join(base, d) for d in sorted(os.listdir(base))]
            return [d for d in found if all(os.path.exists(os.path.join(d, f)) for f in ("config.json", "reference.safetensors"))]
    return []


def model_type(directory):
    with open(os.path.join(directory, "config.json")) as f:
        c = json.load(f)
    return c.get("model_type") or c.get("text_config", {}).get("model_type")


def tiers():
    v = json.loads(subprocess.run([NIBBLE, "version", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    return v["tiers"]


class Case(unittest.TestCase):
    """A test with its own store."""

    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory(prefix="nibble-test-")
        self.store = os.path.join(self.tmp.name, "store")
        self.env = dict(os.environ, NIBBLE_MODELS=self.store, TMPDIR=self.tmp.name)
        self.env.pop("NIBBLE_TIER", None)

    def tearDown(self):
        self.tmp.cleanup()

    def run_nibble(self, *args, stdin=None, env=None, timeout=600):
        e = dict(self.env, **(env or {}))
        return subprocess.run([NIBBLE, *map(str, args)], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=e,
                              timeout=timeout, cwd=ROOT)

    def ok(self, *args, **kw):
        p = self.run_nibble(*args, **kw)
        self.assertEqual(p.returncode, 0, f"nibble {' '.join(map(str, args))}: exit {p.returncode}\n{p.stdout.decode(errors='replace')[-2000:]}\n{p.stderr.decode(errors='replace')[-2000:]}")
        return p.stdout

    def fails(self, code, *args, **kw):
        """Exit code as said, one line on stderr, nothing on stdout; returns the line."""
        p = self.run_nibble(*args, **kw)
        err = p.stderr.decode(errors="replace")
        self.assertEqual(p.returncode, code, f"nibble {' '.join(map(str, args))}: exit {p.returncode}\n{err}")
        return err

    def stray_files(self):
        """What an import that failed must not leave: anything in tmp, and blobs that no manifest names."""
        left = []
        for base, _, files in os.walk(self.store):
            left += [os.path.join(base, f) for f in files]
        return [f for f in left if not f.endswith((".lock",))]

    def temp(self, name):
        return os.path.join(self.tmp.name, name)


def python_with_numpy():
    """A python that has numpy, for the independent forward."""
    for p in (os.environ.get("NIBBLE_PYTHON"), sys.executable, "/usr/bin/python3"):
        if p and subprocess.run([p, "-c", "import numpy"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            return p
    return None


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits SIGINT ignored, and would hand it on
    unittest.main(verbosity=0)
