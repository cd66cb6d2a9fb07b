"""Writes the string literals of crates/*/src that a person may read (errors, logs, help: five words or more) as pages,
one a file, so that the linter sees them.

    python3 strings.py TARGET FILE..."""
import pathlib
import re
import sys

LITERAL = re.compile(r'r#"(.*?)"#|"((?:[^"\\]|\\.)*)"', re.S)


def literals(text):
    # comments and lifetimes hold no strings; a quotation mark as a character would begin one
    text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
    text = text.replace("'\"'", "''").replace("b'\"'", "''")
    # tests stand last in a file
    text = text.split("#[cfg(test)]\nmod tests {")[0]
    for raw, plain in LITERAL.findall(text):
        words = raw or re.sub(r"\\\n\s*", "", plain).replace("\\n", "\n").replace('\\"', '"')
        for line in words.split("\n"):
            line = re.sub(r"\{[^{}]*\}", "X", line)
            line = re.sub(r"\s+", " ", line).strip()
            if len(line.split()) >= 5:
                yield line


target = pathlib.Path(sys.argv[1])
for name in sys.argv[2:]:
    lines = list(literals(pathlib.Path(name).read_text(encoding="utf-8")))
    if lines:
        page = target / (name + ".md")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
