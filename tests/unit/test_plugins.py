"""A plug-in that can't be used is refused in one line that names it; so is an error inside one that is used."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anchorscope import plugins
from anchorscope.answers.grade import Grader
from anchorscope.errors import UserError
from repo import SOURCES

Install = Callable[..., None]
MODULE = """
from anchorscope.answers.grade import Grader, grade
from anchorscope.datasets.formats import Format
from anchorscope.datasets.question import Unusable


def broken(answer, accepted, question):
    if question:
        return answer[99]
    return bool(answer)


def ending(answer, accepted, question):
    if question:
        raise SystemExit(0)
    return bool(answer)


def stopped(answer, accepted, question):
    if question:
        raise KeyboardInterrupt
    return bool(answer)


def refuse(row):
    raise Unusable("no such row")


FINE = Grader("fine", grade)
NAMED_RULES = Grader("rules", grade)
BROKEN = Grader("broken", broken)
ENDING = Grader("ending", ending)
STOPPED = Grader("stopped", stopped)
LENIENT = Grader("lenient", lambda answer, accepted, question: True)
RAISING = Grader("raising", lambda answer, accepted, question: 1 / 0)
FUNCTION = grade
CARDS = Format("cards", lambda row: "front" in row, refuse)
HALF = Format("half", None, refuse)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts packages with entry points on the path: `install("graders", fine="FINE")`."""
    (tmp_path / "some_things.py").write_text(MODULE)
    (tmp_path / "unfinished.py").write_text("import nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)

    def write(group: str, package: str = "things", **points: str) -> None:
        folder = tmp_path / f"{package}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        lines = [
            f"{name} = {one if ':' in one else f'some_things:{one}'}"
            for name, one in points.items()
        ]
        (folder / "entry_points.txt").write_text(
            "\n".join([f"[anchorscope.{group}]", *lines])
        )
        plugins.installed.cache_clear()

    yield write
    monkeypatch.undo()
    plugins.installed.cache_clear()
    plugins.load.cache_clear()
    sys.modules.pop("some_things", None)


REFUSED = {
    "no module": (
        "graders",
        {"one": "unfinished:ONE"},
        "failed to import: ModuleNotFoundError: No module named 'nowhere'",
    ),
    "no object": ("graders", {"one": "NOTHING"}, "failed to import: AttributeError: "),
    "wrong type": (
        "graders",
        {"one": "FUNCTION"},
        "is a function and must be a Grader (anchorscope.answers.grade:Grader)",
    ),
    "another name": (
        "graders",
        {"one": "FINE"},
        "is called 'fine' by its object; both names must be the same",
    ),
    "a law": (
        "graders",
        {"lenient": "LENIENT"},
        "grades 'Paris' as True and '' as True where 'Paris' is accepted",
    ),
    "a law that raises": (
        "graders",
        {"raising": "RAISING"},
        "failed its first check: ZeroDivisionError",
    ),
    "no function": ("datasets", {"half": "HALF"}, "has no function 'recognises'"),
    "our name": (
        "graders",
        {"rules": "NAMED_RULES"},
        "has the name of one that anchorscope has itself",
    ),
    "our experiment": (
        "interventions",
        {"layers": "FINE"},
        "has the name of one that anchorscope has itself",
    ),
}


@pytest.mark.parametrize(("group", "points", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_by_name(
    install: Install, group: str, points: dict[str, str], told: str
) -> None:
    install(group, **points)
    (plugin,) = plugins.installed()
    (name,) = points
    with pytest.raises(UserError) as refused:
        plugins.check((group,))
    line = str(refused.value)
    assert line.startswith(
        f"The plug-in {name!r} of package things 1.0 (entry point anchorscope.{group}) {told}"
    )
    assert line.endswith("; fix or uninstall it.")
    assert plugins.problem(plugin) == line


def test_the_second_of_two_packages_with_one_name_is_refused(install: Install) -> None:
    install("graders", "first", fine="FINE")
    install("graders", "second", fine="FINE")
    one, other = plugins.installed()
    assert plugins.problem(one) is None
    assert f"of package {other.package} 1.0" in str(plugins.problem(other))
    assert f"has the name of a plug-in of package {one.package};" in str(
        plugins.problem(other)
    )


def test_a_plugin_that_nobody_uses_is_not_imported(install: Install) -> None:
    install("graders", one="unfinished:ONE", fine="FINE")
    plugins.check(("families", "datasets"), ("fine",))
    with pytest.raises(UserError, match="'one' of package things"):
        plugins.check((), ("one",))


def test_an_error_in_a_function_of_a_plugin_names_it_and_its_line(
    install: Install,
) -> None:
    install("graders", broken="BROKEN")
    (plugin,) = plugins.installed()
    grader: Grader = plugins.load(plugin)
    assert grader.grade("Paris", ["Paris"], None) is True
    with pytest.raises(
        UserError,
        match=r"'broken' of package things 1.0 .* failed: IndexError: .* \(some_things.py:9\)",
    ):
        grader.grade("Paris", ["Paris"], "Where?")


def run_with_plugins(folder: Path) -> "subprocess.CompletedProcess[str]":
    """A run in a process of its own, in which the packages of a folder are installed."""
    paths = os.pathsep.join([str(SOURCES), str(folder)])
    words = ["run", "--model", "nowhere", "--out", str(folder / "out")]
    return subprocess.run(
        [sys.executable, "-m", "anchorscope", *words],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_with_a_broken_plugin_stops_at_once(
    install: Install, tmp_path: Path
) -> None:
    install("datasets", half="HALF")
    done = run_with_plugins(tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "error: The plug-in 'half' of package things 1.0 "
    )
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "ending",
    [
        "raise SystemExit",
        "raise SystemExit(0)",
        "raise KeyboardInterrupt",
        "raise GeneratorExit",
        "class Own(BaseException):\n    pass\nraise Own('x')",
    ],
)
def test_a_plugin_that_ends_the_program_is_an_error(
    install: Install, tmp_path: Path, ending: str
) -> None:
    (tmp_path / "ending.py").write_text(f"{ending}\n")
    install("datasets", ending="ending:ONE")
    done = run_with_plugins(tmp_path)
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: The plug-in 'ending' of package things 1.0 ")
    assert "failed to import: " in line


def test_a_function_of_a_plugin_that_ends_the_program_is_an_error(
    install: Install,
) -> None:
    install("graders", ending="ENDING")
    (plugin,) = plugins.installed()
    grader: Grader = plugins.load(plugin)
    with pytest.raises(UserError, match=r"failed: SystemExit: 0 \(some_things"):
        grader.grade("Paris", ["Paris"], "Where?")


def test_an_interruption_by_the_user_is_no_error_of_a_plugin(install: Install) -> None:
    install("graders", stopped="STOPPED")
    (plugin,) = plugins.installed()
    grader: Grader = plugins.load(plugin)
    with pytest.raises(KeyboardInterrupt):
        grader.grade("Paris", ["Paris"], "Where?")
