"""Rules of the house that a linter does not know."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LONGEST_FILE = 300
LONGEST_FUNCTION = 80
LIGHT_ROOMS = ("stats", "models", "engine", "probes", "interventions")
"""Rooms that must import on a machine that has only the libraries below."""
LIGHT_LIBRARIES = {
    "torch", "transformers", "huggingface_hub", "safetensors", "numpy", "scipy", "jaxtyping", "anchorscope",
}  # fmt: skip
LAZY_LIBRARIES = {"platformdirs", "filelock", "gguf"}
"""Imported inside functions that fall back where they are missing or are not called; `models/gguf_files.py`, too."""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short_and_explain_themselves(path):
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert text.count("\n") <= LONGEST_FILE
    assert not text.strip() or ast.get_docstring(tree), "every file begins with its idea"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = node.body[-1].end_lineno - node.body[0].lineno + 1
            assert body <= LONGEST_FUNCTION, f"{node.name} has {body} lines"


@pytest.mark.parametrize("room", LIGHT_ROOMS)
def test_the_light_rooms_need_few_libraries(room):
    import sys

    for path in (ROOT / "src" / "anchorscope" / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in LIGHT_LIBRARIES | LAZY_LIBRARIES or top in sys.stdlib_module_names, f"{path.name}: {name}"


def test_every_dependency_says_why_it_is_there():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for requirement in wanted:
        assert re.search(re.escape(f'"{requirement}",') + r"\s+# \w+", text), requirement
        name = re.split(r"[><=\[]", requirement)[0]
        assert re.search(rf"^{name}==", pinned, re.M | re.I), f"{name} is not pinned in constraints.txt"


def test_no_path_of_a_machine_is_in_the_project():
    for path in [*SOURCES, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile", ROOT / "mkdocs.yml",
                 *(one for one in (ROOT / "tools").iterdir() if one.is_file())]:
        assert not re.search(r"/(work|root|home|tmp)/\w", path.read_text(encoding="utf-8")), path


def test_the_file_map_has_every_room_and_file():
    told = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in (ROOT / "src" / "anchorscope").iterdir():
        if path.is_dir() and path.name != "__pycache__":
            assert f"  {path.name}/" in told
        elif path.suffix == ".py" and not path.name.startswith("__"):
            assert path.name in told, path.name
