"""The tree itself: rooms look only upwards, files and functions stay readable, nothing of one machine is written down, the README's commands exist."""
import os
import re
import subprocess
import unittest

import harness

ROOMS = ["base", "json", "format", "store", "text", "tensor", "cpu", "cache", "nn", "model", "create", "run", "serve", "api", "cli"]
GENERATED = re.compile(r"(_tables|unicode_props|unicode_norm|_vectors)\.[ch]$")
FUNCTION_LINES = 120
FILE_LINES = 1000


def tracked(*patterns):
    """Files that git knows (all files where there is no repository), tests' data and corpora left out."""
    p = subprocess.run(["git", "ls-files", "--", *patterns], cwd=harness.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    names = p.stdout.decode().split("\n")
    if p.returncode:
        names = [os.path.relpath(os.path.join(b, f), harness.ROOT) for b, _, fs in os.walk(harness.ROOT) for f in fs]
    return [n for n in names if n and not n.startswith(("tests/data/", "tests/fuzz/corpus/", "build/", ".git/")) and os.path.isfile(os.path.join(harness.ROOT, n))]


def read(name):
    with open(os.path.join(harness.ROOT, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def sources(root="src"):
    return [n for n in tracked() if n.startswith(root + "/") and n.endswith((".c", ".h"))]


class Tree(unittest.TestCase):
    def test_rooms_include_only_rooms_above(self):
        seen = 0
        for name in sources():
            room = name.split("/")[1]
            self.assertIn(room, ROOMS, name)
            for inc in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(name), re.M):
                seen += 1
                if inc == "nibble.h":
                    continue
                other = inc.split("/")[0]
                self.assertIn("/", inc, f"{name} includes {inc} without its room")
                self.assertIn(other, ROOMS, f"{name} includes {inc}")
                self.assertLessEqual(ROOMS.index(other), ROOMS.index(room), f"{name} includes {inc}: {other} is below {room}")
                self.assertTrue(os.path.exists(os.path.join(harness.ROOT, "src", inc)), f"{name} includes {inc}")
        self.assertGreater(seen, 200)
        print(f"covered: {seen} includes")

    def test_sizes(self):
        longest_file, longest_function = ("", 0), ("", 0)
        for name in sources() + sources("tests") + sources("examples"):
            if GENERATED.search(name):
                continue
            lines = read(name).split("\n")
            self.assertLessEqual(len(lines), FILE_LINES, name)
            longest_file = max(longest_file, (name, len(lines)), key=lambda x: x[1])
            start = None
            for i, line in enumerate(lines):
                if line == "{":
                    start = i
                elif re.match(r"}\s*(;.*)?$", line) and start is not None:
                    self.assertLessEqual(i - start, FUNCTION_LINES, f"{name}:{start + 1}")
                    longest_function = max(longest_function, (f"{name}:{start}", i - start), key=lambda x: x[1])
                    start = None
        print(f"covered: longest file {longest_file[0]} ({longest_file[1]} lines), longest function {longest_function[0]} ({longest_function[1]} lines)")

    def test_no_printing_or_exiting_in_the_library(self):
        for name in sources():
            if name.split("/")[1] == "cli":
                continue
            text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(\\.|[^\"\\])*\"", "", read(name), flags=re.S)
            for word in ("printf", "puts", "putchar", "perror", "exit", "abort", "signal", "sigaction"):
                self.assertIsNone(re.search(rf"(?<![\w.>]){word}\s*\(", text), f"{name}: {word}")
            self.assertIsNone(re.search(r"fprintf\s*\(\s*std", text), name)

    def test_words(self):
        """Paths of a machine, marks of unfinished work."""
        forbidden = [r"/" + "work/", r"/" + "root/", r"/tmp/" + "nb/", r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", r"\bXX" + r"X\b", r"pypi\." + "org", r"files\.python" + "hosted"]
        checked = 0
        for name in tracked():
            if name.endswith((".safetensors", ".gguf", ".png", ".bin")):
                continue
            text = read(name)
            checked += 1
            for f in forbidden:
                found = re.search(f, text)
                self.assertIsNone(found, f"{name}: {found and found.group()}")
        self.assertGreater(checked, 100)
        print(f"covered: {checked} files without forbidden words")

    def test_readme(self):
        readme, make = read("README.md"), read("Makefile")
        for target in set(re.findall(r"\bmake (\w[\w-]*)", readme)):
            self.assertRegex(make, rf"(?m)^[\w -]*\b{target}\b[\w -]*:", f"make {target}")
        listed = subprocess.run([harness.NIBBLE, "help"], stdout=subprocess.PIPE, check=True).stdout.decode()
        commands = set(re.findall(r"\bnibble ([a-z]+)\b", "\n".join(re.findall(r"```sh\n(.*?)```", readme, re.S)) + "\n".join(re.findall(r"`nibble [^`]*`", readme))))
        self.assertGreater(len(commands), 5)
        for c in commands:
            self.assertRegex(listed, rf"(?m)^  {c} ", c)
        for path in re.findall(r"\]\(((?!http)[^)#]+)\)", readme):
            self.assertTrue(os.path.exists(os.path.join(harness.ROOT, path)), path)
        print(f"covered: {len(commands)} commands of the README")

    def test_every_room_is_in_the_architecture_page(self):
        page = read("docs/architecture.md")
        for room in ROOMS:
            if room != "serve" and os.path.isdir(os.path.join(harness.ROOT, "src", room)):
                self.assertIn(room, page)


if __name__ == "__main__":
    harness.main()
