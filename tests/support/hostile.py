"""Hostile and unlucky users: seeded cases, each a folder with files and a command, and one judge for all of them.

The same seed makes the same files and the same command. Every command runs in a forked child, so that a case costs
milliseconds instead of an import of torch. The rules are the same for all: a result or one error line with exit code 2,
bounded time, no network, and every file of the user's as it was.

    python tools/hostile.py --cases 10000 --seed 1
    python tools/hostile.py --replay model-folders 17
"""

import errno
import hashlib
import importlib
import json
import os
import pickle
import pkgutil
import random
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

NAMES = (
    b"notes.txt",
    b"-rf",
    b"a\nb",
    b"caf\xe9.txt",
    b"x" * 200,
    b"[red]x",
    b"old.partial",
    b"\x1b[2J",
    b"*",
)
"""Names of files that a user may have; one is not UTF-8."""
NUMBERS = (
    "0",
    "-1",
    "1e3",
    "1e999",
    "nan",
    "-inf",
    "0.5",
    "1_000",
    "٣",
    "007",
    "true",
    "2147483648",
    "",
    "9" * 5000,
)
TEXTS = (
    "{}",
    "%s",
    "$(id)",
    "'",
    "--",
    "-h",
    "../..",
    "/",
    "~",
    "/dev/full",
    "file:/",
    "popqa=",
    ",,",
    "cuda:99",
    "é",
)
TEXTS += (
    "\u202e",
    "\udcff",
    "http://localhost/x",
    "shape:x",
    "a\nb",
    "\x1b[31mred",
    "[bold]x[/]",
    "a" * 5000,
)
VALUES = (
    None,
    True,
    -1,
    1e308,
    float("nan"),
    2**64,
    "",
    "\ud800",
    "\x00",
    "../../x",
    "a" * 5000,
    [],
    {},
)
"""What a JSON file may hold instead of what it should."""
NONSENSE = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"[" * 100_000,
    b"\xff\xfe\0",
    b"9" * 5000,
    b"PAR1",
)
FOLDERS = (
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
FAMILIES = ("llama", "gpt2", "qwen3_moe")
"""The first is the one that runs use."""
_FEW_FITS = (
    "--detectors",
    "probe",
    "--bundles",
    "probe",
    "--seeds",
    "1",
    "--tosses",
    "0",
    "--resamples",
    "100",
)


@dataclass
class Case:
    """What a generator makes from a seed."""

    folder: Path
    words: list[str] = field(default_factory=list)
    """The arguments of `anchorscope`, which is called in `user`."""
    outs: list[str] = field(default_factory=list)
    """Where the command may write, relative to the folder."""
    ours: set[str] = field(default_factory=set)
    """Files there that anchorscope wrote before, and may change; all others are the user's."""
    seconds: int = 60
    """A command that takes longer hangs."""
    interrupt: tuple[float, int] | None = None
    """A signal and when it is sent: for commands that rightly run for long."""
    may_reach_out: bool = False
    """Whether the command may name folders outside (as read-only) and the network (as down)."""

    @property
    def user(self) -> Path:
        return self.folder / "user"


@dataclass(frozen=True)
class Outcome:
    code: int
    """The exit code, or minus the signal that ended it."""
    stderr: str
    stdout: str
    reached: tuple[str, ...]
    """Attempts to write outside or to use the network."""


@dataclass(frozen=True)
class Stage:
    """The folder that cases copy from: models, questions, runs and a detector; never changed once it is built."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def copy(self, name: str, to: Path) -> list[str]:
        """Copies a model or a run; the names of its files, relative to the copy."""
        shutil.copytree(self.folder / name, to, dirs_exist_ok=True)
        return sorted(
            path.relative_to(to).as_posix() for path in to.rglob("*") if path.is_file()
        )


# Generators.


def plant(folder: Path, rng: random.Random) -> None:
    """Puts two files of the user's into a folder."""
    for name in rng.sample(NAMES, 2):
        path = os.path.join(os.fsencode(folder), name)
        if not os.path.lexists(path):
            with open(path, "wb") as file:
                file.write(rng.randbytes(rng.choice((0, 50, 3000))))


def put_in_the_way(rng: random.Random, case: Case, path: Path) -> None:
    """A file, folder, link or pipe of the user's where something else should be."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    kind = rng.randrange(4)
    if kind == 0:
        path.write_bytes(b"mine")
    elif kind == 1:
        path.mkdir()
        plant(path, rng)
    elif kind == 2:
        os.mkfifo(path)
    else:
        path.symlink_to(
            rng.choice(
                (
                    str(case.folder / "neighbour"),
                    path.name,
                    "nowhere",
                    "/dev/full",
                    "/dev/zero",
                )
            )
        )


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Bytes cut off, taken out, put in, changed, or replaced as a whole."""
    begin, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    replaced = bytes([rng.randrange(256)])
    return rng.choice(
        (
            content[:begin],
            content[:begin] + content[end:],
            content[:begin] + rng.choice(NONSENSE) + content[begin:],
            content[:begin] + replaced + content[begin + 1 :],
            rng.choice(NONSENSE),
        )
    )


@cache
def commands() -> dict[str, Any]:
    """Every command by its name, those of groups with both words."""
    from anchorscope.cli.main import app

    top: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    groups = {
        name: command.commands
        for name, command in top.items()
        if hasattr(command, "commands")
    }
    inner = {
        f"{name} {sub}": command
        for name, subs in groups.items()
        for sub, command in subs.items()
    }
    return {
        name: command
        for name, command in {**top, **inner}.items()
        if name not in groups
    }


def make_options(rng: random.Random, stage: Stage, case: Case) -> None:
    """Every command in turn, with odd values of its options."""
    shutil.copy(stage.folder / "facts.jsonl", case.user)
    model, run, other, probe = (
        stage.path(name)
        for name in ("models/llama", "run", "other", "detectors/bundles/probe")
    )
    study = f"models = [{model!r}]\ndatasets = ['file:facts.jsonl']\n[defaults]\nlimit = 5\ndevice = 'cpu'\n"
    # it ends soon: five questions are too few
    (case.user / "study.toml").write_text(study)
    good = {
        "run": ["--model", model, "--dataset", "file:facts.jsonl", "--out", "out"],
        "data": ["facts.jsonl"],
        "show": [run],
        "verify": [run],
        "view": [stage.path("."), "--json", "--out", "index.html"],
        "compare": [run, other, "--out", "out", "--allow", "all"],
        "detect": [other, "--out", "out", *_FEW_FITS],
        "score": ["--detector", probe, "--model", model, "Who?"],
        "serve": [probe, "--model", model, "--port", "0"],
        "detector card": [probe],
        **{
            f"study {name}": ["study.toml", "--out", "out"]
            for name in ("run", "status")
        },
    }
    number = int(case.folder.name.rpartition("-")[2])
    name = list(commands())[number % len(commands())]
    case.words = [*name.split(), *good.get(name, [])]
    options = [
        one
        for one in commands()[name].params
        if one.param_type_name == "option" and one.name != "help"
    ]
    for option in rng.choices(options, k=rng.choice((1, 2, 6))) if options else ():
        word = rng.choice([*option.opts, *option.secondary_opts])
        case.words += (
            [word]
            if option.is_flag
            else [word, rng.choice(rng.choice((NUMBERS, TEXTS, ("all", "auto"))))]
        )
    case.words += ["--dry-run"] * (name == "run" and rng.random() < 0.8)
    case.may_reach_out = True
    named = [after for word, after in pairwise(case.words) if word in ("--out", "-o")]
    case.outs = [".", *(f"user/{out}" for out in named if "/" not in out)]
    if name in ("run", "fit", "detect", "serve"):
        case.interrupt = (
            4.0,
            rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
        )


def make_folder(rng: random.Random, stage: Stage, case: Case) -> None:
    """Something of the user's stands where a command wants to write or read."""
    name = rng.choice(FOLDERS)
    path = case.user / os.path.normpath(name)
    if len(name) < 250:
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = rng.randrange(4)
        if kind == 0:
            put_in_the_way(rng, case, path)
        elif (
            kind == 1
        ):  # a project with a copied recipe and folders that happen to have our names
            for inner in ("work", "figures"):
                (path / inner).mkdir(parents=True)
                plant(path / inner, rng)
            shutil.copy(stage.path("run/recipe.toml"), path)
        elif (
            kind == 2
        ):  # a run of ours in which the user keeps files too, some in the place of results
            below = os.path.relpath(path, case.folder)
            case.ours = {os.path.join(below, file) for file in stage.copy("run", path)}
            plant(path / "work", rng)
            for result in rng.sample(
                ("items.parquet", "recipe.toml", "manifest.json", "index.json", "work"),
                2,
            ):
                taken = os.path.join(below, result)
                case.ours = {
                    file for file in case.ours if not f"{file}/".startswith(f"{taken}/")
                }
                put_in_the_way(rng, case, path / result)
    case.outs = [os.path.relpath(path, case.folder), "user/compared"]
    run = ["run", stage.path("run/recipe.toml"), "--out", name]
    mistyped = [
        "run",
        "--model",
        stage.path("models/llama"),
        "--dataset",
        "file:typo.csv",
        "--out",
        name,
    ]
    compare = [
        "compare",
        stage.path("run"),
        stage.path("other"),
        "--allow",
        "all",
        "--out",
        name,
    ]
    detect = ["detect", stage.path("other"), *_FEW_FITS, "--folds", "2", "--out", name]
    read = [[command, "--", name] for command in ("show", "data", "verify")]
    read += [
        ["view", "--json", "--", name],
        ["compare", name, stage.path("other"), "--out", "compared"],
    ]
    case.words = rng.choice([*read, run, [*run, "--fresh"], mistyped, compare, detect])


class _Pickled:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, int]]:
        return os.mkdir, (self.path, 0o777)


