"""Steps: made once, read afterwards, made again exactly where something that they are made from changed."""

import os
import re
import signal
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from anchorscope.artefacts import run_folder
from anchorscope.artefacts.run_folder import RunFolder, open_run
from anchorscope.artefacts.step import Format, Source, StepResult, records
from noting import Notes
from whole_runs import files_of

NUMBERS = records(list[int])


class Counted:
    """A step's work that says how often it was done."""

    def __init__(self, value: Any = (1, 2)) -> None:
        self.value, self.times = value, 0

    def __call__(self) -> Any:
        self.times += 1
        return list(self.value)


def a_step(
    folder: RunFolder,
    name: str = "facts/one",
    work: Callable[[], Any] | None = None,
    *,
    parents: tuple[Any, ...] = (),
    form: Format = NUMBERS,
    large: bool = False,
    **made_from: Any,
) -> StepResult:
    return StepResult(
        folder, name, parents, form, work or Counted(), large=large, **made_from
    )


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_step_that_fails_while_it_is_written_leaves_nothing(
    tmp_path: Path, error: type[BaseException]
) -> None:
    def write_half(value: Any, path: Path) -> None:
        (path / "part.json").write_text("[1, ")
        raise error

    with open_run(tmp_path / "run") as folder:
        with pytest.raises(error):
            a_step(folder, form=Format(write_half, NUMBERS.read)).value  # noqa: B018
        assert list((folder.work / "facts").iterdir()) == []
        assert folder.steps == {}
        assert a_step(folder).value == [1, 2]


@contextmanager
def killed(when: Callable[[], None]) -> Any:
    """Runs a block in a process of its own, which kills itself where it calls what `when` has prepared."""
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        with suppress(BaseException):
            when()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    yield


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_killed_while_writing_leaves_the_steps_before_and_no_litter(
    tmp_path: Path,
) -> None:
    def run() -> None:
        with open_run(tmp_path / "run") as folder:
            a_step(folder, "facts/whole", Counted([5])).value  # noqa: B018
            a_step(folder, "facts/half", form=Format(die, NUMBERS.read)).value  # noqa: B018

    whole, half = Counted(), Counted()
    with killed(run), open_run(tmp_path / "run") as folder:
        assert (
            len(list((folder.work / "facts").iterdir())) == 1
        )  # the half-made one is gone, whatever comes now
        assert a_step(folder, "facts/whole", whole).value == [5]
        assert a_step(folder, "facts/half", half).value == [1, 2]
    assert (whole.times, half.times) == (0, 1)


def test_files_of_a_process_killed_before_its_index_knew_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is in its place, the index does not list it yet; other options then never ask for it again."""

    def run() -> None:
        with open_run(tmp_path / "run") as folder:
            monkeypatch.setattr(RunFolder, "drop", die)
            a_step(folder, options={"a": 1}).value  # noqa: B018

    with killed(run):
        assert len(files_of(tmp_path / "run" / "work")) == 1
        with open_run(tmp_path / "run") as folder:
            assert files_of(folder.work) == {}
            a_step(folder, options={"a": 2}).value  # noqa: B018
            assert len(files_of(folder.work)) == 1
            assert folder.arriving == {}


def test_files_of_a_process_killed_before_it_removed_the_old_ones_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_run(tmp_path / "run") as folder:
        a_step(folder, options={"a": 1}).value  # noqa: B018

    def run() -> None:
        with open_run(tmp_path / "run") as folder:
            monkeypatch.setattr(run_folder, "remove_files", die)
            a_step(folder, options={"a": 2}).value  # noqa: B018

    with killed(run):
        assert len(files_of(tmp_path / "run" / "work")) == 2
        with open_run(tmp_path / "run") as folder:
            listed = [name for record in folder.steps.values() for name in record.files]
            assert [f"work/{name}" for name in files_of(folder.work)] == listed
            assert len(listed) == 1


# Keys.

MADE_FROM = {"epoch": 1, "options": {"a": 1, "b": "x"}, "libraries": {"torch": "2.1"}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"options": {"a": 2, "b": "x"}}, "a was 1, now 2"),
        ({"options": {"a": 1}}, "b was 'x', now not given"),
        ({"options": {"a": 1, "b": "x", "c": ["y"]}}, r"c was not given, now \['y'\]"),
        ({"libraries": {"torch": "2.2"}}, "torch was '2.1', now '2.2'"),
        ({"epoch": 2}, "this version computes it differently"),
        ({"parents": (Source("file", "two"),)}, "file changed"),
        ({"parents": (Source("other file", "one"),)}, "other file came in"),
    ],
)
def test_whatever_a_step_is_made_from_makes_it_anew_and_says_why(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    whole = {"parents": (Source("file", "one"),), **MADE_FROM}
    with open_run(tmp_path / "run") as folder:
        a_step(folder, work=Counted([1]), **whole).value  # noqa: B018
    told = Notes()
    with open_run(tmp_path / "run", told) as folder:
        step = a_step(folder, work=Counted([2]), **{**whole, **change})
        assert not step.is_kept
        assert step.value == [2]
    (line,) = told.lines
    assert line.startswith("facts/one is made again: ")
    assert re.search(why, line)
    assert len(files_of(tmp_path / "run" / "work")) == 1  # the old result is gone
    with open_run(tmp_path / "run", told) as folder:
        assert a_step(folder, work=Counted([3]), **{**whole, **change}).value == [2]
        assert folder.events == told.lines
    assert len(told.lines) == 1


def test_what_depends_on_a_changed_step_is_made_anew_and_nothing_else(
    tmp_path: Path,
) -> None:
    made: list[str] = []

    def chain(folder: RunFolder, option: int) -> list[StepResult]:
        def work(name: str) -> Callable[[], list[int]]:
            return lambda: [made.append(name), 1][1:]

        first = a_step(folder, "first", work("first"))
        second = a_step(
            folder, "second", work("second"), parents=(first,), options={"o": option}
        )
        third = a_step(folder, "third", work("third"), parents=(second,))
        return [
            first,
            second,
            third,
            a_step(folder, "fourth", work("fourth"), parents=(first,)),
        ]

    for option in (1, 2):
        with open_run(tmp_path / "run") as folder:
            for step in chain(folder, option):
                step.value  # noqa: B018
    assert made == ["first", "second", "third", "fourth", "second", "third"]


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (
            lambda place: place.write_bytes(place.read_bytes()[::-1]),
            "is not what was written",
        ),
        (lambda place: place.write_bytes(place.read_bytes()[:-2]), "bytes instead of"),
        (lambda place: place.write_bytes(b""), "has 0 bytes instead of"),
        (Path.unlink, "is missing"),
    ],
)
def test_a_damaged_step_is_made_again_and_told(
    tmp_path: Path, harm: Callable[[Path], Any], told: str
) -> None:
    with open_run(tmp_path / "run") as folder:
        a_step(folder, work=Counted([1])).value  # noqa: B018
        (name,) = folder.steps["facts/one"].files
    harm(tmp_path / "run" / name)
    notes = Notes()
    with open_run(tmp_path / "run", notes) as folder:
        assert a_step(folder, work=Counted([1])).value == [1]
    (line,) = notes.lines
    assert line.startswith(f"facts/one is made again: {name} ")
    assert told in line
    with open_run(tmp_path / "run", notes) as folder:
        assert a_step(folder, work=Counted([2])).value == [1]
    assert len(notes.lines) == 1
