"""The pages of the docs as tests read them: fenced blocks, commands in them, links, anchors."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repo import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "AGENTS.md",
    ROOT / "llms.txt",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1[ \t]*$", re.M | re.S)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """What stands between two fences of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    """A page's name as a reader would say it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page; one without a language is taken for the shell."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        yield Block(name_of(page), line, found[2].strip() or "sh", found[3])


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """The commands of a shell block, each with its place and its words; comments are gone, `\\` joins lines."""
    number = block.line
    for line in block.text.replace("\\\n", "  ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield f"{block.page}:{number}", words
        number += 1


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    return LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page)))


def anchors(page: Path) -> set[str]:
    """The places in a page that a link may name: its headings, as Markdown writers name them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose(page), re.M):
        plain = (
            re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
            .replace("`", "")
            .replace("*", "")
            .replace("\\", "")
        )
        found.add(re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", plain.strip().lower())))
    return found
