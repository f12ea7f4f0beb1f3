"""What is the user's stays: whatever is behind a link in a folder of results, the link, files that end as ours do."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import anchorscope
from anchorscope.artefacts.sealed_folder import INDEX, MANIFEST, MARKERS
from anchorscope.detecting import detect as detecting
from anchorscope.detectors.bundle import write_bundle
from anchorscope.errors import UserError
from anchorscope.files import LOCK, PARTIAL
from anchorscope.models.loading import load as load_model
from anchorscope.report import comparison, detection
from anchorscope.study.grid import read_study
from anchorscope.study.study_folder import open_study
from commands import invoke
from compared_runs import model_findings, write_run
from detector_cases import probe, trained_on
from kept_runs import questions_of, write_kept_run
from study_fixtures import tiny_folder, write_study  # noqa: F401
from whole_runs import quick

LISTS = {INDEX, MANIFEST, *MARKERS}


@dataclass(frozen=True)
class Job:
    """A command that has written into a folder, and writes there again."""

    folder: Path
    again: Callable[[], object]
    inside: str = ""
    """The folder of results that is filled, where others are beside it."""

    def parts(self) -> list[list[str]]:
        """What becomes links: every folder and every list of files by itself, then all other files."""
        place = self.folder / self.inside
        paths = [path.relative_to(self.folder) for path in (place, *place.rglob("*"))]
        alone, files = [], []
        for path in paths:
            if (self.folder / path).is_dir() or path.name in LISTS:
                alone.append([str(path)])
            elif path.name != LOCK:
                files.append(str(path))
        return [part for part in [*alone, files] if part not in ([], ["."])]


@pytest.fixture(autouse=True)
def unprinted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are left out: they take the time."""
    for module in (detection, comparison):
        monkeypatch.setattr(module, "save_all", lambda *_: None)


def run_again(request: pytest.FixtureRequest, place: Path) -> Job:
    small_run = request.getfixturevalue("small_run")
    out = small_run.copy("finished", place / "run")
    return Job(out, lambda: quick(small_run.recipe, out, fresh=True))


def fit_again(request: pytest.FixtureRequest, place: Path) -> Job:
    small_run = request.getfixturevalue("small_run")
    out = small_run.copy("finished", place / "run")
    shutil.copytree(_detected(place / "other") / "detectors", out / "detectors")
    recipe = small_run.recipe
    words = ("fit", "--model", recipe.model, "--dataset", recipe.datasets[0])

    def again() -> None:
        result = invoke(*words, "--out", out, "--quiet", "--fresh")
        assert result.exit_code == 2, result.output

    return Job(out, again, "detectors")


def _detected(folder: Path) -> Path:
    run = write_kept_run(folder, [questions_of("facts")])
    detecting.detect(run, **_FEW)
    return run


_FEW = {
    "folds": 2,
    "seeds": 1,
    "tosses": 0,
    "resamples": 100,
    "device": "cpu",
    "detectors": ("confidence", "probe"),
    "bundles": ("confidence", "probe"),
}


def detect_again(request: pytest.FixtureRequest, place: Path) -> Job:
    run = _detected(place / "run")
    fewer = {**_FEW, "bundles": ("probe",)}
    return Job(run, lambda: detecting.detect(run, **fewer), "detectors")


def compare_again(request: pytest.FixtureRequest, place: Path) -> Job:
    runs = [
        write_run(place / name, model_findings(name, datasets=("popqa",)))
        for name in ("a", "b")
    ]
    out = place / "out"
    anchorscope.compare(runs, out=out)
    return Job(out, lambda: anchorscope.compare(runs, out=out, names=["c", "d"]))


def study_again(request: pytest.FixtureRequest, place: Path) -> Job:
    written, out = request.getfixturevalue("write_study")(), place / "out"
    study = read_study(written)
    with open_study(out, study, written) as folder:
        for run in study.runs:
            folder.run(run.name).mkdir(parents=True)
        (out / "comparison").mkdir()

    def again() -> None:
        result = invoke("study", "run", written, "--out", out, "--quiet")
        assert result.exit_code != 0, result.output

    return Job(out, again)


