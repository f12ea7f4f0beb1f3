"""Cases from seeds: question files, options, folders, models and damage."""

import csv
import hashlib
import io
import json
import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import typer

from hostile.case import NAMES, Case, plant
from hostile.stage import DETECTORS, FAMILIES, FINISHED, GGUF, HALF, OTHER, Stage

_NUMBERS = "0 -1 1 2 31 60 1e3 1e308 1e999 nan -inf 0.5 0x10 1_000 ٣ 1,2 +7 007 ½ true 2147483648 9223372036854775808"
NUMBERS = (*_NUMBERS.split(), "", " 7", "9" * 300, "9" * 5000)
_WORDS = (
    "{} %s $(id) ' \" \\ -- - -h ../.. / . ~ ~nobody/x /dev/full /proc/self/cwd file: file:/ popqa= nq=/dev/null = "
)
_WORDS += ",, atlas,atlas all auto cuda:99 None é 数学 🚁 \u200b \u202e \ufeff \ud800 \udcff http://localhost/x shape:x"
TEXTS = (*_WORDS.split(" "), "a\nb", "\x00", "\x1b[31mred", "[bold]x[/]", "a" * 300, "a" * 5000, "x/" * 600)
JSON_VALUES: tuple[Any, ...] = (None, True, 0, -1, 7, 1.5, 1e308, float("nan"), 2**31, 2**64, 10**300, "", " ", "12")
JSON_VALUES += ("\ud800", "\x00", "../../x", "{{ 1 }}", "other/repo", "a" * 5000, [], [[]], [1, "a", None, {}], {})
NONSENSE = (b"", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff\xfe\0", b"9" * 5000, b"NaN", b"PAR1", b'{"a":1}')
FOLDERS = (
    "out",
    "out",
    "deep/er/out",
    "with space",
    "ünï",
    "new\nline",
    "-dash",
    "~",
    "x" * 5000,
    "a\udce9",
    "out/../out",
)


def json_value(rng: random.Random) -> Any:
    """One of the values, or a deep one."""
    value = rng.choice(JSON_VALUES)
    for _ in range(rng.choice((50, 900)) if rng.random() < 0.04 else 0):  # what `json.dumps` can still write
        value = [value]
    return value


def _damaged(rng: random.Random, content: bytes) -> bytes:
    """Bytes flipped, cut, taken out, put in, or replaced as a whole."""
    begin, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    kind = rng.randrange(6)
    if kind == 0:
        return content[:begin]
    if kind == 1:
        return content[:begin] + content[end:]
    if kind == 2:
        return (
            content[:begin] + rng.choice((*NONSENSE, b'"', b"\0" * 5000, b'"\\ud800"', b"," * 20_000)) + content[begin:]
        )
    if kind == 3:
        return content + rng.choice((b"\0", b"\n", content, rng.randbytes(100)))
    if kind == 4:
        return rng.choice(NONSENSE)
    return content[:begin] + bytes([rng.randrange(256)]) + content[begin + 1 :]


def _take(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _put(rng: random.Random, case: Case, path: Path) -> None:
    """A file, folder, link or pipe of the user's."""
    mine = case.folder / "neighbour" / os.fsdecode(rng.choice(NAMES[:3]))
    mine.write_bytes(b"precious")
    kind = rng.randrange(5)
    if kind == 0:
        path.write_bytes(b"mine")
    elif kind == 1:
        path.mkdir()
        plant(path, rng)
    elif kind == 2:
        os.mkfifo(path)
    else:
        path.symlink_to(rng.choice((str(mine), str(mine.parent), path.name, "nowhere", "/dev/full", "/dev/zero", "..")))


# Question files.


def make_question_file(rng: random.Random, stage: Stage, case: Case) -> None:
    """Mutated rows, damaged bytes, or something that is no file; and a command that reads it."""
    case.memory_mb = 1000
    path = case.user / rng.choice(
        ("mine.csv", "mine.csv", "a,b.csv", "noending", "-dash.csv", "new\nline.csv", "x" * 240)
    )
    if rng.random() < 0.1:
        _put(rng, case, path)
    else:
        content = _rows(rng) if rng.random() < 0.5 else rng.choice(stage.samples).read_bytes()
        path.write_bytes(_damaged(rng, content) if rng.random() < 0.5 else content)
    kind, bad = rng.random(), ["--on-bad-row", rng.choice(("skip", "fail"))]
    if kind < 0.7:
        named = rng.choice((str(path), path.name, f"file:{path}", f"popqa={path}", f"nq={path}"))
        case.words = ["data", *(["--json"] if rng.random() < 0.4 else []), *bad, "--", named]
    elif kind < 0.9:
        case.words = ["run", "--dry-run", "--model", str(stage.model), "--dataset", f"file:{path}", *bad]
    else:
        detector = ["--detector", str(stage.folder / DETECTORS / "probe"), "--model", str(stage.model)]
        case.words = ["score", str(path), *detector, "--no-generate"]


def _rows(rng: random.Random) -> bytes:
    """Good rows with some odd values, as JSON lines, a JSON list or a table."""
    from small_facts import rows

    made: list[Any] = [dict(row) for row in rng.choices(rows(), k=rng.choice((1, 3, 40)))]
    for row in rng.choices(made, k=rng.choice((0, 1, 3))):
        row[rng.choice([*row, rng.choice(TEXTS)])] = json_value(rng)
    if rng.random() < 0.3:
        made[rng.randrange(len(made))] = json_value(rng)
    kind = rng.randrange(3)
    if kind == 0:
        return "\n".join(map(json.dumps, made)).encode()
    if kind == 1:
        return json.dumps(made).encode()
    tables = [row for row in made if isinstance(row, dict)]
    file = io.StringIO()
    writer = csv.DictWriter(file, list({name: None for row in tables for name in row}), delimiter=rng.choice(",\t;"))
    writer.writeheader()
    writer.writerows(tables)
    return file.getvalue().encode(errors="surrogatepass")


# Options.


def make_options(rng: random.Random, stage: Stage, case: Case) -> None:
    """A command with odd options."""
    case.file("facts.jsonl", stage.facts.read_bytes())
    study = f"models = [{str(stage.model)!r}]\ndatasets = ['file:facts.jsonl']\n[defaults]\nlimit = 5\ndevice = 'cpu'\n"
    case.file("study.toml", study)  # it ends soon: five questions are too few
    names, number = [*commands(), "run", "run", "run"], int(case.folder.name.rpartition("-")[2])
    name = names[number % len(names)]  # every one in turn
    case.words = [*name.split(), *_arguments(name, rng, stage)]
    options = [one for one in commands()[name].params if one.param_type_name == "option" and one.name != "help"]
    for option in rng.choices(options, k=rng.choice((1, 1, 2, 6))) if options else ():
        case.words += _given(option, rng)
    case.words += ["--dry-run"] * (name == "run" and rng.random() < 0.85) + ["--json"] * (name == "view")
    # As a shell can pass them: no NUL, and half a surrogate pair only where it stands for a byte.
    words = [word.replace("\x00", "").encode("utf-8", "surrogatepass") for word in case.words]
    case.words = [word.decode("utf-8", "surrogateescape") for word in words]
    case.outs = ["."]
    case.reaches_out = case.may_ask_hub = True
    if name in ("validate", "bench", "run", "view", "detect", "serve"):
        case.interrupt = (4.0, rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))


@cache
def commands() -> dict[str, Any]:
    """Every command by its name, those of groups with both words."""
    from anchorscope.cli.main import app

    top: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    groups = {name: one.commands for name, one in top.items() if hasattr(one, "commands")}
    own = {f"{name} {sub}": one for name, commands in groups.items() for sub, one in commands.items()}
    return {name: one for name, one in {**top, **own}.items() if name not in groups}


def _arguments(name: str, rng: random.Random, stage: Stage) -> list[str]:
    """What makes the command a good one, where nothing odd follows."""
    finished, other, probe = (str(stage.folder / part) for part in (FINISHED, OTHER, f"{DETECTORS}/probe"))
    good = {
        "run": ["--model", str(stage.model), "--dataset", "file:facts.jsonl", "--out", "out"],
        "data": ["facts.jsonl"],
        "show": [finished],
        "verify": [finished],
        "view": [str(stage.folder)],
        "compare": [finished, other, "--out", "out", "--allow", "all"],
        "detect": [other, "--out", "out", "--fit-only", "--bundles", "probe"],
        "score": ["--detector", probe, "--model", str(stage.model), "Who?"],
        "serve": [probe, "--model", str(stage.model), "--port", "0"],
        "detector card": [probe],
        "validate": ["--out", "out"],
        **{f"study {name}": ["study.toml", "--out", "out"] for name in ("run", "status", "report")},
    }.get(name, [])
    if rng.random() < 0.15 and good:
        good[rng.randrange(len(good))] = rng.choice(TEXTS)
    return good


def _given(option: Any, rng: random.Random) -> list[str]:
    """An option with a value; flags have none."""
    from recipe_choices import CHOICES

    word = rng.choice([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return [word]
    choices = sorted({choice for choices in CHOICES.values() for choice in choices})
    value = rng.choice(rng.choice((NUMBERS, NUMBERS, TEXTS, choices, ("facts.jsonl",))))
    return [f"{word}={value}"] if rng.random() < 0.3 else [word, value]


# Folders.


def make_folder(rng: random.Random, stage: Stage, case: Case) -> None:
    """Something stands where a command wants to write or read."""
    name = rng.choice(FOLDERS)
    path = case.user / os.path.normpath(name)
    if len(name) < 250:
        path.parent.mkdir(parents=True, exist_ok=True)
        _take(path)  # a file of the user's may have the same name
        rng.choice((lambda *_: None, _own_work, _own_work, _odd_entry, _own_run, _own_run, _false_index, _foreign))(
            rng, stage, case, path
        )
    case.outs = [os.path.relpath(path, case.folder), "user/compared", "user/detected"]
    dataset = rng.choice((f"file:{stage.facts}", "file:typo.csv", "atlass"))
    run = ["run", "--model", str(stage.model), "--dataset", dataset, "--limit", "70", "--out", name]
    again = ["run", str(stage.folder / FINISHED / "recipe.toml"), "--out", name]
    finished, other = str(stage.folder / FINISHED), str(stage.folder / OTHER)
    fit = ["--fit-only", "--bundles", "probe", "--folds", "2", "--seeds", "1", "--out", name]
    scored = ["score", "Who?", "--detector", str(stage.folder / DETECTORS / "probe"), "--out", name]
    read = [[command, "--", name] for command in ("show", "data", "verify")]
    written = [run, again, [*again, "--fresh"], scored, ["compare", finished, other, "--allow", "all", "--out", name]]
    written += [["detect", other, *fit], ["validate", "--worlds", "none", "--out", name]]
    named = [["view", "--json", "--", name], ["compare", name, other, "--out", "compared"]]
    case.words = rng.choice([*read, *written, *written, *named, ["detect", name, "--out", "detected"]])
    if case.words[0] in ("validate", "detect"):
        case.interrupt = (8.0, signal.SIGTERM)


def _own_work(rng: random.Random, stage: Stage, case: Case, path: Path) -> None:
    """A project with a copied recipe and folders that happen to have our names."""
    for name in rng.sample(("work", "figures", "states", "results.partial"), 2):
        (path / name).mkdir(parents=True)
        plant(path / name, rng)
    shutil.copy(stage.folder / FINISHED / "recipe.toml", path / "recipe.toml")
    for name in rng.sample(("report.md", "index.json.partial", "items.parquet", ".lock"), 2):
        (path / name).write_text("mine")


def _odd_entry(rng: random.Random, stage: Stage, case: Case, path: Path) -> None:
    _put(rng, case, path)


def _own_run(rng: random.Random, stage: Stage, case: Case, path: Path) -> None:
    """A run of ours, in which the user keeps things too, some in the place of results."""
    files = stage.copy(rng.choice((HALF, FINISHED)), path)
    below = os.path.relpath(path, case.folder)
    case.ours = {os.path.join(below, name) for name in files}
    for folder in (path, path / "work", path / "work" / "facts"):
        plant(folder, rng, rng.randrange(3))
    results = ("report.html", "items.parquet", "recipe.toml", "manifest.json", "figures", "index.json", ".lock", "work")
    for name in rng.sample(results, rng.randrange(3)):
        _take(path / name)
        case.ours = {one for one in case.ours if not f"{one}/".startswith(f"{os.path.join(below, name)}/")}
        _put(rng, case, path / name)


def _false_index(rng: random.Random, stage: Stage, case: Case, path: Path) -> None:
    """A run from elsewhere whose index, sealed as it should be, claims files of the user's."""
    files = stage.copy(FINISHED, path)
    case.ours = {os.path.join(os.path.relpath(path, case.folder), name) for name in files}
    target = case.file("precious.txt", "years of work")
    (path / "mine.txt").write_text("mine")
    claimed = rng.choice((str(target), os.path.relpath(target, path), "mine.txt", "./mine.txt", "work", ""))
    # Whoever makes a run elsewhere does not know what will be in a file that the user puts into it.
    content = target.read_bytes() if "precious" in claimed else b"your"
    facts = {claimed: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}}

    def change(index: dict[str, Any]) -> None:
        part = rng.choice(("leaving", "steps", "results", "arriving"))
        if part == "leaving":
            index["leaving"] = [claimed]
        elif part == "steps":
            index["steps"][rng.choice(list(index["steps"]))]["files"] |= facts
        else:
            index[part] |= facts

    _reseal(path / "index.json", change)


def _foreign(rng: random.Random, stage: Stage, case: Case, path: Path) -> None:
    """Markers that are not ours, or an index that is sealed and makes no sense."""
    path.mkdir()
    for name in rng.sample(("index.json", "manifest.json", "recipe.toml", "detection.json"), rng.randrange(1, 4)):
        (path / name).write_bytes(rng.choice((*NONSENSE, b'{"marker": "anchorscope run"}')))
    if rng.random() < 0.4:
        shutil.copy(stage.folder / FINISHED / "index.json", path)
        case.ours.add(os.path.relpath(path / "index.json", case.folder))  # a folder with our marker is a run
        field = rng.choice(("steps", "results", "leaving", "notes", "schema_version", "events", "arriving"))
        _reseal(path / "index.json", lambda index: index.update({field: json_value(rng)}))
    plant(path, rng, 1)


def _reseal(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes an index and seals it again, as anybody can."""
    index = json.loads(path.read_bytes())
    index.pop("seal")
    change(index)
    seal = hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**index, "seal": seal}))


# Models.


class _Pickled:
    """Makes a folder when somebody unpickles it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, int]]:
        return os.mkdir, (self.path, 0o777)


def make_model(rng: random.Random, stage: Stage, case: Case) -> None:
    """A model that somebody tampered with, and a command that opens it."""
    case.memory_mb = 1500
    path = case.user / rng.choice(("model", "my, model", "modèle"))
    if rng.random() < 0.15:
        path = path.with_suffix(".gguf")
        path.write_bytes(_damaged(rng, (stage.folder / GGUF).read_bytes()) or b"GGUF")
    else:
        stage.copy(f"models/{rng.choice(FAMILIES)}", path)
        for _ in range(rng.choice((1, 1, 2))):
            rng.choice((_change_config, _change_config, _change_json, _damage_file, _add_code))(rng, path, case)
    case.words = ["run", "--model", str(path), "--dataset", f"file:{stage.facts}", "--limit", "70"]
    case.words += ["--prompt", rng.choice(("few-shot", "zero-shot", "chat"))]
    if rng.random() < 0.55:
        case.words.append("--dry-run")
    else:  # loading is of interest here, not the run behind it
        case.words += ["--out", "out", "--bootstrap", "100", "--folds", "2", "--random-cuts", "1"]
        case.outs, case.interrupt = ["user/out"], (15.0, signal.SIGINT)


def _change_config(rng: random.Random, path: Path, case: Case) -> None:
    config = _read_object(path / "config.json")
    name = rng.choice(
        [*config, "quantization_config", "auto_map", "rope_scaling", "text_config", "_attn_implementation"]
    )
    large = rng.choice((0, -1, 3, 10**6, 10**9, 2**63, 10**400, "org/kernel"))
    config[name] = large if rng.random() < 0.5 else json_value(rng)
    _write_object(path / "config.json", config)


def _change_json(rng: random.Random, path: Path, case: Case) -> None:
    """Another value somewhere deep inside a JSON file, or a chat template of somebody's own."""
    name = rng.choice(("tokenizer.json", "tokenizer_config.json", "generation_config.json"))
    content = inner = _read_object(path / name)
    while inner and rng.random() < 0.8:
        key = rng.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        if not isinstance(inner[key], dict | list):
            inner[key] = json_value(rng)
            break
        inner = inner[key]
    if name == "tokenizer_config.json":
        content["chat_template"] = rng.choice(
            ("{{ messages", "{{ ''.__class__ }}", "{{ 'a' * 10**10 }}", json_value(rng))
        )
    _write_object(path / name, content)


def _damage_file(rng: random.Random, path: Path, case: Case) -> None:
    file = rng.choice(sorted(one for one in path.iterdir() if one.is_file() and not one.is_symlink()))
    content = file.read_bytes()
    if rng.random() < 0.7:
        file.write_bytes(_damaged(rng, content))
    else:
        file.unlink()
        if rng.random() < 0.7:
            _put(rng, case, file)


def _add_code(rng: random.Random, path: Path, case: Case) -> None:
    """Pickles and Python beside the weights, and a configuration that names them: any side effect is seen."""
    trap = str(case.user / "the trap was sprung")
    for name in ("pytorch_model.bin", "tokenizer.pkl"):
        (path / name).write_bytes(pickle.dumps(_Pickled(trap)))
    for name in ("own.py", "modeling_own.py", "configuration_own.py", "json.py"):
        (path / name).write_text(f"import os\nos.mkdir({trap!r})\nclass Own: pass\n")
    config = _read_object(path / "config.json")
    config["auto_map"] = {"AutoConfig": "configuration_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    config["auto_map"]["AutoTokenizer"] = "own.Own"
    if rng.random() < 0.5:
        config["model_type"] = "own"
    _write_object(path / "config.json", config)
    if rng.random() < 0.3:
        (path / "model.safetensors").unlink(missing_ok=True)


def _read_object(path: Path) -> Any:
    """The object in a JSON file; an empty one where an earlier change left something else."""
    try:
        content = json.loads(path.read_bytes()) if path.is_file() and not path.is_symlink() else {}
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_object(path: Path, content: Any) -> None:
    if not os.path.lexists(path) or (path.is_file() and not path.is_symlink()):
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")


# Damage.


def make_damage(rng: random.Random, stage: Stage, case: Case) -> None:
    """Files of a run or of detectors flipped, cut, swapped or gone; then a command that reads them."""
    kind = rng.choice((HALF, HALF, FINISHED, FINISHED, OTHER, DETECTORS))
    path = case.user / "run"
    files = sorted(stage.copy(kind, path))
    case.outs, case.ours = ["user/run", "user/compared", "user/detected"], {f"user/run/{name}" for name in files}
    plant(path, rng, 1)
    for _ in range(rng.choice((1, 1, 1, 5))):
        names = [name for name in files if (path / name).is_file() and not (path / name).is_symlink()]
        small = [name for name in names if name in ("index.json", "manifest.json", "recipe.toml", "answer.json")]
        if names:
            _harm(rng, path, path / rng.choice(small if small and rng.random() < 0.3 else names), case)
    again = ["run", str(stage.folder / FINISHED / "recipe.toml"), "--out", "run"]
    other = str(stage.folder / OTHER)
    fit = ["--fit-only", "--bundles", "probe", "--folds", "2", "--seeds", "1", "--out", "detected"]
    readers = {
        HALF: [again],
        FINISHED: [again, ["show", "run", "--json"], ["compare", "run", other, "--allow", "all", "--out", "compared"]],
        OTHER: [["detect", "run", *fit], ["show", "run"]],
        DETECTORS: [["score", "Who?", "--detector", "run/probe"]],
    }
    case.words = rng.choice([*readers[kind], *readers[kind], ["view", "--json", "."], ["verify", "run"]])
    if case.words[0] == "run":
        case.tables = stage.tables


def _harm(rng: random.Random, run: Path, file: Path, case: Case) -> None:
    kind = rng.randrange(8)
    if kind < 3:
        file.write_bytes(_damaged(rng, file.read_bytes()))
    elif kind == 3:
        file.unlink()
    elif kind == 4:  # swapped with another file of its kind
        other = rng.choice([one for one in sorted(run.rglob(f"*{file.suffix}")) if one.is_file()])
        first, second = file.read_bytes(), other.read_bytes()
        file.write_bytes(second)
        other.write_bytes(first)
        case.ours.add(os.path.relpath(other, case.folder))
    elif kind == 5:
        file.unlink()
        _put(rng, case, file)
        if file.is_dir() and not file.is_symlink():
            case.ours.discard(os.path.relpath(file, case.folder))
    elif kind == 6:  # the whole step is gone, or the whole work
        folder = rng.choice((file.parent, run / "work"))
        if folder != run and folder.is_dir():
            case.ours |= {os.path.relpath(one, case.folder) for one in folder.rglob("*")}
            shutil.rmtree(folder)
    else:  # an index that knows less than there is
        with suppress(Exception):  # it may be damaged already
            _reseal(run / "index.json", lambda index: index["steps"].pop(rng.choice(sorted(index["steps"]))))


GENERATORS: dict[str, tuple[Callable[[random.Random, Stage, Case], None], int]] = {
    "question-files": (make_question_file, 30),
    "options": (make_options, 32),
    "folders": (make_folder, 16),
    "model-folders": (make_model, 16),
    "step-damage": (make_damage, 12),
}
"""Each with the number of its cases in the test suite."""
