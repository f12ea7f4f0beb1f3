"""No file of the user's is ever lost, whatever is asked for; what stands in the way is moved aside and told."""

from pathlib import Path

import pytest
from click.testing import Result

from anchorscope.errors import UserError
from anchorscope.finished import open_finished
from anchorscope.recipe import make_recipe
from commands import invoke
from whole_runs import SmallRun, Stop, files_of, quick, stopping, tables_of

MINE = {
    "notes.txt": b"mine",
    "figures/mine.png": b"mine",
    "work/mine.txt": b"mine",
    "work/facts/mine.txt": b"mine",
    "work/results/mine.csv": b"mine",
    "states/mine.safetensors": b"mine",
    "report.md.changed-7": b"mine",
    "results.partial": b"mine",
    "work/mine.partial": b"mine",
    "results.anchorscope-partial": b"mine",
    "index.json.anchorscope-partial": b"mine",
    "work/facts/tables-0123456789ab.anchorscope-partial/x.txt": b"mine",
}
"""What a user may have put into a run folder."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def one_line(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    *before, last = result.stderr.splitlines()
    assert all(line.startswith("anchorscope: ") for line in before)
    return last


@pytest.mark.parametrize("name", ["", " ", "\t"])
@pytest.mark.parametrize("words", [["run"], ["compare", "a", "b"]])
def test_an_empty_name_of_a_folder_is_one_line_and_never_this_folder(
    name: str, words: list[str]
) -> None:
    assert "folder's name is empty" in one_line(invoke(*words, "--out", name))
    assert list(Path.cwd().iterdir()) == []


def test_the_users_files_in_a_run_folder_survive_whatever_the_run_does(
    small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("half_done", tmp_path / "run")
    write(out, MINE)

    def mine() -> dict[str, bytes]:
        return {
            name: content for name, content in files_of(out).items() if name in MINE
        }

    quick(small_run.recipe, out)  # gone on with
    assert mine() == MINE
    assert tables_of(out) == small_run.tables
    more = make_recipe(
        {**small_run.recipe.model_dump(), "bootstrap": 101, "evidence": ("template",)}
    )
    with stopping("facts/tables", "write"), pytest.raises(Stop):
        quick(more, out)
    assert mine() == MINE
    open_finished(out)  # still the finished run that it was
    assert tables_of(out) == small_run.tables
    quick(more, out)  # extended
    assert mine() == MINE
    with pytest.raises(UserError, match="too few"):
        quick(
            make_recipe({**small_run.recipe.model_dump(), "limit": 20}), out
        )  # a mistake
    assert mine() == MINE
    open_finished(out)
    notes = quick(small_run.recipe, out, fresh=True)
    assert notes == []  # started over, which forgets experiments
    assert mine() == MINE
    assert tables_of(out) == small_run.tables
    assert [path.name for path in out.rglob("*.changed-*")] == ["report.md.changed-7"]
