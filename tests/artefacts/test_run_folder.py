"""The run folder: steps are there whole or not at all, the manifest comes last, and nobody else's files are touched."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anchorscope.checkpoints import Format, records
from anchorscope.errors import UserError
from anchorscope.recipe import Recipe, make_recipe, read_recipe
from anchorscope.store import RESULTS, RunFolder, open_run, read_manifest, replacing

RECIPE = make_recipe({"seed": 3, "limit": 10})
NUMBERS = records(list[int])


class Counted:
    """A step's work that says how often it was done."""

    def __init__(self, value: Any = (1, 2)) -> None:
        self.value, self.times = value, 0

    def __call__(self) -> Any:
        self.times += 1
        return list(self.value)


def below(path: Path) -> dict[str, bytes]:
    """Every file under a folder, with its content."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def finish(path: Path, recipe: Recipe = RECIPE, fresh: bool = False) -> None:
    """A small finished run."""
    with open_run(path, recipe, fresh) as folder:
        folder.step("facts/answers.json", lambda: [1], NUMBERS)
        (path / "curves.csv").write_text("layer\n0\n")
        (path / "figures").mkdir(exist_ok=True)
        (path / "figures" / "delta_p.csv").write_text("x\n")
        folder.finish({"steps": folder.records()})


# Steps.


def test_a_step_is_made_once_and_read_afterwards(tmp_path: Path) -> None:
    work = Counted()
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        assert folder.step("facts/one.json", work, NUMBERS) == [1, 2]
        assert folder.step("facts/one.json", work, NUMBERS) == [1, 2]
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        assert folder.step("facts/one.json", work, NUMBERS) == [1, 2]
        assert folder.stored("facts/one.json", NUMBERS) == [1, 2]
        assert folder.stored("facts/two.json", NUMBERS) is None
    assert work.times == 1


def test_steps_are_recorded_with_time_and_memory_in_their_order(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("facts/b.json", Counted(), NUMBERS)
        folder.step("facts/a.json", Counted(), NUMBERS)
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("facts/b.json", Counted(), NUMBERS)
        folder.step("facts/c.json", Counted(), NUMBERS)
        found = folder.records()
    assert [record["step"] for record in found] == ["facts/b.json", "facts/a.json", "facts/c.json"]
    assert all(record["seconds"] >= 0 and record["peak_memory_mb"]["host"] > 1 for record in found)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_step_that_fails_leaves_no_file_and_no_record(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> list[int]:
        raise error

    with open_run(tmp_path / "run", RECIPE, False) as folder:
        with pytest.raises(error):
            folder.step("facts/one.json", fail, NUMBERS)
        assert folder.records() == []
        assert not (folder.work / "facts" / "one.json").exists()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("as_folder", [False, True])
def test_a_step_that_fails_while_it_is_written_leaves_nothing(
    tmp_path: Path, error: type[BaseException], as_folder: bool
) -> None:
    def write_half(value: Any, path: Path) -> None:
        if as_folder:
            path.mkdir()
            path = path / "part.json"
        path.write_text("[1, ")
        raise error

    with open_run(tmp_path / "run", RECIPE, False) as folder:
        with pytest.raises(error):
            folder.step("facts/one", Counted(), Format(write_half, NUMBERS.read))
        assert list((folder.work / "facts").iterdir()) == []
        assert folder.records() == []
        assert folder.step("facts/one", Counted(), NUMBERS) == [1, 2]


@pytest.mark.parametrize("as_folder", [False, True])
def test_what_a_killed_process_left_half_written_is_ignored(tmp_path: Path, as_folder: bool) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        left = folder.work / "facts" / "one.json.partial"
        left.parent.mkdir()
        if as_folder:
            left.mkdir()
            (left / "old.parquet").write_text("old")
        else:
            left.write_text("[1, ")
        work = Counted()
        assert folder.step("facts/one.json", work, NUMBERS) == [1, 2]
        assert work.times == 1
        assert not left.exists()


def test_a_process_killed_while_writing_leaves_no_step(tmp_path: Path) -> None:
    code = f"""
        import os, signal
        from pathlib import Path
        from types import SimpleNamespace as Format
        from anchorscope.recipe import make_recipe
        from anchorscope.store import open_run

        def write(value, path):
            path.write_text("[1, ")
            os.kill(os.getpid(), signal.SIGKILL)

        with open_run(Path({str(tmp_path / "run")!r}), make_recipe({{"seed": 3, "limit": 10}}), False) as folder:
            folder.step("facts/whole.json", lambda: [5], Format(write=lambda v, p: p.write_text("[5]")))
            folder.step("facts/half.json", lambda: [6], Format(write=write))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    whole, half = Counted(), Counted()
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        assert folder.step("facts/whole.json", whole, NUMBERS) == [5]
        assert folder.step("facts/half.json", half, NUMBERS) == [1, 2]
        assert [record["step"] for record in folder.records()] == ["facts/whole.json", "facts/half.json"]
    assert (whole.times, half.times) == (0, 1)


