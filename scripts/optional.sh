#!/bin/sh
# Runs a check whose tool may be missing; then it is skipped with a visible line and nothing fails.
set -eu
tool=$1
if command -v "$tool" >/dev/null; then
    sh -c "$2"
else
    echo "SKIPPED: $tool is not installed (cargo install ${tool}${3-})"
fi
