"""Follows every link of the built book that stays within it: the page, and the place on it.

    python3 scripts/links.py target/book
"""

import functools
import os
import re
import sys
import urllib.parse

book = sys.argv[1]


@functools.cache
def text(page):
    with open(page, encoding="utf-8") as file:
        return file.read()


@functools.cache
def places(page):
    return set(re.findall(r'id="([^"]+)"', text(page)))


def broken(page, link):
    target, _, place = link.partition("#")
    target = urllib.parse.unquote(target.split("?")[0])
    found = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
    if not os.path.exists(found):
        return True
    return bool(place) and found.endswith(".html") and urllib.parse.unquote(place) not in places(found)


followed, wrong = 0, 0
for folder, _, files in os.walk(book):
    # print.html holds all pages at once, 404.html stands at any address, toc.html is a frame
    for name in sorted(set(files) - {"print.html", "404.html", "toc.html"}):
        page = os.path.join(folder, name)
        if not name.endswith(".html"):
            continue
        for link in re.findall(r'(?:href|src)="([^"]+)"', text(page)):
            if re.match(r"[a-z]+:|//", link):
                continue
            followed += 1
            if broken(page, link):
                wrong += 1
                print(f"links: {os.path.relpath(page, book)}: {link} leads nowhere", file=sys.stderr)
print(f"links: {followed} within the book, {wrong} lead nowhere")
sys.exit(wrong > 0)
