"""The pages of the docs hold together: links lead somewhere, the site lists every page, the reference is the code's."""

import re
from pathlib import Path

import pytest
import typer

import anchorscope
import docs_site
from anchorscope.cli.main import app
from anchorscope.recipe import Recipe
from doc_pages import PAGES, ROOT, anchors, links, name_of


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the site, with those that are made from the code."""
    return Path(docs_site.stage(tmp_path_factory.mktemp("site") / "docs"))


def check_links(page: Path, root: Path) -> None:
    """Every relative link of a page leads to a file, and its anchor to a heading there."""
    for target in links(page):
        path, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        there = (page.parent / path).resolve() if path else page
        told = f"{page.relative_to(root)}: {target}"
        assert there.exists(), told
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), told


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_the_repository_leads_somewhere(page: Path) -> None:
    check_links(page, ROOT)


def test_every_link_of_the_site_leads_somewhere(staged: Path) -> None:
    for page in sorted(staged.rglob("*.md")):
        check_links(page, staged)


def test_the_site_lists_every_page_once(staged: Path) -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", text, re.M)
    assert len(listed) == len(set(listed))
    assert set(listed) == {
        page.relative_to(staged).as_posix() for page in staged.rglob("*.md")
    }


def test_the_reference_is_made_from_the_code(staged: Path) -> None:
    told = (staged / "reference" / "commands.md").read_text(encoding="utf-8")
    for name, command in typer.main.get_command(app).commands.items():
        assert f"## anchorscope {name}\n" in told
        own = getattr(command, "commands", {})
        assert all(f"## anchorscope {name} {one}\n" in told for one in own)
        for one in (
            *command.params,
            *(param for sub in own.values() for param in sub.params),
        ):
            assert (
                getattr(one, "hidden", False)
                or f"`{one.opts[0]}`" in told
                or one.opts[0] == one.name
            ), one.name
    options = (staged / "reference" / "recipe.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in options for name in Recipe.model_fields)
    names = (staged / "reference" / "python.md").read_text(encoding="utf-8")
    assert all(f"## anchorscope.{name}\n" in names for name in anchorscope.__all__)


def test_pictures_and_live_pages_are_small() -> None:
    for path in (ROOT / "docs").rglob("*"):
        assert path.is_dir() or path.stat().st_size < 3_000_000, path
