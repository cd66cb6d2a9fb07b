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
echo "book: target/book/index.html"
