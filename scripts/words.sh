#!/bin/sh
# Spelling (typos, from PyPI) and sentence length (textlint, from npm) of the book, README, generated help, errors and
# logs. Installs both below target/ at the versions pinned in scripts/words/, and says so. Needs python3 with venv, node
# and npm.
set -eu
cd "$(dirname "$0")/.."
tools=target/words
missing=
command -v npm >/dev/null || missing="$missing nodejs npm"
python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "words: needs$missing" >&2
        exit 1
    fi
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    echo "words: apt-get install --no-install-recommends$missing"
    $as_root apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing
fi
if ! cmp -s scripts/words/package-lock.json $tools/package-lock.json; then
    echo "words: npm ci, textlint in $tools"
    mkdir -p $tools
    cp scripts/words/package.json scripts/words/package-lock.json $tools/
    (cd $tools && npm ci --silent --no-fund --no-audit --ignore-scripts) || { rm -f $tools/package-lock.json; exit 1; }
fi
if ! cmp -s scripts/words/requirements.txt $tools/requirements.txt; then
    echo "words: pip install typos in $tools"
    python3 -m venv $tools/python
    $tools/python/bin/pip install -q -r scripts/words/requirements.txt
    cp scripts/words/requirements.txt $tools/
fi
# results pages repeat what earlier versions measured, in their words
pages=$(git ls-files 'docs/*.md' README.md CONTRIBUTING.md ARCHITECTURE.md SECURITY.md | xargs grep -L 'made by the test results_pages')
rm -rf $tools/pages
# shellcheck disable=SC2086 # a list of files
python3 scripts/words/unwrap.py $tools/pages $pages
# errors, logs and help, from the code that prints them
git ls-files 'crates/*/src/*.rs' | grep -v '/tests/\|/tests\.rs$\|/testing\.rs$\|/laws\.rs$' |
    xargs python3 scripts/words/strings.py $tools/pages
$tools/python/bin/typos --config scripts/words/typos.toml
find $tools/pages -name '*.md' -print0 |
    xargs -0 $tools/node_modules/.bin/textlint --config scripts/words/textlint.json --format unix
echo "words: $(echo "$pages" | wc -l) pages and the texts of $(find $tools/pages/crates -name "*.rs.md" | wc -l) source files, no sentence above 30 words"
