#!/usr/bin/env python3
"""Writes src/text/unicode_props.c and src/text/unicode_norm.c from Debian's unicode-data (Unicode 15.0).

usage: scripts/gen_unicode.py [UCD_FOLDER] [OUTPUT_FOLDER]

The components of published tokenizers were built with Unicode 8, 9, 16 and 17 (each with its own). What can be had
from one release plus the age of each character is computed; every other difference is listed below, with the
characters that it concerns.
"""
import os
import sys

UCD = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode"
OUT = sys.argv[2] if len(sys.argv) > 2 else os.path.join(os.path.dirname(__file__), "..", "src", "text")

# ---- 15.0 -> 16.0 (regular expressions): new characters by general category, and one that changed (U+1171E AHOM
# CONSONANT SIGN MEDIAL RA: Mn -> Mc). 15.1 brought only CJK extension I (2EBF0) and 2FFC-2FFF, 31EF.
GC16 = {
    "Mn": "0897 10D69-10D6D 10EFC 113BB-113C0 113CE 113D0 113D2 113E1-113E2 11F5A 1611E-16129 1612D-1612F 1E5EE-1E5EF",
    "Po": "1B4E-1B4F 1B7F 113D4-113D5 113D7-113D8 11BE1 16D6D-16D6F 1E5FF",
    "Lu": "1C89 A7CB-A7CC A7DA A7DC 10D50-10D65",
    "Ll": "1C8A A7CD A7DB 10D70-10D85",
    "So": "2427-2429 2FFC-2FFF 31E4-31E5 31EF 1CC00-1CCEF 1CD00-1CEB3 1F8B2-1F8BB 1F8C0-1F8C1 1FA89 1FA8F 1FABE 1FAC6 "
          "1FADC 1FADF 1FAE9 1FBCB-1FBEF",
    "Lo": "105C0-105F3 10D4A-10D4D 10D4F 10EC2-10EC4 11380-11389 1138B 1138E 11390-113B5 113B7 113D1 113D3 11BC0-11BE0 "
          "13460-143FA 16100-1611D 16D43-16D6A 18CFF 1E5D0-1E5ED 1E5F0 2EBF0-2EE5D",
    "Nd": "10D40-10D49 116D0-116E3 11BF0-11BF9 16130-16139 16D70-16D79 1CCF0-1CCF9 1E5F1-1E5FA",
    "Lm": "10D4E 10D6F 16D40-16D42 16D6B-16D6C",
    "Pd": "10D6E",
    "Sm": "10D8E-10D8F",
    "Mc": "113B8-113BA 113C2 113C5 113C7-113CA 113CC-113CD 113CF 1612A-1612C 1171E",
}
# Marks that became Alphabetic in 16.0 (Latin letters above), beside the new letters and marks.
ALPHA16 = ("0363-036F 0897 1DD3-1DE6 10D69 10EFC 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113CD 1611E-1612E")
SCRIPT16 = {
    "Arabic": "0897 10EC2-10EC4 10EFC", "Balinese": "1B4E-1B4F 1B7F", "Cyrillic": "1C89-1C8A",
    "Common": "2427-2429 2FFC-2FFF 31E4-31E5 31EF 1CC00-1CCF9 1CD00-1CEB3 1F8B2-1F8BB 1F8C0-1F8C1 1FA89 1FA8F 1FABE "
              "1FAC6 1FADC 1FADF 1FAE9 1FBCB-1FBEF",
    "Latin": "A7CB-A7CD A7DA-A7DC", "Todhri": "105C0-105F3", "Garay": "10D40-10D65 10D69-10D85 10D8E-10D8F",
    "Tulu_Tigalari": "11380-11389 1138B 1138E 11390-113B5 113B7-113C0 113C2 113C5 113C7-113CA 113CC-113D5 113D7-113D8 "
                     "113E1-113E2",
    "Myanmar": "116D0-116E3", "Sunuwar": "11BC0-11BE1 11BF0-11BF9", "Kawi": "11F5A",
    "Egyptian_Hieroglyphs": "13460-143FA", "Gurung_Khema": "16100-16139", "Kirat_Rai": "16D40-16D79",
    "Khitan_Small_Script": "18CFF", "Ol_Onal": "1E5D0-1E5FA 1E5FF", "Han": "2EBF0-2EE5D",
}
# ---- 17.0: numbers (component Digits) and lower case (component Lowercase) that 16.0 lacks. U+A7D2 and U+A7D4 are
# older than their capitals' mapping; U+16EA0 to 16EB8 is Beria Erfe.
NUM17 = "11DE0-11DE9 16FF4-16FF6"
LOWER16 = [(0x1C89, 0x1C8A, 1), (0xA7CB, 0x264, 1), (0xA7CC, 0xA7CD, 1), (0xA7DA, 0xA7DB, 1), (0xA7DC, 0x19B, 1),
           (0x10D50, 0x10D70, 22)]
