"""Folders that are not what a command hopes for: the user's own work, links, pipes, others' runs, odd names."""

import hashlib
import json
import os
import random
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile.case import Case
from hostile.sentinels import NAMES, plant
from hostile.stage import FINISHED, HALF, OTHER, Stage

_PLACES = (
    "out",
    "out",
    "out",
    "deep/er/out",
    "a,b",
    "with space",
    "ünï",
    "new\nline",
    "-dash",
    "~",
    "x" * 200,
    "x" * 5000,
    "a\udce9",
    "[red]",
    "out/",
    "./out",
    "out/../out",
    "%s",
    "CON",
    "..\\out",
)
_RESULTS = (
    "report.html",
    "report.md",
    "items.parquet",
    "curves.csv",
    "recipe.toml",
    "manifest.json",
    "answer.json",
    "figures",
    "index.json",
    ".lock",
    "work",
    "summary.csv",
)


def make(rng: random.Random, stage: Stage, case: Case) -> None:
    """Something stands where a command wants to write or read."""
    name = rng.choice(_PLACES)
    place = case.user / os.path.normpath(name)
    short = len(name) < 250
    if short:
        place.parent.mkdir(parents=True, exist_ok=True)
        _take(place)  # a file of the user's may have the same name
        rng.choice(_THERE)(rng, stage, case, place)
    here = short and place.is_dir() and not place.is_symlink() and rng.random() < 0.3
    if here:
        case.place, name = (
            os.path.relpath(place, case.folder),
            rng.choice((".", "./", "", f"../{place.name}", "work/..")),
        )
    case.outs = [os.path.relpath(place, case.folder), f"{case.place}/compared", f"{case.place}/detected"]
    case.words = _command(rng, stage, case, name)
    if "validate" in case.words or "detect" in case.words:
        case.interrupt = (8.0, signal.SIGTERM)
    if rng.random() < 0.03:
        case.words[-1], case.reaches_out = rng.choice(("/", "/dev/null", "/proc/x", "/sys", "/etc", "//")), True


def _command(rng: random.Random, stage: Stage, case: Case, name: str) -> list[str]:
    """A command whose last word is the folder."""
    dataset = f"file:{stage.facts}" if rng.random() < 0.5 else rng.choice(("file:typo.csv", "atlass", "popqa=none.tsv"))
    run = [
        "run",
        "--model",
        str(stage.model),
        "--dataset",
        dataset,
        "--limit",
        "70",
        *(["--fresh"] * (rng.random() < 0.3)),
    ]
    runs = [str(stage.folder / FINISHED), str(stage.folder / OTHER)]
    own = case.folder / case.place / "recipe.toml"
    again = ["run", str(own) if own.is_file() else str(stage.folder / FINISHED / "recipe.toml")]
    return rng.choice(
        (
            [*run, "--out", name],
            [*run, "--out", name],
            [*again, "--out", name],
            [*again, "--out", name],
            [*again, "--fresh", "--out", name],
            [*again, "--dataset", "file:typo.csv", "--out", name],
            ["compare", *runs, "--allow", "all", "--out", name],
            ["detect", runs[1], "--fit-only", "--bundles", "probe", "--folds", "2", "--seeds", "1", "--out", name],
            ["validate", "--worlds", "none", "--out", name],
            ["validate", "--items", "120", "--out", name],
            ["show", "--", name],
            ["view", "--json", "--", name],
            ["score", "Who?", "--detector", str(stage.folder / "detectors" / "probe"), "--out", name],
            ["bench", "--items", "0", "--out", name],
            ["data", "--", name],
            ["compare", name, runs[0], "--out", "compared"],
            ["detect", name, "--out", "detected"],
            ["verify", "--", name],
        )
    )


def _nothing(rng: random.Random, stage: Stage, case: Case, place: Path) -> None:
    """No such folder."""


def _empty(rng: random.Random, stage: Stage, case: Case, place: Path) -> None:
    place.mkdir()


def _own_work(rng: random.Random, stage: Stage, case: Case, place: Path) -> None:
    """A project with a copied recipe and folders that happen to have our names."""
    for name in rng.sample(("work", "figures", "states", "results.partial", "bundles"), rng.randrange(4)):
        (place / name).mkdir(parents=True)
        plant(place / name, rng)
    place.mkdir(exist_ok=True)
    shutil.copy(stage.folder / FINISHED / "recipe.toml", place / "recipe.toml")
    for name in rng.sample(("report.md", "index.json.partial", "notes", "items.parquet", ".lock"), rng.randrange(4)):
        (place / name).write_text("mine")
    if rng.random() < 0.5:
        plant(place, rng)


def _odd(rng: random.Random, stage: Stage, case: Case, place: Path) -> None:
    _put(rng, case, place)


