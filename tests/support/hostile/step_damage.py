"""Damage: files of half-done and finished runs and of detectors, flipped, cut, swapped, gone; then commands."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from hostile.case import Case
from hostile.sentinels import plant
from hostile.stage import DETECTORS, FINISHED, HALF, OTHER, Stage


def make(rng: random.Random, stage: Stage, case: Case) -> None:
    """A damaged folder, and a command that reads it."""
    kind = rng.choice((HALF, HALF, HALF, FINISHED, FINISHED, FINISHED, OTHER, DETECTORS))
    place = case.user / "run"
    files = stage.copy(kind, place)
    case.outs, case.ours = ["user/run"], {f"user/run/{name}" for name in files}
    for folder in dict.fromkeys((place, (place / rng.choice(sorted(files))).parent)):  # in this order, as seeds want
        plant(folder, rng, 1)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        there = [name for name in sorted(files) if (place / name).is_file() and not (place / name).is_symlink()]
        if there:
            rng.choice(_HARM)(rng, place, place / _chosen(rng, there), case)
    runs = {
        HALF: [_again(case, place, stage), _again(case, place, stage), ["view", "--json", "."]],
        FINISHED: [
            _again(case, place, stage),
            ["show", "run"],
            ["show", "run", "--json"],
            ["view", "--json", "."],
            ["compare", "run", str(stage.folder / OTHER), "--allow", "all", "--out", "compared"],
        ],
        OTHER: [
            ["detect", "run", "--fit-only", "--bundles", "probe", "--folds", "2", "--seeds", "1", "--out", "found"],
            ["show", "run"],
        ],
        DETECTORS: [["score", "Who?", "--detector", "run/probe"], ["view", "--json", "."]],
    }
    case.words = rng.choice([*runs[kind], ["verify", "run"]])
    if case.words[0] == "run":
        case.tables = stage.tables
    case.outs += ["user/compared", "user/found"]


def _again(case: Case, place: Path, stage: Stage) -> list[str]:
    """What goes on with the run."""
    return ["run", str(stage.folder / FINISHED / "recipe.toml"), "--out", os.path.relpath(place, case.user)]


def _chosen(rng: random.Random, names: list[str]) -> str:
    """One of the files: index and manifest as often as all the others of their kind together."""
    small = [name for name in names if name in ("index.json", "manifest.json", "recipe.toml", "answer.json")]
    return rng.choice(small) if small and rng.random() < 0.3 else rng.choice(names)


def _flip(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    content = bytearray(file.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def _cut(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: rng.choice((0, 1, len(content) // 2, max(0, len(content) - 1)))])


def _append(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    with file.open("ab") as handle:
        handle.write(rng.choice((b"\0", b"\n", b" ", rng.randbytes(100))))


def _delete(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    file.unlink()


def _swap(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    """With another file of the run: often one of the same kind."""
    others = [one for one in sorted(place.rglob(f"*{file.suffix}")) if one.is_file() and one != file]
    if others:
        other = rng.choice(others)
        first, second = file.read_bytes(), other.read_bytes()
        file.write_bytes(second)
        other.write_bytes(first)
        for one in (file, other):
            case.ours.add(os.path.relpath(one, case.folder))


def _nonsense(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    file.write_bytes(
        rng.choice(
            (b"{}", b"[]", b"null", b"[" * 50_000, b"\xff\xfe", rng.randbytes(3000), b"NaN", b"PAR1", b'{"a":1}')
        )
    )


def _edit(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    """A number or a word of a text is another one, as an editor would leave it."""
    content = file.read_bytes()
    digits = [number for number, byte in enumerate(content[:200_000]) if 48 <= byte < 58]
    if digits:
        place_of = rng.choice(digits)
        file.write_bytes(content[:place_of] + bytes([48 + rng.randrange(10)]) + content[place_of + 1 :])


def _link(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    """Replaced by a link, a folder or a pipe."""
    file.unlink()
    kind = rng.randrange(5)  # a link or a pipe in the run's own place holds nothing; what a link leads to is the user's
    if kind == 0:
        file.symlink_to(file.name)
    elif kind == 1:
        file.symlink_to("/dev/zero")
    elif kind == 2:
        file.mkdir()
        (file / "mine").write_text("mine")
        case.ours.discard(os.path.relpath(file, case.folder))
    elif kind == 3:
        os.mkfifo(file)
    else:
        file.symlink_to(case.file("precious", "precious"))


def _drop_folder(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    """The whole step is gone, or the whole work."""
    folder = rng.choice((file.parent, place / "work"))
    if folder != place and folder.is_dir():
        case.ours |= {os.path.relpath(one, case.folder) for one in folder.rglob("*")}
        shutil.rmtree(folder)


def _older_index(rng: random.Random, place: Path, file: Path, case: Case) -> None:
    """An index that knows less than there is: one of its entries was taken out, and it was sealed again."""
    from anchorscope.files import canonical_hash

    if not (place / "index.json").is_file():
        return
    try:
        index = json.loads((place / "index.json").read_bytes())
        index.pop("seal")
        steps = index["steps"]
        steps.pop(rng.choice(sorted(steps)))
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError, AttributeError):
        return
    (place / "index.json").write_text(json.dumps({**index, "seal": canonical_hash(index)}))


_HARM: tuple[Callable[[random.Random, Path, Path, Case], None], ...] = (
    _flip,
    _flip,
    _flip,
    _cut,
    _cut,
    _append,
    _delete,
    _delete,
    _swap,
    _swap,
    _nonsense,
    _edit,
    _link,
    _drop_folder,
    _older_index,
)
