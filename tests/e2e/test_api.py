"""The library: exported symbols, the example of the public API, sessions from Python through the C interface."""
import os
import re
import subprocess

import harness


class Api(harness.Case):
    def test_exported_symbols(self):
        with open(os.path.join(harness.ROOT, "include", "nibble.h")) as f:
            declared = set(re.findall(r"NB_API[^;(]*?(nb_\w+)\(", f.read()))
        out = subprocess.run(["nm", "-D", "--defined-only", os.path.join(harness.BUILD, "libnibble.so")], stdout=subprocess.PIPE, check=True).stdout.decode()
        exported = {line.split()[-1].split("@")[0] for line in out.splitlines() if line.split()[1] in "TDBR"}
        self.assertEqual(declared, exported)
        print(f"covered: {len(declared)} exported functions")

    def test_header_is_c_and_cpp(self):
        for lang, std in (("c", "c99"), ("c", "c17"), ("c++", "c++11")):
            compiler = "g++" if lang == "c++" else "gcc"
            if subprocess.run(["which", compiler], stdout=subprocess.DEVNULL).returncode:
                continue
            p = subprocess.run([compiler, f"-std={std}", "-Wall", "-Wextra", "-Werror", "-pedantic", "-x", lang, "-fsyntax-only", "-I", "include", "-"], input=b"#include <nibble.h>\nint main(void) { return 0; }\n", cwd=harness.ROOT)
            self.assertEqual(p.returncode, 0)

    def test_example(self):
        models = [d for d in harness.reference_models() if harness.model_type(d) == "llama"]
        self.assertTrue(models)
        self.ok("create", "tiny", "--from", models[0], "--quiet")
        example = os.path.join(harness.BUILD, "example_complete")
        p = subprocess.run([example, "tiny", "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        self.assertEqual(p.returncode, 1)  # the reference models have no tokenizer
        self.assertIn(b"no tokenizer", p.stderr)
        p = subprocess.run([example, "absent", "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        self.assertIn(b"absent", p.stderr)
        gguf = os.path.join(harness.ROOT, "build", "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
        if not os.path.exists(gguf):
            print("skipped: 1 the example on SmolLM2 (make run gets it)")
            return
        self.ok("create", "smollm2", "--from", gguf, "--quiet")
        p = subprocess.run([example, "smollm2", "The capital of France is"], stdout=subprocess.PIPE, env=self.env, check=True)
        self.assertIn(b"Paris", p.stdout)


if __name__ == "__main__":
    harness.main()
