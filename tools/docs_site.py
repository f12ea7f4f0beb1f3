"""Puts the pages of the site together, for `make docs`: what is written by hand, and what is made from the code.

The pages under docs/ are copied; the changelog, how to contribute and the benchmarks, which live elsewhere, join them;
the reference of commands, recipe options and Python names is written from the code. Links to files of the repository
that are no pages become plain text. Nothing here imports torch.

    python tools/docs_site.py build/docs
"""

import ast
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MOVED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Pages of the repository outside docs/, and what the site calls them."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
MADE = "<!-- Made from the code by tools/docs_site.py; not written by hand. -->\n\n"


def stage(to: Path) -> Path:
    """All pages of the site, ready to be built, in a folder that is made anew."""
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(ROOT / "docs", to)
    for page in sorted(to.rglob("*.md")):
        source = ROOT / "docs" / page.relative_to(to)
        page.write_text(_relinked(source, page, to), encoding="utf-8")
    for name, moved in MOVED.items():
        (to / moved).write_text(
            _relinked(ROOT / name, to / moved, to), encoding="utf-8"
        )
    index = (ROOT / "llms.txt").read_text(encoding="utf-8")
    (to / "llms.txt").write_text(
        re.sub(r"\(docs/(\S+?)(?:\.md)?\)", _on_site, index), encoding="utf-8"
    )
    (to / "reference").mkdir(exist_ok=True)
    for name, text in (
        ("commands", commands()),
        ("recipe", recipe()),
        ("python", python_names()),
    ):
        (to / "reference" / f"{name}.md").write_text(text, encoding="utf-8")
    return to


def _on_site(link: re.Match[str]) -> str:
    """A link of llms.txt to a page under docs/, as the site serves it."""
    if not link[0].endswith(".md)"):
        return f"({link[1]})"
    return f"({link[1].replace('README', 'index')}.html)"