def make_model(rng: random.Random, stage: Stage, case: Case) -> None:
    """A model that somebody tampered with: settings, bytes, code and pickles beside the weights."""
    path = case.user / rng.choice(("model", "my, model", "modèle"))
    files = stage.copy(f"models/{rng.choice(FAMILIES)}", path)
    trap, config = (
        str(case.user / "the trap was sprung"),
        json.loads((path / "config.json").read_bytes()),
    )
    kind = rng.randrange(4)
    if kind == 0:
        name = rng.choice(
            [*config, "quantization_config", "auto_map", "rope_scaling", "text_config"]
        )
        config[name] = rng.choice((*VALUES, 0, 3, 10**6, 10**9, 10**400, "org/kernel"))
    elif kind == 1:
        file = path / rng.choice(files)
        if rng.random() < 0.7:
            file.write_bytes(damaged(rng, file.read_bytes()))
        else:
            put_in_the_way(rng, case, file)
    elif kind == 2:
        settings = json.loads((path / "tokenizer_config.json").read_bytes())
        settings["chat_template"] = rng.choice(
            ("{{ messages", "{{ ''.__class__ }}", "{{ 'a' * 10**10 }}", 5)
        )
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
    else:
        for name in ("pytorch_model.bin", "tokenizer.pkl"):
            (path / name).write_bytes(pickle.dumps(_Pickled(trap)))
        for name in ("modeling_own.py", "configuration_own.py", "json.py"):
            (path / name).write_text(
                f"import os\nos.mkdir({trap!r})\nclass Own: pass\n"
            )
        config["auto_map"] = {
            "AutoConfig": "configuration_own.Own",
            "AutoModelForCausalLM": "modeling_own.Own",
        }
        config["model_type"] = rng.choice((config["model_type"], "own"))
    if kind in (0, 3):
        (path / "config.json").write_text(json.dumps(config))
    case.words = [
        "run",
        "--model",
        str(path),
        "--dataset",
        f"file:{stage.path('facts.jsonl')}",
        "--limit",
        "70",
    ]
    case.words += ["--prompt", rng.choice(("few-shot", "chat"))]
    if rng.random() < 0.5:
        case.words.append("--dry-run")
    else:  # loading is of interest here, not the run behind it
        case.words += ["--out", "out"]
        case.outs, case.interrupt = ["user/out"], (15.0, signal.SIGINT)


