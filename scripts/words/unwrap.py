"""Writes Markdown files anew with one line a paragraph, list item or table cell, and without code blocks.

The sentence linter takes the end of a line for the end of a sentence. Usage: unwrap.py OUT FILE…
Prints nothing; OUT/FILE keeps each paragraph at the line where it began, so that places stay true.
"""

import pathlib
import re
import sys


def unwrap(text):
    out, code, start = [], False, None
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            code, start = not code, None
            out.append("")
            continue
        stripped = line.strip()
        if code or not stripped:
            start = None
            out.append("")
        elif stripped.startswith("|"):
            start = None
            cells = [cell.strip(" -:") for cell in stripped.strip("|").split("|")]
            out.append(". ".join(cell for cell in cells if cell))
        elif re.match(r"([-*>#]|\d+\.) ?", stripped) or start is None:
            start = len(out)
            out.append(line)
        else:
            out[start] += " " + stripped
            out.append("")
    return "\n".join(out)


target = pathlib.Path(sys.argv[1])
for name in sys.argv[2:]:
    to = target / name
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(unwrap(pathlib.Path(name).read_text(encoding="utf-8")), encoding="utf-8")