LOWER17 = [(0xA7CE, 0xA7CF, 1), (0xA7D2, 0xA7D3, 1), (0xA7D4, 0xA7D5, 1), (0x16EA0, 0x16EBB, 25)]
# ---- 8.0: characters that had another category than in 15.0. Punctuation then: CANADIAN SYLLABICS CHI SIGN, SHARADA
# SANDHI MARK. Marks then: HANUNOO SIGN PAMUDPOD (Mn, now Mc); not yet Mn: MONGOLIAN ALI GALI BALUDA (both),
# JAVANESE CONSONANT SIGN KERET, SHARADA SANDHI MARK.
PUNCT8_MORE = "166D 111C9"
MN8_MORE, MN8_LESS = "1734", "1885-1886 A9BD 111C9"
# ---- 9.0: VEDIC SIGN ARDHAVISARGA and ROTATED ARDHAVISARGA were marks; SHARADA SANDHI MARK was not. Of another script
# then: ARMENIAN FULL STOP and ARABIC LETTER MARK (Common), the DEVANAGARI GRAVE and ACUTE ACCENTS (Devanagari).
MARK9_MORE, MARK9_LESS = "1CF2-1CF3", "111C9"


def ranges(text):
    for part in text.split():
        a, _, b = part.partition("-")
        yield from range(int(a, 16), int(b or a, 16) + 1)


def prop_lines(name):
    with open(os.path.join(UCD, name), encoding="utf-8") as f:
        for line in f:
            line = line.split("#")[0].strip()
            if not line:
                continue
            fields = [x.strip() for x in line.split(";")]
            a, _, b = fields[0].partition("..")
            yield range(int(a, 16), int(b or a, 16) + 1), fields[1:]


def read_props(name, wanted):
    sets = {w: set() for w in wanted}
    for cps, fields in prop_lines(name):
        if fields[0] in sets:
            sets[fields[0]].update(cps)
    return sets


MAX = 0x110000
gc = ["Cn"] * MAX
ccc = [0] * MAX
decomp, lower = {}, {}
first = None
for row in open(os.path.join(UCD, "UnicodeData.txt"), encoding="utf-8"):
    f = row.rstrip("\n").split(";")
    cp = int(f[0], 16)
    if f[1].endswith("First>"):
        first = cp
        continue
    for c in range(first if f[1].endswith("Last>") else cp, cp + 1):
        gc[c], ccc[c] = f[2], int(f[3])
    if f[5]:
        parts = f[5].split()
        compat = parts[0].startswith("<")
        decomp[cp] = (compat, [int(x, 16) for x in parts[1 if compat else 0:]])
    if f[13]:
        lower[cp] = int(f[13], 16)
age = [(99, 0)] * MAX
for cps, fields in prop_lines("DerivedAge.txt"):
    version = tuple(int(x) for x in fields[0].split("."))
    for c in cps:
        age[c] = version
gc15 = list(gc)
for name, text in GC16.items():
    for c in ranges(text):
        gc[c] = name
script15 = ["Unknown"] * MAX
for cps, fields in prop_lines("Scripts.txt"):
    for c in cps:
        script15[c] = fields[0]
script = list(script15)
for name, text in SCRIPT16.items():
    for c in ranges(text):
        script[c] = name
core = read_props("DerivedCoreProperties.txt", ["Alphabetic", "Uppercase", "Lowercase"])
alpha = core["Alphabetic"] | set(ranges(ALPHA16))
upper, lowr = core["Uppercase"], core["Lowercase"]
for name, text in GC16.items():
    if name[0] == "L":
        alpha.update(ranges(text))
    if name == "Lu":
        upper.update(ranges(text))
    if name == "Ll":
        lowr.update(ranges(text))
prop = read_props("PropList.txt", ["White_Space", "Join_Control", "Ideographic", "Hex_Digit"])
prop["Ideographic"].update(ranges("2EBF0-2EE5D 18CFF"))
emoji = read_props("emoji/emoji-data.txt", ["Extended_Pictographic", "Emoji"])
gcb = ["Other"] * MAX
for cps, fields in prop_lines("auxiliary/GraphemeBreakProperty.txt"):
    for c in cps:
        gcb[c] = fields[0]
for c in range(MAX):
    if gc15[c] == "Cn" and gc[c] in ("Mn", "Mc"):
        gcb[c] = "Extend" if gc[c] == "Mn" else "SpacingMark"

