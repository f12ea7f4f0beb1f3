"""Rules of the house that a linter does not know: one test each, over all files."""

import ast
import re
import sys
import tomllib
from textwrap import dedent

import anchorscope
from house import count
from repo import DOCS, ROOT

PLUGINS = sorted(ROOT.glob("plugins/*/src/**/*.py"))
FILES = [*sorted((ROOT / "src").rglob("*.py")), *PLUGINS]
MOST_TOKENS = 860
"""Of one function; comments and docstrings are free."""
LIGHT_ROOMS = ("stats", "models", "engine", "probes", "interventions")
"""Rooms that must import on a machine that has only the libraries below."""
LIGHT_LIBRARIES = {
    "torch",
    "transformers",
    "huggingface_hub",
    "safetensors",
    "numpy",
    "scipy",
    "jaxtyping",
}
LAZY_LIBRARIES = {"platformdirs", "filelock", "gguf"}
"""Imported inside functions of `models/`, which fall back where they are missing or are not called."""


def test_files_explain_themselves_and_functions_are_short() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines = text.splitlines()
        assert not text.strip() or ast.get_docstring(tree), (
            f"{path}: every file begins with its idea"
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                tokens = count(dedent(code)).tokens
                assert tokens <= MOST_TOKENS, f"{path}: {node.name} has {tokens} tokens"


def test_the_light_rooms_need_few_libraries() -> None:
    allowed = (
        LIGHT_LIBRARIES | LAZY_LIBRARIES | sys.stdlib_module_names | {"anchorscope"}
    )
    for room in LIGHT_ROOMS:
        for path in (ROOT / "src" / "anchorscope" / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else []
                )
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    assert name.split(".")[0] in allowed, f"{path}: {name}"


def test_plugins_use_public_names_only() -> None:
    """What `anchorscope` itself exports, or a module that the docs name."""
    docs = "".join(
        (DOCS / page).read_text(encoding="utf-8")
        for page in ("extending.md", "python.md")
    )
    for path in PLUGINS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            module = getattr(node, "module", None)
            for name in node.names:
                used = module or name.name
                if used.partition(".")[0] != "anchorscope":
                    continue
                if used == "anchorscope":
                    public = module is None or name.name in anchorscope.__all__
                else:
                    public = used in docs
                assert public, f"{path}:{node.lineno}: {used}"


JSON_WRITERS = {"json.dumps", "json.dump", "json.JSONEncoder"}
PYDANTIC_WRITERS = {"dump_json", "model_dump_json", "to_json"}


def test_json_is_written_in_one_place() -> None:
    """Anywhere else NaN would be a traceback, or no JSON."""
    for path in FILES:
        if path.name == "json_text.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                place = f"{path}:{node.lineno}"
                assert ast.unparse(node) not in JSON_WRITERS, place
                assert node.attr not in PYDANTIC_WRITERS, place
            if isinstance(node, ast.ImportFrom):
                assert node.module != "json", f"{path}:{node.lineno}"


def test_every_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"].values()
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for requirement in [
        *project["dependencies"],
        *(requirement for extra in extras for requirement in extra),
    ]:
        assert re.search(re.escape(f'"{requirement}",') + r"\s+# \w+", text), (
            requirement
        )
        name = re.split(r"[><=\[]", requirement)[0]
        assert name == "anchorscope" or re.search(rf"^{name}==", pinned, re.M | re.I), (
            f"{name} is not pinned"
        )


def test_no_path_of_a_machine_is_in_the_project() -> None:
    folders = (ROOT / "tools", ROOT / "benchmarks")
    tools = [path for one in folders for path in one.iterdir() if path.is_file()]
    for path in [
        *FILES,
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        ROOT / "Makefile",
        ROOT / "mkdocs.yml",
        *tools,
    ]:
        assert not re.search(
            r"/(work|root|home|tmp)/\w", path.read_text(encoding="utf-8")
        ), path
