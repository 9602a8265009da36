#!/usr/bin/env python3
"""Lays out the book of perf-scripts/site for mdBook.

usage: perf-scripts/lib/site/assemble.py WORK [DOC]

Writes WORK/book.toml and WORK/src: the pages of this repository in their folders, so that links
between them hold; the manual as pages; files that pages link to. WORK/programs has the manual pages
that programs have made, DOC is what cargo doc has made.
"""

import html
import os
import pathlib
import re
import subprocess
import sys

import plots

ROOT = pathlib.Path(__file__).parents[3]
# All pages but lists of files.
OTHERS = "others"
# Chapters in their order. A pattern takes the pages that no pattern before it has taken.
PARTS = {
    "Use": ["emulator/README.md", "docs/ci.md", "docs/guide.md", "examples/README.md", "docs/devices.md",
            "docs/compared.md", "docs/commands.md", "packaging/README.md"],
    "Measure": ["docs/measuring.md", "docs/performance.md", "docs/results/*.md"],
    "Manual": ["man/*.1.md", "man/dat.conf.5.md", "man/udapl.7.md", "man/*.md"],
    "Rust": ["rust.md", "dat-api/README.md", "engine/README.md", "engine/ring/README.md", "dv-sys/README.md",
             "dat-api/*/README.md", "dat-api/libdat/allocator/README.md", "bench/README.md", "build/cli-docs/README.md"],
    "Project": ["ARCHITECTURE.md", "docs/vocabulary.md", "docs/decisions/README.md", "docs/decisions/*.md",
                "docs/emulator-internals.md", "CONTRIBUTING.md", "SECURITY.md", "docs/releases.md", "CHANGELOG.md", "docs/README.md",
                OTHERS],
    "Files": ["files/*.md"],
}
# The patterns whose pages are below the page before them.
BELOW = {"docs/decisions/*.md", "man/*.md"}
# How the manual names its pages: in bold, then the section, or parentheses for a call.
REFERENCE = re.compile(r"<b>([\w.-]+)</b>\((3DAT|\d)?\)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
BOOK = """[book]
title = "uDAPL on mlx5 rings"
language = "en"
src = "src"

[build]
build-dir = "html"
create-missing = false

[output.html]
additional-css = ["site.css"]
default-theme = "light"
preferred-dark-theme = "navy"
no-section-label = true
smart-punctuation = false

[output.html.fold]
enable = true

[output.html.print]
enable = false
"""


def git(*command):
    return subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


class Site:
    def __init__(self, work, doc):
        self.source, self.doc = work / "src", doc
        self.tracked = set(git("ls-files"))
        self.pages = {name: (ROOT / name).read_text() for name in self.tracked if name.endswith(".md")}
        self.copied = set()
        self.manual = {}
        for page in [*(ROOT / name for name in self.tracked if "/man/" in name), *(work / "programs/man").rglob("*.*")]:
            self.manual[page.name.lower()] = page
        self.wrong = []

    def crates(self):
        """Returns the folders of the crates for others, with the names of their libraries."""
        for name in self.tracked:
            if name.endswith("Cargo.toml") and name.count("/"):
                manifest = (ROOT / name).read_text()
                if "publish = false" not in manifest:
                    yield os.path.dirname(name), re.search(r'^name = "(.*)"', manifest, re.M)[1].replace("-", "_")

    def of_rust(self, name):
        """Returns the page of the Rust API about a source file, if there is one."""
        for folder, crate in self.crates():
            if self.doc and name.startswith(f"{folder}/src/"):
                module = re.sub(r"(^|/)(mod|lib)$", "", name[len(folder) + 5:].removesuffix(".rs"))
                page = pathlib.Path(crate, module, "index.html")
                if (self.doc / page).exists():
                    return f"rust/{page}"
        return None

    def target(self, page, link):
        """Returns where a link of a page leads in the site."""
        path, _, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return link
        name = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if name in self.pages:
            there = name
        elif os.path.basename(name).lower() in self.manual:
            there = f"man/{os.path.basename(name).lower()}.md"
        elif (ROOT / name).is_dir():
            there = f"{name}/README.md" if f"{name}/README.md" in self.pages else self.folder(name)
        elif name in self.tracked:
            there = self.of_rust(name) or self.file(name)
        else:
            self.wrong.append(f"{page}: {link} leads to nothing that git has")
            return link
        # mdBook makes index.html of README.md, and does not say so to links.
        there = re.sub(r"README\.md$", "index.html", there)
        return os.path.relpath(there, os.path.dirname(page) or ".") + (f"#{anchor}" if anchor else "")

    def file(self, name):
        self.copied.add(name)
        return f"files/{name}.txt"

    def folder(self, name):
        page = f"files/{name.replace('/', '-')}.md"
        if page not in self.pages:
            links = "".join(f"- [{it}](../{self.file(it)})\n" for it in sorted(self.tracked) if it.startswith(f"{name}/"))
            self.pages[page] = f"# {name}\n\n{links}"
        return page

    def page(self, name, text):
        """Returns a page of the repository as mdBook gets it."""
        if name.startswith("docs/results/"):
            text = plots.with_plots(os.path.basename(name), text, self.wrong)
        text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
        # Labels of links may be code, so only blocks of code are left out.
        parts = re.split(r"(^```.*?^```)", text, flags=re.M | re.S)
        change = lambda part: LINK.sub(lambda found: f"]({self.target(name, found[1])})", part)
        return "".join(change(part) if at % 2 == 0 else part for at, part in enumerate(parts))

    def manual_page(self, name, path):
        """Returns a page of the manual, as HTML without empty lines, which would end it for mdBook."""
        made = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", path], check=True, capture_output=True, text=True).stdout
        made = re.sub(r'<table class="head">.*?</table>\s*', "", made, count=1, flags=re.S)
        made = re.sub(r"<(/?)h2\b", r"<\1h3", made)
        made = re.sub(r"<(/?)h1\b", r"<\1h2", made)
        made = re.sub(r'<a class="permalink" href="[^"]*">(.*?)</a>', r"\1", made, flags=re.S)
        made = REFERENCE.sub(lambda found: self.reference(name, *found.groups()), made)
        made = re.sub(r"<pre>.*?</pre>", lambda block: block[0].replace("\n\n", "\n<i></i>\n"), made, flags=re.S)
        made = re.sub(r"\n\s*\n", "\n", made)
        title, section = name.rsplit(".", 1)
        return f"# {title}({section.upper()})\n\n{made}"

    def reference(self, page, name, section):
        there = f"{name}.{(section or '3dat').lower()}"
        if there in self.manual and there != page:
            return f'<a href="{there}.html"><b>{name}</b>({section or ""})</a>'
        return f"<b>{name}</b>({section or ''})"

    def rust(self):
        first = ["dat_api", "dat_engine", "mlx5_rings", "dv_sys"]
        found = sorted((crate not in first, crate, folder) for folder, crate in self.crates() if self.doc and (self.doc / crate / "index.html").exists())
        rows = "".join(f"| [`{crate}`](rust/{crate}/index.html) | {description(folder)} |\n" for _, crate, folder in found)
        return f"# Rust API\n\n| crate | what it is |\n| --- | --- |\n{rows}" if found else "# Rust API\n\nThis site was made without it.\n"

    def summary(self):
        titles = {name: re.search(r"^# (.*)$", text, re.M)[1] for name, text in self.pages.items()}
        left = set(titles) - {"README.md"}
        lines = [f"[{titles['README.md']}](README.md)"]
        for part, patterns in PARTS.items():
            lines.append(f"\n# {part}\n")
            for pattern in patterns:
                for name in sorted(it for it in left if is_of(it, pattern)):
                    left.remove(name)
                    title = re.sub(r"[`\[\]]", "", titles[name])
                    lines.append(f"{'  ' if pattern in BELOW else ''}- [{title}]({name})")
        return "\n".join(lines) + "\n"

    def write(self):
        made = {name: self.page(name, text) for name, text in sorted(self.pages.items())}
        self.pages.update(made)
        for name, path in self.manual.items():
            self.pages[f"man/{name}.md"] = self.manual_page(name, path)
        self.pages["rust.md"] = self.rust()
        self.pages["SUMMARY.md"] = self.summary()
        self.pages |= {f"files/{name}.txt": (ROOT / name).read_text() for name in self.copied}
        for name, text in self.pages.items():
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            (self.source / name).write_text(text)


def is_of(name, pattern):
    if pattern == OTHERS:
        return not name.startswith("files/")
    return name.count("/") == pattern.count("/") and pathlib.PurePath(name).match(pattern)


def description(folder):
    found = re.search(r'^description = "(.*)"', (ROOT / folder / "Cargo.toml").read_text(), re.M)
    return html.escape(found[1]) if found else ""


def main():
    work, doc = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    site = Site(work, doc)
    site.write()
    (work / "book.toml").write_text(BOOK)
    (work / "site.css").write_text((pathlib.Path(__file__).parent / "site.css").read_text())
    print("\n".join(site.wrong), end="\n" if site.wrong else "")
    return 1 if site.wrong else 0


sys.exit(main())
