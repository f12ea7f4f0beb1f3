"""Question files that nobody should have made: mutated rows in every container, damaged bytes, bombs, odd places."""

import csv
import gzip
import io
import json
import os
import random
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile.case import Case
from hostile.stage import Stage
from hostile.values import json_value, text

_NAMES = (
    "mine.csv",
    "mine.jsonl",
    "a,b.csv",
    "a b.tsv",
    "x=y.json",
    "noending",
    "ends.gz",
    "-dash.csv",
    "new\nline.csv",
    "ü.csv",
    "#1.csv",
    "popqa.parquet",
    "a\udce9.csv",
    "[red].csv",
    "a%20b.csv",
    "x" * 240,
    "..csv",
    "…",
    "\u202ecsv",
    "quote'.csv",
)
_LINE_ENDS = ("\r", "\r\n", "\n\r", "\u2028", "\x0b", "\x85", "\n\n\n", "\x00", "")
_ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "latin-1", "cp1252", "utf-7", "shift_jis")


def make(rng: random.Random, stage: Stage, case: Case) -> None:
    """A file, and a command that reads it."""
    case.memory_mb = 1000
    kind = rng.random()
    if kind < 0.08:
        path = _odd_place(rng, case)
    else:
        name = rng.choice(_NAMES) if rng.random() < 0.3 else "mine.csv"
        path = case.user / name
        with open(path, "wb") as file:
            file.write(_bomb(rng) if kind < 0.12 else _content(rng, stage))
    named = rng.choice((str(path), os.path.relpath(path, case.user), f"file:{path}", f"popqa={path}", f"nq={path}"))
    command = rng.random()
    if command < 0.75:
        case.words = [
            "data",
            *(["--json"] if rng.random() < 0.4 else []),
            "--on-bad-row",
            rng.choice(("skip", "skip", "fail")),
        ]
        case.words += [
            "--columns",
            rng.choice(("question=prompt", "answers=gold", "question=question", "id=question")),
        ] * (rng.random() < 0.1)
        case.words += ["--", named]
    elif command < 0.9:
        case.words = ["run", "--dry-run", "--model", str(stage.model), "--dataset", f"file:{path}"]
        case.words += ["--on-bad-row", rng.choice(("skip", "fail"))]
    else:
        bundle = stage.folder / "detectors" / "probe"
        case.words = ["score", str(path), "--detector", str(bundle), "--model", str(stage.model), "--no-generate"]


def _content(rng: random.Random, stage: Stage) -> bytes:
    """Rows of one of the known formats, changed; or the bytes of a good file, changed."""
    content = _container(rng, _rows(rng)) if rng.random() < 0.55 else rng.choice(stage.samples).read_bytes()
    if rng.random() < 0.5:
        for _ in range(rng.choice((1, 1, 2, 5))):
            content = rng.choice(_DAMAGE)(rng, content)
    return content


def _rows(rng: random.Random) -> list[Any]:
    from small_facts import rows

    found: list[Any] = [dict(row) for row in rng.choices(rows(), k=rng.choice((1, 3, 40)))]
    for _ in range(rng.choice((0, 1, 3))):
        number = rng.randrange(len(found))
        row = found[number]
        if not isinstance(row, dict) or not row or rng.random() < 0.1:
            found[number] = json_value(rng)
            continue
        name = rng.choice(list(row))
        change = rng.random()
        if change < 0.6:
            row[name] = json_value(rng)
        elif change < 0.75:
            row[name] = text(rng)
        elif change < 0.85:
            row.pop(name)
        elif change < 0.95:
            row[text(rng)] = json_value(rng)
        else:
            row |= {f"column {extra}": extra for extra in range(rng.choice((100, 3000)))}
    return found


def _container(rng: random.Random, rows: list[Any]) -> bytes:
    import polars as pl

    kind = rng.randrange(5)
    if kind == 0:
        return "".join(json.dumps(row, ensure_ascii=rng.random() < 0.5) + "\n" for row in rows).encode(
            errors="surrogatepass"
        )
    if kind == 1:
        return json.dumps(rng.choice((rows, {"data": rows}, {"Data": rows})), indent=rng.choice((None, 1))).encode()
    tables = [{str(name): value for name, value in row.items()} for row in rows if isinstance(row, dict)] or [
        {"question": "Who?"}
    ]
    if kind < 4:
        wide = {name: None for row in tables for name in row}
        return _table([{**wide, **row} for row in tables], rng.choice(",\t;|"), rng.choice(("\n", "\r\n")))
    buffer = io.BytesIO()
    try:
        frame = pl.DataFrame(tables, strict=False, infer_schema_length=None)
        frame.write_parquet(
            buffer, compression=rng.choice(("zstd", "gzip", "uncompressed")), row_group_size=rng.choice((None, 1))
        )
    except Exception:  # not every row is one that a table can hold
        names = ("question", "answers")
        frame = pl.DataFrame({name: [ascii(row.get(name))[:1000] for row in tables] for name in names})
        frame.write_parquet(buffer := io.BytesIO())
    return buffer.getvalue()