# Unicode 9.0 scripts: what was given another script after 9.0.
script9 = [script15[c] if age[c] <= (9, 0) else "Unknown" for c in range(MAX)]
for name, text in {"Common": "0589 061C", "Devanagari": "0953-0954"}.items():
    for c in ranges(text):
        script9[c] = name
# The component UnicodeScripts takes kana for Han, and a space for a character without a script.
for c in range(MAX):
    if script9[c] in ("Hiragana", "Katakana") or c == 0x30FC:
        script9[c] = "Han"
script9[0x20] = "Unknown"

GC = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co".split()
GCB = "Other CR LF Control Extend ZWJ Regional_Indicator Prepend SpacingMark L V T LV LVT".split()
FLAGS = ("WHITE ALPHA UPPER LOWER WORD NUM17 PUNCT8 BERT_GONE MN8 MARK9 PICT IDEO HEX NFC_MAYBE NFC_NO HAS_CANON "
         "HAS_COMPAT ASSIGNED_AFTER_14").split()

composed = {}
excluded = {c for cps, _ in prop_lines("CompositionExclusions.txt") for c in cps}
for c, (compat, to) in decomp.items():
    if not compat and len(to) == 2 and age[c] <= (9, 0) and c not in excluded and not ccc[c] and not ccc[to[0]]:
        composed[tuple(to)] = c
decomp9 = {c: d for c, d in decomp.items() if age[c] <= (9, 0)}
second = {b for _, b in composed} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
composites = set(composed.values())


def has_compat_inside(c):
    return c in decomp9 and (decomp9[c][0] or any(has_compat_inside(x) for x in decomp9[c][1]))


def record(c):
    old8, old9 = age[c] <= (8, 0), age[c] <= (9, 0)
    g, g15 = gc[c], gc15[c]
    fl = set()
    if c in prop["White_Space"]: fl.add("WHITE")
    if c in alpha: fl.add("ALPHA")
    if c in upper: fl.add("UPPER")
    if c in lowr: fl.add("LOWER")
    if c in alpha or g[0] == "M" or g in ("Nd", "Pc") or c in prop["Join_Control"]: fl.add("WORD")
    if g[0] == "N" or c in NUM17_SET: fl.add("NUM17")
    if (g15[0] == "P" and old8) or c in PUNCT8_SET or (c < 128 and chr(c) in "$+<=>^`|~"): fl.add("PUNCT8")
    if (g15 in ("Cc", "Cf", "Co") and old8 and c not in (9, 10, 13)) or c == 0xFFFD: fl.add("BERT_GONE")
    if (g15 == "Mn" and old8 and c not in MN8_LESS_SET) or c in MN8_MORE_SET: fl.add("MN8")
    if (g15[0] == "M" and old9 and c not in MARK9_LESS_SET) or c in MARK9_MORE_SET: fl.add("MARK9")
    if c in emoji["Extended_Pictographic"]: fl.add("PICT")
    if c in prop["Ideographic"]: fl.add("IDEO")
    if c in prop["Hex_Digit"]: fl.add("HEX")
    if c in second: fl.add("NFC_MAYBE")
    if c in decomp9:
        fl.add("HAS_COMPAT" if decomp9[c][0] else "HAS_CANON")
        if has_compat_inside(c): fl.add("HAS_COMPAT")
        if not decomp9[c][0] and c not in composites: fl.add("NFC_NO")
    if age[c] > (14, 0) and g != "Cn" or c == 0x1171E: fl.add("ASSIGNED_AFTER_14")
    bits = sum(1 << FLAGS.index(x) for x in fl)
    return (GC.index(g), SCRIPTS.index(script[c]), SCRIPTS.index(script9[c]), GCB.index(gcb[c]), ccc[c] if old9 else 0, bits)


NUM17_SET, PUNCT8_SET = set(ranges(NUM17)), set(ranges(PUNCT8_MORE))
MN8_MORE_SET, MN8_LESS_SET = set(ranges(MN8_MORE)), set(ranges(MN8_LESS))
MARK9_MORE_SET, MARK9_LESS_SET = set(ranges(MARK9_MORE)), set(ranges(MARK9_LESS))

SCRIPTS = ["Unknown"] + sorted((set(script) | set(script9)) - {"Unknown"})