GENERATORS: dict[str, tuple[Callable[[random.Random, Stage, Case], None], int]] = {
    "options": (make_options, 32),
    "folders": (make_folder, 20),
    "model-folders": (make_model, 18),
}
"""Each with the number of its cases in the test suite; damaged runs are in tests/nightly/runs/test_damage.py, question
files in tests/nightly/datasets/test_fuzz.py."""


# A command in a child.

_CHANGES = {
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.remove": ((0, 1),),
    "os.chmod": ((0, 2),),
    "os.symlink": ((1, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
}
"""Audit events that change the disk: the argument that is a path, and the one that is its folder's handle."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NETWORK = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
)


def run_case(case: Case, command: Callable[[], object], home: Path) -> Outcome:
    """Runs a case's command in a child; `home` is where libraries keep their caches."""
    notes = {name: case.folder / f".{name}" for name in ("out", "err", "reached")}
    for path in notes.values():
        path.touch()
    began, child = time.monotonic(), os.fork()
    if child == 0:
        _run_child(case, command, notes, home)
    waiting, done, status = case.interrupt, 0, 0
    while not done:
        done, status = os.waitpid(child, os.WNOHANG if waiting else 0)
        if not done and waiting and time.monotonic() - began >= waiting[0]:
            os.kill(child, waiting[1])
            waiting = None
        elif not done:
            time.sleep(0.02)
    texts = {
        name: path.read_bytes().decode(errors="backslashreplace")
        for name, path in notes.items()
    }
    for path in notes.values():
        path.unlink()
    reached = tuple(dict.fromkeys(texts["reached"].splitlines()))
    return Outcome(
        os.waitstatus_to_exitcode(status), texts["err"], texts["out"], reached
    )


def _run_child(
    case: Case, command: Callable[[], object], notes: dict[str, Path], home: Path
) -> None:
    code = 1
    try:
        addresses = (
            int(Path("/proc/self/statm").read_text().split()[0])
            * resource.getpagesize()
        )
        resource.setrlimit(resource.RLIMIT_AS, (addresses + (8 << 30),) * 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(case.seconds)
        os.chdir(case.user)
        for handle, path in enumerate(("/dev/null", notes["out"], notes["err"])):
            os.dup2(os.open(path, os.O_RDWR), handle)
        sys.stdout, sys.stderr = (
            os.fdopen(handle, "w", closefd=False) for handle in (1, 2)
        )
        tempfile.tempdir = None
        for name, variable in (("tmp", "TMPDIR"), ("cache", "ANCHORSCOPE_CACHE")):
            (case.folder / name).mkdir(exist_ok=True)
            os.environ[variable] = str(case.folder / name)
        os.environ["HOME"] = str(home)
        sys.argv = ["anchorscope", *case.words]
        _put_up_fence([case.folder, home], notes["reached"])
        try:
            command()
            code = 0
        except SystemExit as ending:
            code = (
                ending.code
                if isinstance(ending.code, int)
                else int(ending.code is not None)
            )
        threading._shutdown()  # type: ignore[attr-defined]
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code & 0xFF)


def _put_up_fence(roots: list[Path], log: Path) -> None:
    """From now on this process can write only below the roots, and has no network; attempts are noted."""
    allowed = tuple(f"{os.path.realpath(root)}/" for root in roots)
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)

    def refuse(number: int, kind: str, what: Any) -> None:
        os.write(handle, f"{kind} {what!r}\n".encode(errors="backslashreplace"))
        raise OSError(number, os.strerror(number), str(what))

    def check(path: Any, folder: Any = -1) -> None:
        if isinstance(path, int) or path is None or b"\0" in os.fsencode(path):
            return  # a handle was opened before
        start = (
            os.getcwd()
            if folder in (-1, None)
            else os.readlink(f"/proc/self/fd/{folder}")
        )
        parent, name = os.path.split(
            os.path.join(start, os.fsdecode(path)).rstrip("/") or "/"
        )
        real = os.path.join(os.path.realpath(parent), name)
        if not f"{real}/".startswith((*allowed, "/dev/", "/proc/self/")):
            refuse(errno.EROFS, "outside", real)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and arguments[2] & _WRITING:
            check(arguments[0])
        elif event in _CHANGES:
            for number, folder in _CHANGES[event]:
                check(arguments[number], arguments[folder])
        elif event in _NETWORK and not (
            event == "socket.connect" and arguments[0].family == socket.AF_UNIX
        ):
            refuse(errno.ENETUNREACH, "network", arguments[-1])
        elif event == "subprocess.Popen" and "pip" in map(str, arguments[1]):
            refuse(errno.EACCES, "network", "pip")

    sys.addaudithook(hook)


# The judge.

_CONTROL = re.compile(r".{0,40}[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f].{0,40}")
"""What moves a terminal's cursor, colours it or rings its bell."""


def list_entries(folder: Path) -> dict[str, str]:
    """Every entry below a folder, with its kind and content; links are not followed, pipes not opened."""
    return dict(_entries_below(os.fsencode(folder), b""))


def _entries_below(folder: bytes, below: bytes) -> Iterator[tuple[str, str]]:
    for entry in os.scandir(os.path.join(folder, below)):
        name, mode = (
            os.path.join(below, entry.name),
            entry.stat(follow_symlinks=False).st_mode,
        )
        content = ""
        if entry.is_symlink():
            content = os.fsdecode(os.readlink(entry.path))
        elif entry.is_dir():
            yield from _entries_below(folder, name)
        elif entry.is_file():
            with open(entry.path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        yield os.fsdecode(name), f"{mode:o} {content}"


def find_faults(
    case: Case, before: dict[str, str], after: dict[str, str], outcome: Outcome
) -> list[str]:
    """What went wrong, one line each; nothing where the command kept to the rules."""
    lines = [line for line in outcome.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    last = lines[-1][:300] if lines else "nothing on standard error"
    allowed = {0, 2} | ({128 + case.interrupt[1]} if case.interrupt else set())
    faults = []
    if outcome.code not in allowed:
        faults.append(
            f"exit code {outcome.code}{' (hangs)' * (outcome.code == -14)}: {last}"
        )
    elif "Traceback (most recent call last)" in outcome.stderr + outcome.stdout:
        faults.append(f"a traceback: {last}")
    elif (outcome.code == 2) != (len(errors) == 1 and lines[-1] == errors[0]):
        faults.append(
            f"exit code {outcome.code} with {len(errors)} error lines, the last line is: {last}"
        )
    if control := _CONTROL.search(outcome.stderr + outcome.stdout):
        faults.append(f"prints a control character: {control[0]!r}")
    faults += [
        f"tried: {line[:300]}" for line in outcome.reached if not case.may_reach_out
    ]
    for name, was in before.items():
        ours = any(file == name or file.startswith(f"{name}/") for file in case.ours)
        if after.get(name) != was and not ours and not _moved_aside(name, was, after):
            faults.append(
                f"the user's {name!r} ({was[:40]}) is {after.get(name, 'gone')[:40]}"
            )
    outs = [
        out for out in case.outs if outcome.code != 2 or _has_answers(case.folder / out)
    ]
    outs += [
        os.path.relpath(
            os.path.realpath(case.folder / out), os.path.realpath(case.folder)
        )
        for out in outs
    ]
    new = [
        name
        for name in after
        if name not in before and not name.startswith("cache") and name != "tmp"
    ]
    strange = [name for name in new if not any(_leads_to(name, out) for out in outs)]
    return faults + (
        [f"left {len(strange)} new entries: {strange[:3]}"] if strange else []
    )


def _moved_aside(name: str, was: str, after: dict[str, str]) -> bool:
    """Whether a file in a result's way was moved to NAME.changed-N, by itself or with its folder."""
    parts = name.split("/")
    patterns = (
        rf"{re.escape('/'.join(parts[:depth]))}\.changed-\d+{re.escape('/'.join(['', *parts[depth:]]))}"
        for depth in range(1, len(parts) + 1)
    )
    return any(
        re.fullmatch(pattern, there) and after[there] == was
        for pattern in patterns
        for there in after
    )


def _leads_to(name: str, out: str) -> bool:
    """Whether an entry is the folder, in it, or above it."""
    return (
        out == "."
        or name == out
        or name.startswith(f"{out}/")
        or out.startswith(f"{name}/")
    )


def _has_answers(out: Path) -> bool:
    """Whether a failed run there is worth resuming, or a failed study remembers its runs."""
    with suppress(
        OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError
    ):
        if (out / "study.json").is_file():
            return bool(json.loads((out / "study.json").read_bytes())["failed"])
        steps = (
            json.loads((out / "index.json").read_bytes())["steps"]
            if (out / "index.json").is_file()
            else ()
        )
        return any(name.endswith("/answers") for name in steps)
    return False


# Many cases.


def play(
    stage: Stage, folder: Path, name: str, seed: int
) -> tuple[Case, Outcome, list[str]]:
    rng, case = random.Random(f"{name} {seed}"), Case(folder / f"{name}-{seed}")
    for inner in ("user", "neighbour"):
        (case.folder / inner).mkdir(parents=True)
        plant(case.folder / inner, rng)
    GENERATORS[name][0](rng, stage, case)
    before = list_entries(case.folder)
    outcome = run_case(case, _call_anchorscope, stage.folder / "home")
    return case, outcome, find_faults(case, before, list_entries(case.folder), outcome)


def _call_anchorscope() -> None:
    import huggingface_hub.constants as hub

    from anchorscope.cli.main import main

    hub.HF_HUB_OFFLINE = False  # any request to the hub shall be seen
    main()


def run_many(stage: Stage, folder: Path, cases: int | None, seed: int) -> int:
    """Runs cases of all generators; failures are written as they come, and the last line sums up."""
    in_tests = sum(count for _, count in GENERATORS.values())
    counts = {
        name: round(count * (cases or in_tests) / in_tests)
        for name, (_, count) in GENERATORS.items()
    }
    failed, missing = 0, set(commands())
    for name, count in counts.items():
        for number in range(seed * 1_000_000, seed * 1_000_000 + count):
            case, _, faults = play(stage, folder, name, number)
            shutil.rmtree(case.folder)
            failed += bool(faults)
            missing -= {
                command
                for command in missing
                if case.words[: command.count(" ") + 1] == command.split()
            }
            for fault in faults[:4]:
                again = f"python tools/hostile.py --replay {name} {number}"
                sys.stdout.write(
                    f"{name} {number}: {fault[:600]}\n    {str(case.words)[:600]}\n    again: {again}\n"
                )
            sys.stdout.flush()
    called = f"no {', no '.join(sorted(missing))}" if missing else "every command"
    sys.stdout.write(f"{sum(counts.values())} cases, {called}; {failed} failed\n")
    return 1 if failed else 0


def replay(stage: Stage, folder: Path, name: str, seed: int) -> int:
    case, outcome, faults = play(stage, folder, name, seed)
    sys.stdout.write(
        f"anchorscope {case.words!r} in {case.user}\nexit code {outcome.code}\n"
    )
    sys.stdout.write(
        f"{outcome.stdout[-2000:]}\n{outcome.stderr[-4000:]}\n{faults or 'no fault'}\n"
    )
    return 1 if faults else 0


def build_stage(folder: Path) -> Stage:
    """Imports all that commands import, so that no child has to, and builds the stage in a child."""

    import anchorscope
    from anchorscope.report import comparison, detection, run_page

    for module in pkgutil.walk_packages(anchorscope.__path__, "anchorscope."):
        importlib.import_module(module.name)
    for family in FAMILIES:
        importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    for page in (run_page, comparison, detection):
        page.save_all = lambda figures, out, progress: progress.advance(len(figures))  # type: ignore[attr-defined]
    os.fsync = os.fstat  # type: ignore[assignment]  # no power is cut here
    child = os.fork()  # what computes here could not fork afterwards
    if child == 0:
        try:
            _fill_stage(folder)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the stage cannot be built: see above")
    return Stage(folder)


def _fill_stage(folder: Path) -> None:
    from transformers.utils import logging

    from anchorscope.detecting.detect import detect
    from anchorscope.pipeline import run_recipe
    from anchorscope.recipe import make_recipe
    from small_facts import quick_options, write_questions
    from tiny_models import byte_tokenizer, tiny_model
    from whole_runs import small_model

    logging.disable_progress_bar()
    for inner in ("home", "models"):
        (folder / inner).mkdir(parents=True)
    for family in FAMILIES:
        tiny_model(family).save_pretrained(folder / "models" / family)
        byte_tokenizer().save_pretrained(folder / "models" / family)
    model = small_model(folder / "models" / "llama")
    options = quick_options(
        write_questions(folder / "facts.jsonl"),
        model=str(model),
        folds=2,
        random_cuts=1,
    )
    run_recipe(make_recipe(options), folder / "run")
    run_recipe(
        make_recipe({**options, "seed": 1, "keep": ("states",)}), folder / "other"
    )
    few = {"folds": 2, "seeds": 1, "tosses": 0, "resamples": 100}
    detect(
        [folder / "other"],
        out=folder / "detectors",
        detectors=("probe",),
        bundles=("probe",),
        **few,
    )
