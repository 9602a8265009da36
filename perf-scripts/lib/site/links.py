#!/usr/bin/env python3
"""Checks that the links of a site lead to its files and headings.

usage: perf-scripts/lib/site/links.py SITE [FOLDER]

Reads all pages but those below rust/, whose links cargo doc has checked, and follows links to other
sites no further. Without FOLDER (rust), links into it are not followed.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key in ("href", "src") and value:
                self.links.append(value)
            elif key in ("id", "name") and value:
                self.names.add(value)


def main():
    site, with_rust = pathlib.Path(sys.argv[1]).resolve(), len(sys.argv) > 2
    pages = {path: Page(path) for path in site.rglob("*.html") if path.relative_to(site).parts[0] != "rust"}
    count, wrong = 0, []
    for path, page in sorted(pages.items()):
        # The page for what is not found is shown at any address, and the list of contents in a frame.
        if path.name in ("404.html", "toc.html"):
            continue
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            place, _, anchor = link.partition("#")
            there = (path.parent / urllib.parse.unquote(place.partition("?")[0])).resolve() if place else path
            if there.is_dir():
                there /= "index.html"
            if not with_rust and there.is_relative_to(site / "rust"):
                continue
            count += 1
            if not there.exists():
                wrong.append(f"{path.relative_to(site)}: {link} leads to nothing")
            elif anchor and there in pages and urllib.parse.unquote(anchor) not in pages[there].names:
                wrong.append(f"{path.relative_to(site)}: {link}: that page has no such heading")
    print("\n".join(wrong), end="\n" if wrong else "")
    print(f"{count} links in {len(pages)} pages, {len(wrong)} of them dead")
    return 1 if wrong else 0


sys.exit(main())