def write_props(path):
    records, runs, previous = {}, [], None
    for c in range(MAX):
        number = records.setdefault(record(c), len(records))
        if number != previous:
            runs.append(c << 11 | number)
            previous = number
    assert len(records) < 1 << 11
    with open(path, "w") as o:
        o.write("/* Written by scripts/gen_unicode.py from unicode-data 15.0 and its list of differences; do not edit. */\n"
                '#include "text/unicode_tables.h"\n\n')
        o.write("const nb_uni_record nb_uni_records[] = {\n")
        rows(o, ["{%d,%d,%d,%d,%d,%#x}" % r for r in records])
        o.write("};\nconst uint32_t nb_uni_record_count = %d;\n\n/* first code point << 11 | record */\n"
                "const uint32_t nb_uni_runs[] = {\n" % len(records))
        rows(o, ["%#x" % r for r in runs])
        o.write("};\nconst uint32_t nb_uni_run_count = %d;\n\n" % len(runs))
        o.write("const char *const nb_uni_script_names[] = {\n")
        rows(o, ['"%s"' % x for x in SCRIPTS])
        o.write("};\nconst uint32_t nb_uni_script_count = %d;\n\n" % len(SCRIPTS))
        low = case_runs([(a + i, b + i) for a, b, n in LOWER16 + LOWER17 for i in range(n)] + list(lower.items()))
        o.write("/* first, last, step, mapped first */\nconst nb_uni_case nb_uni_lower[] = {\n")
        rows(o, ["{%#x,%#x,%d,%#x}" % r for r in low])
        o.write("};\nconst uint32_t nb_uni_lower_count = %d;\n\n" % len(low))
        fold, full = read_folds()
        runs = case_runs(fold)
        o.write("const nb_uni_case nb_uni_fold[] = {\n")
        rows(o, ["{%#x,%#x,%d,%#x}" % r for r in runs])
        o.write("};\nconst uint32_t nb_uni_fold_count = %d;\n\n" % len(runs))
        o.write("const uint16_t nb_uni_full_fold[][4] = {\n")
        rows(o, ["{%s}" % ",".join("%#x" % x for x in [c] + to + [0] * (3 - len(to))) for c, to in full])
        o.write("};\nconst uint32_t nb_uni_full_fold_count = %d;\n" % len(full))


def rows(o, items, width=190):
    line = ""
    for item in items:
        if len(line) + len(item) + 1 > width:
            o.write(line + "\n")
            line = ""
        line += item + ","
    o.write(line + "\n")


def case_runs(pairs):
    """Pairs as (first, last, step, mapped first): step 1 or 2, the mapping at a constant distance."""
    out = []
    for a, b in sorted(pairs):
        if out:
            first, last, step, to = out[-1]
            if b - a == to - first and a - last in (1, 2) and (first == last or step == a - last):
                out[-1] = (first, a, a - last, to)
                continue
        out.append((a, a, 1, b))
    return out


def read_folds():
    """Simple folds (15.0, and the letters of 16.0), and the characters that fold to several."""
    simple, full = [], []
    for cps, fields in prop_lines("CaseFolding.txt"):
        to = [int(x, 16) for x in fields[1].split()]
        if fields[0] in "CS":
            simple.append((cps[0], to[0]))
        elif fields[0] == "F":
            full.append((cps[0], to))
    simple += [(a + i, b + i) for a, b, n in LOWER16 for i in range(n)]
    return simple, full


def write_norm(path):
    keys, pool = [], []
    for c, (compat, to) in sorted(decomp9.items()):
        keys.append("{%#x,%d,%d}" % (c, len(pool), len(to) | (0x80 if compat else 0)))
        pool += to
    with open(path, "w") as o:
        o.write("/* Written by scripts/gen_unicode.py from unicode-data 15.0: what Unicode 9.0 had; do not edit. */\n"
                '#include "text/unicode_tables.h"\n\n/* code point, place in the pool, length (0x80: compatibility) */\n'
                "const nb_uni_decomposition nb_uni_decompositions[] = {\n")
        rows(o, keys)
        o.write("};\nconst uint32_t nb_uni_decomposition_count = %d;\n\n" % len(keys))
        small = {c: i for i, c in enumerate(sorted({c for c in pool if c > 0xFFFF}))}
        assert len(small) < 0x800  # characters beyond the BMP: 0xD800 + their number
        o.write("const uint16_t nb_uni_decomposition_pool[] = {\n")
        rows(o, ["%#x" % (c if c <= 0xFFFF else 0xD800 + small[c]) for c in pool])
        o.write("};\nconst uint32_t nb_uni_decomposition_astral[] = {\n")
        rows(o, ["%#x" % c for c in sorted(small)])
        o.write("};\n\n/* first, second, composed; sorted */\nconst uint32_t nb_uni_compositions[][3] = {\n")
        rows(o, ["{%#x,%#x,%#x}" % (a, b, c) for (a, b), c in sorted(composed.items())])
        o.write("};\nconst uint32_t nb_uni_composition_count = %d;\n" % len(composed))


write_props(os.path.join(OUT, "unicode_props.c"))
write_norm(os.path.join(OUT, "unicode_norm.c"))