def _relinked(source: Path, page: Path, to: Path) -> str:
    """The page's text with links that hold in the site."""

    def relink(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in target or target.startswith("mailto:"):
            return found[0]
        meant = (source.parent / path).resolve().relative_to(ROOT).as_posix()
        if meant in MOVED:
            there = to / MOVED[meant]
        elif meant.startswith("docs/"):
            there = to / meant.removeprefix("docs/")
        elif meant == "README.md":
            there = to / "index.md"
        else:
            return text
        new = os.path.relpath(there, page.parent)
        return f"{image}[{text}]({new}{'#' + anchor if anchor else ''})"

    return LINK.sub(relink, source.read_text(encoding="utf-8"))


def commands() -> str:
    """Every command with its arguments and options, as the program itself knows them."""
    import typer

    from anchorscope.cli.main import app

    group: Any = typer.main.get_command(app)
    lines = [MADE + "# Commands\n", "What `anchorscope COMMAND --help` prints.\n"]
    for name, command in _all_commands(group):
        lines += [
            f"## anchorscope {name}\n",
            f"{' '.join((command.help or '').split())}\n",
        ]
        panels: dict[str, list[tuple[str, ...]]] = {}
        for one in command.params:
            if not getattr(one, "hidden", False):
                panels.setdefault(
                    getattr(one, "rich_help_panel", None) or "", []
                ).append(_parameter(one))
        for title, rows in panels.items():
            lines += [f"**{title}**\n"] if title else []
            lines += [*_table(("", "what it does"), rows), ""]
    return "\n".join(lines)


def _all_commands(group: Any) -> Iterator[tuple[str, Any]]:
    """Commands by name; those of a group follow it."""
    for name, command in group.commands.items():
        yield name, command
        yield from (
            (f"{name} {own}", one)
            for own, one in getattr(command, "commands", {}).items()
        )


def _parameter(one: Any) -> tuple[str, str]:
    """Name and help of an argument or option."""
    argument = not one.opts[0].startswith("-")
    names = (
        [one.metavar or one.name.upper()]
        if argument
        else [*one.opts, *one.secondary_opts]
    )
    text = " ".join((getattr(one, "help", None) or "").split())
    if one.show_default and not argument and one.default not in (None, False, ""):
        text += f" Default: {one.default}."
    return " ".join(f"`{name}`" for name in names), text


def recipe() -> str:
    """Every option of a run, from the recipe's own fields."""
    from anchorscope.options import PANELS, option_of
    from anchorscope.recipe import Recipe, about

    lines = [
        MADE + "# Options of a run\n",
        "The command line, `anchorscope.run`, recipe files (TOML) and study files take the same options; `random-cuts` "
        "and `random_cuts` are the same, and `datasets` is `--dataset` on the command line.\n",
        "`anchorscope run RECIPE.toml` runs a recipe; an option beside it wins. Every run folder has its own recipe.\n",
        "The last column says what `anchorscope compare` does with runs that differ in the option: it refuses them "
        "unless `--allow` names it, flags the difference, or ignores it.\n",
    ]
    for panel in PANELS:
        rows = []
        for name, field in Recipe.model_fields.items():
            option = option_of(field)
            if option.panel == panel:
                rows.append(
                    (
                        f"`{name}`",
                        about(name),
                        f"{option.compared.treatment}: {option.compared.reason}",
                    )
                )
        lines += [f"## {panel}\n", *_table(("option", "meaning", "compare"), rows), ""]
    return "\n".join(lines)


def python_names() -> str:
    """Every public name of `import anchorscope`, from the sources: signatures and docstrings."""
    import anchorscope

    lines = [MADE + "# Python names\n", "What `import anchorscope` offers.\n"]
    for name in sorted(anchorscope._HOMES, key=str.lower):
        home, _, inside = anchorscope._HOMES[name].partition(":")
        found = _definition(home, inside)
        lines.append(f"## anchorscope.{name}\n")
        if isinstance(found, ast.FunctionDef):
            lines += ["```text", _signature(name, found), "```\n"]
        lines.append(f"{_docstring(found)}\n")
        if isinstance(found, ast.ClassDef):
            rows = [
                (
                    f"`{_short(one)}`",
                    _docstring(one).split("\n\n")[0].replace("\n", " "),
                )
                for one in _public(found)
            ]
            lines += [*_table(("", "what it is"), rows), ""] if rows else []
    return "\n".join(lines)


def _definition(home: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    path = ROOT / "src" / Path(*home.split("."))
    path = (
        path.with_suffix(".py")
        if path.with_suffix(".py").exists()
        else path / "__init__.py"
    )
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
    raise LookupError(f"{home} does not define {name}")


def _docstring(node: ast.FunctionDef | ast.ClassDef) -> str:
    return ast.get_docstring(node) or ""


def _public(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            yield one


def _signature(name: str, node: ast.FunctionDef) -> str:
    """On one line if it fits, else a parameter per line."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    whole = f"{name}({ast.unparse(node.args)}){returns}"
    if len(whole) <= 100:
        return whole
    return (
        f"{name}(\n    "
        + ",\n    ".join(_split(ast.unparse(node.args)))
        + f",\n){returns}"
    )


def _split(arguments: str) -> list[str]:
    """At the commas between parameters, not at those inside brackets."""
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _short(node: ast.FunctionDef) -> str:
    """A property's name, or a method with its parameters' names."""
    if any("property" in ast.unparse(one) for one in node.decorator_list):
        return node.name
    names = [
        one.arg
        for one in [*node.args.args, *node.args.kwonlyargs]
        if one.arg not in ("self", "cls")
    ]
    return f"{node.name}({', '.join(names)})"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    cells = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
    return [f"| {' | '.join(row)} |" for row in (heads, ("---",) * len(heads), *cells)]


if __name__ == "__main__":
    stage(ROOT / sys.argv[1])
