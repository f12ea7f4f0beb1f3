"""An option is declared once, in `Recipe`, and is found wherever options are."""

import json
import os
import subprocess
import sys
from pathlib import Path

from repo import ROOT

ADDED = '''
import inspect, json, sys
from pathlib import Path

import anchorscope.recipe as recipes
from anchorscope.options import DATA, flag, option


class Wider(recipes.Recipe):
    new_option: int = option(3, DATA, flag("something new differs"), common=True, ge=1)
    """Help of the new option."""


recipes.Recipe = Wider  # before anybody else imports it

import anchorscope
from anchorscope.cli.main import app
from anchorscope.comparing.rules import OPTIONS
from anchorscope.errors import UserError
from anchorscope.study.grid import read_study
from docs_site import recipe as options_page
from typer.testing import CliRunner


def refused(options):
    try:
        recipes.make_recipe(options)
    except UserError as error:
        return str(error)


study = Path(sys.argv[1])
study.write_text("""
models = ["smollm2-135m"]
datasets = ["atlas"]
[defaults]
new-option = 7
""")
print(json.dumps({
    "command": CliRunner().invoke(app, ["run", "--help"], prog_name="anchorscope", env={"COLUMNS": "200"}).stdout,
    "python": inspect.signature(anchorscope.run).parameters["new_option"].default,
    "docstring": anchorscope.run.__doc__,
    "page": options_page(),
    "compare": OPTIONS["new_option"].reason,
    "study": [run.recipe.new_option for run in read_study(study).runs],
    "names": [recipes.make_recipe({name: 5}).new_option for name in ("new-option", "new_option")],
    "limit": refused({"new_option": 0}),
    "near": refused({"new_optoin": 1}),
}))
'''


def test_an_option_that_is_added_to_the_recipe_is_found_everywhere(
    tmp_path: Path,
) -> None:
    # pydantic reads docstrings of fields from a file
    (tmp_path / "added.py").write_text(ADDED)
    command = [sys.executable, str(tmp_path / "added.py"), str(tmp_path / "study.toml")]
    paths = os.pathsep.join([str(ROOT / "tools"), str(ROOT / "src")])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert "--new-option" in shown["command"]
    assert "Help of the new option. Default: 3." in " ".join(shown["command"].split())
    assert shown["python"] == 3
    assert "    new_option: Help of the new option. Default: 3.\n" in shown["docstring"]
    assert (
        "| `new_option` | Help of the new option. Default: 3. | flag: something new differs |"
        in shown["page"]
    )
    assert shown["compare"] == "something new differs"
    assert (shown["study"], shown["names"]) == ([7], [5, 5])
    assert (
        "Option 'new-option' is 0: input should be greater than or equal to 1."
        in shown["limit"]
    )
    assert "Did you mean 'new-option'?" in shown["near"]


def test_help_shows_fifteen_options_at_most_and_no_type_beside_a_flag() -> None:
    from typer.testing import CliRunner

    from anchorscope.cli.main import app

    def options(word: str) -> list[str]:
        page = (
            CliRunner()
            .invoke(app, ["run", word], prog_name="anchorscope", env={"COLUMNS": "200"})
            .stdout
        )
        assert "<bool>" not in page
        return [
            line.split()[1] for line in page.splitlines() if line.startswith("│ --")
        ]

    few, every = options("--help"), options("--help-all")
    assert len(set(few) - {"--help", "--help-all"}) <= 15
    assert len(every) > 40
    assert set(few) <= set(every)


def test_an_option_is_spelled_with_a_hyphen_or_an_underscore() -> None:
    from typer.testing import CliRunner

    from anchorscope.cli.main import app

    for name in ("--random-cuts", "--random_cuts"):
        done = CliRunner().invoke(
            app, ["run", name, "0", "--dry-run"], prog_name="anchorscope"
        )
        assert "Option 'random-cuts' is 0" in done.stderr