def test_a_record_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("facts/a.json", Counted(), NUMBERS)
        with (folder.work / "steps.jsonl").open("a") as log:
            log.write('{"step": "facts/b.js')
        assert [record["step"] for record in folder.records()] == ["facts/a.json"]


def test_the_record_after_one_that_was_cut_off_is_kept(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.work.joinpath("steps.jsonl").write_text('{"step": "facts/b.js')
        folder.step("facts/b.json", Counted(), NUMBERS)
        assert [record["step"] for record in folder.records()] == ["facts/b.json"]


def test_replacing_keeps_the_old_content_until_the_new_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("old")

    def fail() -> None:
        with replacing(place) as half_made:
            half_made.write_text("new")
            assert place.read_text() == "old"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert below(tmp_path) == {"file": b"old"}
    with replacing(place) as half_made:
        half_made.write_text("new")
    assert below(tmp_path) == {"file": b"new"}


def test_replacing_takes_whole_folders(tmp_path: Path) -> None:
    for content in ("old", "new"):
        with replacing(tmp_path / "folder") as half_made:
            half_made.mkdir()
            (half_made / content).write_text(content)
    assert below(tmp_path) == {"folder/new": b"new"}


# The end.


def test_the_manifest_holds_the_sha256_of_every_other_file(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    found = read_manifest(tmp_path / "run")["sha256"]
    files = below(tmp_path / "run")
    assert set(files) == {"recipe.toml", "curves.csv", "figures/delta_p.csv", "manifest.json"}
    assert found == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != "manifest.json"
    }


def test_the_manifest_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(place: Path) -> Iterator[Path]:
        raise OSError("no space left")

    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("facts/answers.json", Counted(), NUMBERS)
        (folder.path / "curves.csv").write_text("x")
        with monkeypatch.context() as patch:
            patch.setattr("anchorscope.store.replacing", fail)
            with pytest.raises(OSError, match="no space"):
                folder.finish({})
        assert not folder.finished
        assert (folder.work / "facts" / "answers.json").exists()
        folder.finish({})
        assert folder.finished
        assert not folder.work.exists()


def test_a_manifest_holds_no_nan(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        with pytest.raises(ValueError, match="JSON"):
            folder.finish({"value": float("nan")})
        assert not folder.finished
        assert not list(folder.path.glob("manifest*"))


def test_a_folder_without_a_manifest_is_no_finished_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a finished run"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text('{"steps"')
    with pytest.raises(UserError, match="not a finished run"):
        read_manifest(tmp_path)


def test_a_finished_run_is_opened_again_as_it_is(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    before = below(tmp_path / "run")
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        assert folder.finished
    assert below(tmp_path / "run") == before
    assert not (tmp_path / "run" / "work").exists()


def test_a_run_that_was_killed_after_its_manifest_is_finished_and_tidied_up(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    left = tmp_path / "run" / "work" / "facts"
    left.mkdir(parents=True)
    (left / "states.safetensors").write_text("left")
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        assert folder.finished
    assert not (tmp_path / "run" / "work").exists()


# Whose folder.


def test_the_recipe_is_written_before_the_first_step(tmp_path: Path) -> None:
    with open_run(tmp_path / "deep" / "run", RECIPE, False) as folder:
        assert make_recipe(read_recipe(folder.path / "recipe.toml")) == RECIPE


def test_a_finished_run_of_another_recipe_is_refused_with_the_difference(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    before = below(tmp_path / "run")
    other = make_recipe({"seed": 4, "limit": 10, "site": "residual"})
    with pytest.raises(UserError) as refused, open_run(tmp_path / "run", other, False):
        pytest.fail("the folder was opened")
    message = str(refused.value)
    assert "another recipe (site was 'mlp', now 'residual'; seed was 3, now 4)" in message
    assert "--out" in message
    assert "--fresh" in message
    assert "limit" not in message
    assert below(tmp_path / "run") == before


def test_an_unfinished_run_of_another_recipe_is_refused_once_states_are_there(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("facts/answers.json", Counted(), NUMBERS)
        folder.step("facts/states.safetensors", Counted(), NUMBERS)
    before = below(tmp_path / "run")
    with (
        pytest.raises(UserError, match="site was 'mlp', now 'residual'"),
        open_run(tmp_path / "run", make_recipe({"seed": 3, "limit": 10, "site": "residual"}), False),
    ):
        pytest.fail("the folder was opened")
    assert below(tmp_path / "run") == before


def test_answers_still_serve_where_only_later_options_changed(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        for name in ("questions", "answers", "labels", "tokens"):
            folder.step(f"facts/{name}.json", Counted(), NUMBERS)
    other = make_recipe({"seed": 3, "limit": 10, "balance": "dataset"})
    with open_run(tmp_path / "run", other, False) as folder:
        assert folder.stored("facts/questions.json", NUMBERS) == folder.stored("facts/answers.json", NUMBERS) == [1, 2]
        assert folder.stored("facts/labels.json", NUMBERS) is folder.stored("facts/tokens.json", NUMBERS) is None
    assert make_recipe(read_recipe(tmp_path / "run" / "recipe.toml")) == other


def test_answers_do_not_serve_another_seed_or_model(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("facts/answers.json", Counted(), NUMBERS)
    others = [{"seed": 4}, {"model": "other"}, {"limit": 11}, {"datasets": ("file:x.csv",)}, {"dtype": "float32"}]
    for options in others:
        other = make_recipe({"seed": 3, "limit": 10, **options})
        with pytest.raises(UserError, match="another recipe"), open_run(tmp_path / "run", other, False):
            pytest.fail("the folder was opened")


def test_a_folder_that_holds_other_things_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "figures").mkdir()
    with (
        pytest.raises(UserError, match=r"holds other things \(figures, thesis\.tex\); choose an empty or new one"),
        open_run(tmp_path, RECIPE, False),
    ):
        pytest.fail("the folder was opened")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["figures", "thesis.tex"]


@pytest.mark.parametrize("name", ["work", "figures"])
def test_a_folder_that_only_looks_like_a_run_is_refused_even_with_fresh(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.tex").write_text("mine")
    (tmp_path / "report.md").write_text("mine")
    for fresh in (False, True):
        with pytest.raises(UserError, match="holds other things"), open_run(tmp_path, RECIPE, fresh):
            pytest.fail("the folder was opened")
    assert below(tmp_path) == {f"{name}/thesis.tex": b"mine", "report.md": b"mine"}


def test_fresh_does_not_delete_what_stands_beside_somebodys_own_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("seed = 3\n")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "mine.png").write_text("mine")
    with pytest.raises(UserError, match="holds other things"), open_run(tmp_path, RECIPE, True):
        pytest.fail("the folder was opened")
    assert below(tmp_path) == {"recipe.toml": b"seed = 3\n", "figures/mine.png": b"mine"}


@pytest.mark.parametrize("left", [[".lock"], [".lock", "recipe.toml.partial"]])
def test_a_run_killed_in_its_first_moment_does_not_block_the_folder(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).write_text("seed = ")
    with open_run(tmp_path, RECIPE, False) as folder:
        assert make_recipe(read_recipe(folder.path / "recipe.toml")) == RECIPE


def test_answers_of_an_unknown_recipe_are_not_trusted(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("facts/answers.json", Counted(), NUMBERS)
    (tmp_path / "run" / "recipe.toml").unlink()
    with pytest.raises(UserError, match="holds other things"), open_run(tmp_path / "run", RECIPE, False):
        pytest.fail("the folder was opened")


@pytest.mark.parametrize("name", ["lock", "model", "steps", "work", "recipe"])
def test_a_dataset_may_have_any_name(tmp_path: Path, name: str) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("model.json", Counted(), NUMBERS)
        assert folder.step(f"{name}/questions.json", Counted(), NUMBERS) == [1, 2]


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    with open_run(tmp_path, RECIPE, False) as folder:
        assert folder.path == tmp_path


@pytest.mark.parametrize("fresh", [False, True])
def test_a_file_in_the_way_is_told_and_kept(tmp_path: Path, fresh: bool) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UserError) as refused, open_run(tmp_path / "run", RECIPE, fresh):
        pytest.fail("the folder was opened")
    assert "--out" in str(refused.value)
    assert (tmp_path / "run").read_text() == "mine"


def test_a_folder_under_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(UserError, match=r"cannot be written \(Not a directory\); choose another with --out"),
        open_run(tmp_path / "file" / "sub" / "run", RECIPE, False),
    ):
        pytest.fail("the folder was opened")


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """A folder that this process may enter and read but not write to, even where root runs the tests."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    yield folder
    if was_root:
        os.seteuid(0)
    folder.rmdir()


def test_a_folder_that_is_not_writable_is_told(unwritable: Path) -> None:
    for path in (unwritable, unwritable / "run"):
        with (
            pytest.raises(UserError, match=r"cannot be written \(Permission denied\); choose another with --out"),
            open_run(path, RECIPE, False),
        ):
            pytest.fail("the folder was opened")
    assert list(unwritable.iterdir()) == []


def test_a_folder_that_may_not_be_entered_is_told(unwritable: Path) -> None:
    closed = unwritable.parent / f"{unwritable.name}-closed"
    closed.mkdir(mode=0o000)
    try:
        with pytest.raises(UserError, match="Permission denied"), open_run(closed / "run", RECIPE, False):
            pytest.fail("the folder was opened")
    finally:
        closed.rmdir()


def test_a_place_where_nobody_may_write_is_told() -> None:
    with pytest.raises(UserError, match="cannot be written"), open_run(Path("/proc/anchorscope"), RECIPE, False):
        pytest.fail("the folder was opened")


# Starting over.


def test_fresh_starts_over_with_another_recipe_and_removes_what_a_run_wrote(tmp_path: Path) -> None:
    finish(tmp_path / "run")
    path = tmp_path / "run"
    for name in RESULTS:
        if "." in name:
            (path / name).write_text("old")
    (path / "notes.txt").write_text("mine")
    other = make_recipe({"seed": 4})
    with open_run(path, other, True) as folder:
        assert not folder.finished
        assert {p.name for p in path.iterdir()} - {".lock"} == {"notes.txt", "recipe.toml", "work"}
    assert make_recipe(read_recipe(path / "recipe.toml")) == other
    assert (path / "notes.txt").read_text() == "mine"


def test_fresh_forgets_the_steps_of_an_unfinished_run(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("facts/answers.json", Counted(), NUMBERS)
    with open_run(tmp_path / "run", RECIPE, True) as folder:
        assert folder.stored("facts/answers.json", NUMBERS) is None
        assert folder.records() == []


# Mistakes.


def stopped_by(error: BaseException, path: Path, step: str) -> None:
    """A run that makes one step and then ends with an error."""
    with pytest.raises(type(error)), open_run(path, RECIPE, False) as folder:
        _step_and_raise(folder, step, error)


def _step_and_raise(folder: RunFolder, step: str, error: BaseException) -> None:
    folder.step(step, Counted(), NUMBERS)
    raise error


def test_a_mistake_before_any_answer_leaves_no_folder(tmp_path: Path) -> None:
    stopped_by(UserError("no such model"), tmp_path / "run", "facts/questions.json")
    assert not (tmp_path / "run").exists()


def test_a_mistake_in_an_empty_folder_leaves_it_empty(tmp_path: Path) -> None:
    stopped_by(UserError("no such model"), tmp_path, "facts/questions.json")
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_after_the_answers_keeps_them(tmp_path: Path) -> None:
    stopped_by(UserError("too few"), tmp_path / "run", "facts/answers.json")
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        assert folder.stored("facts/answers.json", NUMBERS) == [1, 2]
        assert not folder.finished


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt()])
def test_an_error_of_ours_and_an_interrupt_keep_everything(tmp_path: Path, error: BaseException) -> None:
    stopped_by(error, tmp_path / "run", "facts/questions.json")
    assert (tmp_path / "run" / "work" / "facts" / "questions.json").exists()


# Two at once.


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts a process that has a run folder open until its standard input closes."""
    started: list[subprocess.Popen[str]] = []
    code = """
        import sys
        from pathlib import Path
        from types import SimpleNamespace as Format
        from anchorscope.recipe import make_recipe
        from anchorscope.store import open_run

        with open_run(Path(sys.argv[1]), make_recipe({"seed": 3, "limit": 10}), False) as folder:
            folder.step("facts/answers.json", lambda: [7], Format(write=lambda v, p: p.write_text("[7]")))
            print("open", flush=True)
            sys.stdin.read()
    """

    def start(path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        return process

    yield start
    for process in started:
        process.communicate()


def test_a_second_process_in_the_same_folder_is_refused(
    tmp_path: Path, other_process: Callable[[Path], subprocess.Popen[str]]
) -> None:
    process = other_process(tmp_path / "run")
    before = below(tmp_path / "run" / "work")
    with (
        pytest.raises(UserError, match=r"Another process is running in .*; wait for it, or choose another folder"),
        open_run(tmp_path / "run", RECIPE, False),
    ):
        pytest.fail("the folder was opened")
    assert below(tmp_path / "run" / "work") == before
    process.communicate()
    assert process.returncode == 0
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        assert folder.stored("facts/answers.json", NUMBERS) == [7]


def test_fresh_does_not_pull_the_folder_from_under_another_process(
    tmp_path: Path, other_process: Callable[[Path], subprocess.Popen[str]]
) -> None:
    process = other_process(tmp_path / "run")
    with pytest.raises(UserError, match="Another process"), open_run(tmp_path / "run", RECIPE, True):
        pytest.fail("the folder was opened")
    assert (tmp_path / "run" / "work" / "facts" / "answers.json").read_text() == "[7]"
    process.communicate()
    with open_run(tmp_path / "run", RECIPE, True) as folder:
        assert folder.stored("facts/answers.json", NUMBERS) is None


def test_two_processes_in_two_folders_do_not_meet(
    tmp_path: Path, other_process: Callable[[Path], subprocess.Popen[str]]
) -> None:
    other_process(tmp_path / "first")
    with open_run(tmp_path / "second", RECIPE, False) as folder:
        assert isinstance(folder, RunFolder)


def test_the_records_are_json_lines(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", RECIPE, False) as folder:
        folder.step("facts/a.json", Counted(), NUMBERS)
        lines = (folder.work / "steps.jsonl").read_text().split("\n")
    assert [json.loads(line)["step"] for line in lines if line] == ["facts/a.json"]


def test_a_mistake_does_not_delete_a_recipe_that_no_run_wrote(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("# written by hand\nseed = 3\n", encoding="utf-8")
    with pytest.raises(UserError, match="holds other things"), open_run(tmp_path, make_recipe({"seed": 3}), True):
        pass
    assert (tmp_path / "recipe.toml").read_text(encoding="utf-8").startswith("# written by hand")