def _run(rng: random.Random, stage: Stage, case: Case, place: Path) -> None:
    """A run of ours, in which the user keeps things too."""
    files = stage.copy(rng.choice((HALF, FINISHED, FINISHED)), place)
    below = os.path.relpath(place, case.folder)
    case.ours = {os.path.join(below, name) for name in files}
    for folder in (place, place / "work", place / "work" / "facts"):
        plant(folder, rng, rng.randrange(3))
    for name in rng.sample(_RESULTS, rng.choice((0, 0, 1, 2))):  # the user put something of theirs in a result's place
        _take(place / name)
        case.ours = {one for one in case.ours if not f"{one}/".startswith(f"{os.path.join(below, name)}/")}
        _put(rng, case, place / name)


def _false_index(rng: random.Random, stage: Stage, case: Case, place: Path) -> None:
    """A run from elsewhere whose index, sealed as it should be, claims files of the user's."""
    _run(random.Random(rng.random()), stage, case, place)
    target = case.file("precious.txt", "years of work")
    (place / "mine.txt").write_text("mine")
    claimed = rng.choice(
        (str(target), os.path.relpath(target, place), "../precious.txt", "mine.txt", "./mine.txt", "work", "")
    )
    # Who makes a run elsewhere does not know what will be in a file that the user puts into it.
    content = target.read_bytes() if "precious" in claimed else b"your"
    facts = {claimed: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}}

    def change(index: dict[str, Any]) -> None:
        kind = rng.randrange(4)
        if kind == 0:
            index["leaving"] = [claimed]
        elif kind == 1:
            index["steps"][rng.choice(list(index["steps"]))]["files"] |= facts
        else:
            index[("results", "arriving")[kind - 2]] |= facts

    _resealed(place / "index.json", change)


def _foreign(rng: random.Random, stage: Stage, case: Case, place: Path) -> None:
    """Markers that are not ours, or were."""
    place.mkdir()
    real = (stage.folder / FINISHED / "index.json").read_bytes()
    texts = (
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"marker": "anchorscope run"}',
        b"[" * 100_000,
        real,
        real[: len(real) // 2],
        real.replace(b'"notes"', b'"Notes"'),
        b'{"name": "somebody", "version": "1.0.0"}',
        b"\xff\xfe\0",
        b"9" * 5000,
    )
    for name in rng.sample(
        ("index.json", "manifest.json", "recipe.toml", "comparison.json", "detection.json"), rng.randrange(1, 4)
    ):
        (place / name).write_bytes(rng.choice(texts))
        if name == "index.json" and (place / name).read_bytes() == real:
            case.ours.add(os.path.relpath(place / name, case.folder))  # a folder with our marker is a run
    if rng.random() < 0.3:
        _resealed(place / "index.json", lambda index: index.update(rng.choice(_SEALED_NONSENSE)))
    plant(place, rng, 1)


_SEALED_NONSENSE: tuple[dict[str, Any], ...] = (
    {"steps": []},
    {"steps": {"a": {}}},
    {"results": None},
    {"leaving": "x"},
    {"notes": []},
    {"schema_version": "2"},
    {"schema_version": -1},
    {"events": {}},
    {"arriving": [1]},
    {"results": {"recipe.toml": 1}},
    {"leaving": [None]},
)


def _resealed(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes an index and seals it again, as anybody can."""
    if place.is_symlink() or not place.is_file():
        return  # the user had put something else there
    try:
        index = json.loads(place.read_bytes())
        index.pop("seal")
        change(index)
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return
    seal = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
    place.write_text(json.dumps({**index, "seal": seal}))


def _take(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _put(rng: random.Random, case: Case, place: Path) -> None:
    """A file, folder, link, pipe or socket of the user's."""
    neighbour = case.folder / "neighbour"
    mine = neighbour / os.fsdecode(rng.choice(NAMES[:3]))
    mine.write_bytes(b"precious")
    kind = rng.randrange(9)
    if kind == 0:
        place.write_bytes(b"mine")
    elif kind == 1:
        place.mkdir()
        plant(place, rng)
    elif kind == 2:
        place.symlink_to(mine)
    elif kind == 3:
        place.symlink_to(neighbour)
    elif kind == 4:
        place.symlink_to(place.name)
    elif kind == 5:
        place.symlink_to("nowhere")
    elif kind == 6:
        os.mkfifo(place)
    elif kind == 7:
        place.symlink_to(rng.choice(("/dev/null", "/dev/full", "/dev/zero", "/proc/self", "..", ".", "/")))
    else:
        here = os.getcwd()
        os.chdir(place.parent)  # an address has at most 107 letters
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(place.name[:100])
        os.chdir(here)


_THERE = (
    _nothing,
    _empty,
    _own_work,
    _own_work,
    _own_work,
    _odd,
    _odd,
    _run,
    _run,
    _run,
    _false_index,
    _foreign,
    _foreign,
)
