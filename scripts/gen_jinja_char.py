#!/usr/bin/env python3
"""Writes src/text/jinja_char_tables.h: character data that utf8proc lacks, as this Python's str methods have it (3.11: Unicode 14)."""
import sys
import unicodedata as u

ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(name, test, what):
    out, start, last = [], None, None
    for ch in ALL:
        if test(ch):
            if last is not None and ord(ch) == last + 1:
                out[-1][1] = ord(ch)
            else:
                out.append([ord(ch), ord(ch)])
            last = ord(ch)
    text = [f"{{0x{a:X}, 0x{b:X}}}" for a, b in out]
    lines = [", ".join(text[i:i + 8]) for i in range(0, len(text), 8)]
    body = ",\n    ".join(lines)
    return f"/* {what} */\nstatic const nbj_char_range {name}[] = {{\n    {body},\n}};\n"


def specials():
    rows = []
    for ch in ALL:
        up, lo, ti = ch.upper(), ch.lower(), ch.title()
        if max(len(up), len(lo), len(ti)) > 1:
            cell = ["{" + ", ".join(f"0x{ord(c):X}" for c in s) + "}" for s in (up, lo, ti)]
            rows.append(f"    {{0x{ord(ch):X}, {cell[0]}, {cell[1]}, {cell[2]}}},")
    return ("/* Characters whose upper, lower or title case is more than one character. */\n"
            "static const nbj_special nbj_specials[] = {\n" + "\n".join(rows) + "\n};\n")


parts = [
    "/* text/jinja_char_tables: made by scripts/gen_jinja_char.py. Unicode " + u.unidata_version + ". */\n"
    "#ifndef NB_TEXT_JINJA_CHAR_TABLES_H\n#define NB_TEXT_JINJA_CHAR_TABLES_H\n\n#include <stdint.h>\n\n"
    "typedef struct nbj_char_range { uint32_t first, last; } nbj_char_range;\n"
    "typedef struct nbj_special { uint16_t c, upper[3], lower[3], title[3]; } nbj_special; /* ended by 0 where shorter */\n",
    ranges("nbj_digits", lambda c: c.isdigit() and not c.isdecimal(), "isdigit() but not decimal"),
    ranges("nbj_numerics", lambda c: c.isnumeric() and not c.isdigit(), "isnumeric() but not a digit"),
    ranges("nbj_other_lower", lambda c: c.islower() and u.category(c) != "Ll", "islower() though not of category Ll"),
    ranges("nbj_other_upper", lambda c: c.isupper() and u.category(c) != "Lu", "isupper() though not of category Lu"),
    specials(), "#endif\n",
]
open(sys.argv[1] if len(sys.argv) > 1 else "src/text/jinja_char_tables.h", "w").write("\n".join(parts))
