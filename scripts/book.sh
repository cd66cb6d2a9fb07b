#!/bin/sh
# Builds the book into target/book with mdBook, which it compiles below target/ once, in some minutes, and says so.
set -eu
cd "$(dirname "$0")/.."
version=0.4.52
tools=target/tools
if ! "$tools/bin/mdbook" --version 2>/dev/null | grep -q "v$version"; then
    echo "book: cargo install mdbook $version, in $tools"
    ${CARGO:-cargo} install mdbook --version "$version" --locked --root "$tools"
fi
"$tools/bin/mdbook" build docs/book
# mdBook calls a folder's README.md index.html, and leaves links to it as they were
find docs/book/src -name README.md -printf '%P\n' | while read -r page; do
    cp "target/book/${page%README.md}index.html" "target/book/${page%.md}.html"
done
if command -v python3 >/dev/null; then
    python3 scripts/links.py target/book
else
    echo "book: SKIPPED: the links are not followed; that needs python3 (apt-get install python3-minimal)"
fi
echo "book: target/book/index.html"
