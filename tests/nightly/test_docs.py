"""The docs are true: every command and every Python example on every page runs.

Commands run in this process (CliRunner), in a sandbox where small things have the docs' names (`doc_sandbox.py`):
options are parsed as they stand, then the job is done with a tiny model. What changes the machine or needs what is not
here is on a list, with the reason, and its names are checked: targets, extras, files, options.
"""

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from anchorscope.cli.main import app
from doc_pages import PAGES, ROOT, Block, blocks, commands, name_of, prose
from doc_sandbox import Sandbox, make_sandbox

SHELL, RUN = ("sh", "bash", "shell", "console"), ("python",)
READ = (
    "text",
    "diff",
    "toml",
    "csv",
    "json",
    "yaml",
    "bibtex",
    "html",
    "tsv",
    "css",
    "js",
)
"""Languages of blocks that are for reading only."""
BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMANDS = [
    (place, words)
    for block in BLOCKS
    if block.language in SHELL
    for place, words in commands(block)
]
EXAMPLES = [block for block in BLOCKS if block.language in RUN]
OTHERS_LIBRARIES = {
    "docs/bundle-format.md": "reads what was exported; tests/runs/cli/test_detector_command.py runs it",
    "docs/serving.md": "asks a service that is running; tests/runs/serve/test_routes.py runs it against one",
}
"""Pages whose Python examples need what is not here: compiled, and what they import of ours exists."""
INTEGRATIONS = "anchorscope_integrations"
"""Examples that import it are treated likewise: its libraries are not here, plugins/integrations/tests uses them."""
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sandbox(
    save_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    box = make_sandbox(tmp_path_factory.mktemp("docs"), save_tiny("llama"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANCHORSCOPE_CACHE", str(box.path / "cache"))
        assert box.base.is_dir()  # made before runs are replaced by small ones
        with box.replaced():
            for name in runs_at_hand():
                box.place(name)
            box.place("results/mine")
            yield box


def runs_at_hand() -> set[str]:
    """The finished runs that commands and examples take as given."""
    found = {"runs/demo", "runs/mine"}
    for _, words in COMMANDS:
        if words[0].endswith("anchorscope") and words[1] in (
            "compare",
            "show",
            "detect",
        ):
            found |= {
                word
                for before, word in pairwise(words)
                if word.startswith("runs/") and before != "--out"
            }
    return {name for name in found if name.count("/") == 1}


@pytest.fixture(scope="module")
def bundles(sandbox: Sandbox) -> None:
    """Saved detectors, where the docs have them."""
    sandbox.invoke(
        [
            "detect",
            "runs/demo",
            "--detectors",
            "auto,probe",
            "--bundles",
            "auto,probe",
            "--out",
            "fitted",
        ]
    )
    put_bundles(sandbox)


LINKS = {
    "BUNDLE": "fitted/bundles/auto",
    "runs/demo/detectors": "fitted",
    "runs/mine/detectors": "fitted",
}


def put_bundles(sandbox: Sandbox) -> None:
    """Links to saved detectors, where none were written."""
    for name, made in LINKS.items():
        link = sandbox.path / name
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(sandbox.path / made, target_is_directory=True)


def take_bundles(sandbox: Sandbox) -> None:
    """The links go: what a command did not write itself stands in its way."""
    for name in LINKS:
        if (sandbox.path / name).is_symlink():
            (sandbox.path / name).unlink()


def ours(words: list[str]) -> list[str] | None:
    """The arguments, if it is our command."""
    return words[1:] if words[0] in ("anchorscope", ".venv/bin/anchorscope") else None


def jobs() -> Iterator[Any]:
    """Each of our commands once, with the first place where it stands."""
    seen: dict[tuple[str, ...], str] = {}
    for place, words in COMMANDS:
        if (arguments := ours(words)) is not None:
            seen.setdefault(tuple(arguments), place)
    for arguments, place in seen.items():
        yield pytest.param(list(arguments), id=f"{place} {' '.join(arguments)[:60]}")


@pytest.mark.parametrize("arguments", list(jobs()))
def test_every_command_of_ours_runs(
    arguments: list[str], sandbox: Sandbox, bundles: None
) -> None:
    assert "…" not in " ".join(arguments), "a reader cannot type an ellipsis"
    if "--install" in arguments:
        options_exist(arguments)  # it fetches 98 MB; tests/models has it from a file
        return
    if arguments[:2] == ["score", "--demo"]:
        # of the embedded model, which tests/runs/test_embedded_run.py has
        options_exist(arguments)
        return
    if arguments[0] in ("detect", "fit"):
        take_bundles(sandbox)
    sandbox.invoke(arguments)
    put_bundles(sandbox)


def options_exist(arguments: list[str]) -> None:
    """Every option of a command of ours is one that it knows."""
    known = typer.main.get_command(app).commands
    assert arguments[0] in known, arguments[0]
    command = known[arguments[0]]
    command = getattr(command, "commands", {}).get(
        arguments[1] if arguments[1:] else "", command
    )
    names = {
        name for one in command.params for name in (*one.opts, *one.secondary_opts)
    } | {"--help"}
    for word in arguments[1:]:
        if word.startswith("--"):
            assert word.split("=")[0] in names, f"{arguments[0]} has no {word}"


def check_make(words: list[str]) -> None:
    """It installs, tests or builds: the target is there, and so is every variable."""
    for word in words[1:]:
        name, is_set, _ = word.partition("=")
        pattern = rf"^{name} \?=" if is_set else rf"^{name}:"
        assert re.search(pattern, MAKEFILE, re.M), f"the Makefile has no {name}"


def test_make_targets_and_our_options_behind_other_commands_exist() -> None:
    for place, words in COMMANDS:
        if ours(words) is not None:
            continue
        own = [
            at
            for at, word in enumerate(words)
            if re.fullmatch(r"anchorscope(:\w+)?", word)
        ]
        try:
            if words[0] == "make":
                check_make(words)
            elif (
                own
                and words[1] != "build"
                and words[own[-1] + 1 :] not in ([], ["--help"])
            ):
                options_exist(words[own[-1] + 1 :])
        except AssertionError as error:
            raise AssertionError(f"{place}: {error}") from error


def test_options_that_prose_names_exist() -> None:
    """`anchorscope run --keep states` inside a sentence is a promise too."""
    known = typer.main.get_command(app).commands
    for page in PAGES:
        for code in re.findall(r"`(anchorscope [^`]+)`", prose(page)):
            words = re.sub(r"\s+", " ", code).replace("…", "").split()[1:]
            if words and words[0] in known:
                try:
                    options_exist([word.rstrip(",.;") for word in words])
                except AssertionError as error:
                    raise AssertionError(f"{name_of(page)}: {code}: {error}") from error


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_every_python_example_runs(
    block: Block, sandbox: Sandbox, bundles: None
) -> None:
    if block.page in OTHERS_LIBRARIES or INTEGRATIONS in block.text:
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "anchorscope"
            ):
                inside = Path(*str(node.module).split(".")).with_suffix(".py")
                (path,) = [
                    folder / inside
                    for folder in (ROOT / "src", *ROOT.glob("plugins/*/src"))
                    if (folder / inside).is_file()
                ]
                body = ast.parse(path.read_text(encoding="utf-8")).body
                defined = {
                    one.name
                    for one in body
                    if isinstance(one, ast.ClassDef | ast.FunctionDef)
                }
                assert {alias.name for alias in node.names} <= defined
        return
    text = block.text.replace("layer=17", "layer=1")  # the tiny model has two layers
    exec(compile(text, str(block), "exec"), names_of_the_docs(sandbox))


def names_of_the_docs(sandbox: Sandbox) -> dict[str, Any]:
    """What the examples take as given: a loaded model, and scores with labels."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    rng = np.random.default_rng(0)
    return {
        "anchorscope": importlib.import_module("anchorscope"),
        "model": AutoModelForCausalLM.from_pretrained(sandbox.model),
        "tokenizer": AutoTokenizer.from_pretrained(sandbox.model),
        "probability": rng.random(40),
        "truthful": np.arange(40) % 2 == 0,
        "weights": np.ones(40),
    }


def test_every_block_has_a_language_that_is_run_or_read() -> None:
    for block in BLOCKS:
        assert block.language in (*SHELL, *RUN, *READ), f"{block}: {block.language}"