def _table(rows: list[dict[str, Any]], delimiter: str, end: str) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator=end)
    writer.writeheader()
    for row in rows:
        writer.writerow({name: json.dumps(cell) if isinstance(cell, list) else cell for name, cell in row.items()})
    return file.getvalue().encode(errors="surrogatepass")


def _flip(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 8))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _splice(rng: random.Random, content: bytes) -> bytes:
    """A piece taken out, doubled, put in the wrong place or many times."""
    begin, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    piece, rest = content[begin:end], content[:begin] + content[end:]
    place = rng.randrange(len(rest) + 1)
    times = rng.choice((0, 2, 1, 200 if len(piece) < 5000 else 3))
    return rest[:place] + piece * times + rest[place:]


def _put_in(rng: random.Random, content: bytes) -> bytes:
    place = rng.randrange(len(content) + 1)
    odd = (
        b"\0",
        b"\0" * 5000,
        b'"',
        b"\n",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"9" * 100_000,
        b"1e999999",
        b"NaN",
        b"-Infinity",
        b'"\\ud800"',
        b"\xed\xa0\x80",
        b"," * 20_000,
        b"\\" * 99,
        b"x" * 3_000_000,
        b"PAR1",
    )
    return content[:place] + rng.choice(odd) + content[place:]


def _line_ends(rng: random.Random, content: bytes) -> bytes:
    return content.replace(b"\n", rng.choice(_LINE_ENDS).encode())


def _encoding(rng: random.Random, content: bytes) -> bytes:
    return content.decode(errors="replace").encode(rng.choice(_ENCODINGS), errors="replace")


def _gzip(rng: random.Random, content: bytes) -> bytes:
    """Packed well, twice, cut, with odd flags, with rubbish behind, or several in a row."""
    packed = gzip.compress(content, 1)
    kind = rng.randrange(8)
    if kind == 0:
        return packed
    if kind == 1:
        return gzip.compress(packed, 1)
    if kind == 2:
        return packed[: rng.randrange(len(packed))]
    if kind == 3:
        return packed[:3] + bytes([rng.randrange(256)]) + packed[4:]
    if kind == 4:
        return packed + rng.choice((b"rubbish", b"\0" * 100, b"\x1f\x8b", packed))
    if kind == 5:
        return packed[:2] + bytes([rng.randrange(256)]) + packed[3:]
    if kind == 6:
        return _flip(rng, packed)
    return zlib.compress(content)


_DAMAGE: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip,
    _flip,
    _splice,
    _splice,
    _put_in,
    _put_in,
    _line_ends,
    _encoding,
    _gzip,
    _gzip,
    lambda rng, content: content[: rng.randrange(len(content) + 1)],
)


def _bomb(rng: random.Random) -> bytes:
    """Small on the disk, large inside."""
    import polars as pl

    kind = rng.randrange(9)
    if kind == 0:
        return gzip.compress(b"question,answers\n" + b"x\n" * rng.choice((300_000, 5_000_000)), 1)
    if kind == 1:
        return gzip.compress(b"{}\n" * rng.choice((300_000, 3_000_000)), 1)
    if kind == 2:
        return gzip.compress(b"\0" * rng.choice((10, 100, 200)) * 1_000_000, 1)
    if kind == 3:
        return gzip.compress(gzip.compress(b"a" * 50_000_000, 1), 1)
    if kind == 4:
        return b'{"question": "' + b"why " * 2_400_000 + b'?", "answers": ["a"]}\n'
    if kind == 5:
        return gzip.compress(b'{"question": "Who?", "answers": [' + b'"a",' * 2_000_000 + b'"b"]}\n', 1)
    if kind == 6:
        return gzip.compress(b"question,answers\n" + b'"' + b"a" * 50_000_000, 1)
    frame = {
        7: {"question": ["why " * 15_000_000], "answers": ["a"]},
        8: {"question": ["why?"] * 2_000_000, "answers": [None] * 2_000_000},
    }[kind]
    buffer = io.BytesIO()
    pl.DataFrame(frame).write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _odd_place(rng: random.Random, case: Case) -> Path:
    """A name that stands for no good file."""
    path = case.user / rng.choice(("mine.csv", "mine.parquet"))
    kind = rng.randrange(12)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        with socket.socket(socket.AF_UNIX) as server:
            here = os.getcwd()
            os.chdir(path.parent)  # an address has at most 107 letters
            server.bind(path.name)
            os.chdir(here)
    elif kind == 2:
        path.mkdir()
    elif kind < 8:
        loop = path.name
        path.symlink_to(("/dev/zero", "/dev/null", loop, "nowhere", "/dev/stdin")[kind - 3])
    elif kind == 8:
        return Path("/dev/zero")
    elif kind == 9:
        return Path("~nobody/x.csv")
    elif kind == 10:
        return case.user / ("x" * 5000)
    else:
        case.file("mine.csv", "question,answers\nWho?,a\n")
        return path / "below.csv"
    return path
