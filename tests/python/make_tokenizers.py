#!/usr/bin/env python3
"""Makes a small tokenizer of every class that transformers can train: its normaliser, pre-tokenizer, post-processor and decoder as the class writes them, over the
texts of this repository and some in other scripts. tokenizer_diff.py compares ids over them.

usage: make_tokenizers.py FOLDER [--size 2000] [--least 50]
Needs transformers and tokenizers. Fails where fewer than --least come out."""
import argparse
import glob
import os
import sys
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES, tokenizer_class_from_name

OTHER = ["Ça coûte 12,50 € à Noël — naïve façade", "日本語のテキストを分割する。東京都", "한국어 문장입니다 안녕하세요", "हिन्दी में लिखा हुआ पाठ", "العربية نص للتجربة",
         "ไทย ภาษาไทย", "Привет, как дела?", "emoji 👨‍👩‍👧 🙂🙃 🇩🇪", "don't it's we'll I'VE", "x = y[0] + 1234567;  // comment\t\ttab"]


def lines():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    out = OTHER * 40
    for pattern in ("docs/*.md", "src/text/*.c", "tests/python/*.py"):
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            with open(path, encoding="utf-8") as f:
                out += f.read().split("\n")
    return out[::3]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--size", type=int, default=2000)
    p.add_argument("--least", type=int, default=50)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    text, made = lines(), 0
    for name in sorted({n for n in TOKENIZER_MAPPING_NAMES.values() if n}):
        try:
            kind = tokenizer_class_from_name(name)
            if not hasattr(kind, "train_new_from_iterator"):
                continue
            trained = kind().train_new_from_iterator((text[i:i + 200] for i in range(0, len(text), 200)), a.size, show_progress=False)
        except Exception as e:  # needs files or packages of its own
            print(f"{name}: not made: {str(e).splitlines()[0][:100]}")
            continue
        trained.save_pretrained(os.path.join(a.folder, name))
        made += 1
    print(f"{made} tokenizers")
    return 0 if made >= a.least else 1


if __name__ == "__main__":
    sys.exit(main())