def scores_and_probe(request: pytest.FixtureRequest, place: Path) -> Job:
    """`score --out` and `detector export` into places in a run folder."""
    small_run = request.getfixturevalue("small_run")
    out = small_run.copy("finished", place / "run")
    bundle = place / "bundle"
    model = load_model(str(request.getfixturevalue("save_tiny")("llama")))
    write_bundle(bundle, trained_on(model, fitted=probe()))
    score = ("score", "--detector", bundle, "Who?", "--answer", "I", "--out")
    export = ("detector", "export", bundle, "--out", out / "mine" / "probe")
    commands = ((*score, out / "mine" / "scores" / "a.csv"), export)
    for words in commands:
        assert invoke(*words).exit_code == 0

    def again() -> None:
        for words in commands:
            result = invoke(*words)
            assert result.exit_code in (0, 2), result.output

    return Job(out, again, "mine")


def snapshot(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder; links are not followed."""
    return {
        path.relative_to(folder).as_posix(): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else "folder"
        for path in folder.rglob("*")
    }


def links_of(folder: Path) -> Iterator[str]:
    return (os.readlink(path) for path in folder.rglob("*") if path.is_symlink())


@pytest.mark.parametrize("content", ["moved", "the user's"])
@pytest.mark.parametrize(
    "job",
    [run_again, fit_again, detect_again, compare_again, study_again, scores_and_probe],
)
def test_nothing_behind_a_link_is_changed_and_no_link_is_lost(
    job: Callable[[pytest.FixtureRequest, Path], Job],
    content: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    made = job(request, tmp_path / "made")
    kept, elsewhere = tmp_path / "kept", tmp_path / "elsewhere"
    shutil.copytree(made.folder, kept)
    for names in made.parts():
        shutil.rmtree(made.folder)
        shutil.copytree(kept, made.folder)
        shutil.rmtree(elsewhere, ignore_errors=True)
        elsewhere.mkdir()
        for number, name in enumerate(names):
            moved = elsewhere / str(number)
            shutil.move(made.folder / name, moved)
            (made.folder / name).symlink_to(moved)
        if content == "the user's":
            for file in filter(Path.is_file, [*elsewhere.rglob("*")]):
                file.write_text("mine")
        before = snapshot(elsewhere)
        links = sorted(links_of(made.folder))
        with suppress(UserError):
            made.again()
        assert snapshot(elsewhere) == before, names
        assert sorted(links_of(made.folder)) == links, names


def study_opened(request: pytest.FixtureRequest, place: Path) -> Job:
    written, out = request.getfixturevalue("write_study")(), place / "out"

    def again() -> None:
        with open_study(out, read_study(written), written):
            pass

    again()
    return Job(out, again)


@pytest.mark.parametrize("where", ["inside", "beside"])
@pytest.mark.parametrize(
    "job", [run_again, detect_again, compare_again, study_opened, scores_and_probe]
)
def test_a_users_file_whose_name_ends_as_if_it_were_half_made_stays(
    job: Callable[[pytest.FixtureRequest, Path], Job],
    where: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    made = job(request, tmp_path / "made")
    place = made.folder / made.inside
    beside = [place]
    if where == "inside":
        folders = [place, *(path for path in place.rglob("*") if path.is_dir())]
        beside = [child for folder in folders for child in folder.iterdir()]
        beside.append(place / "results")
    mine = {}
    for number, path in enumerate(beside):
        file = path.with_name(f"{path.name}{PARTIAL}")
        file = file / "report.html" if number % 2 else file
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
        mine[file] = file.stat().st_ino
    with suppress(UserError):
        made.again()
    assert {file: file.stat().st_ino for file in mine} == mine
    assert {file.read_text() for file in mine} == {"mine"}
