"""Values that break programs: numbers, texts, JSON values; drawn from, and now and then made long."""

import random
from typing import Any

NUMBERS = (
    "0", "-1", "1", "2", "31", "-0", "1e3", "1e308", "1e999", "nan", "inf", "-inf", "0.5", "0x10", "1_000", "٣", "１２",
    "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551616", "100000000", "9" * 300,
    "9" * 5000,
    "-" + "9" * 300, "1,2", "1;2", " 7", "7 ", "+7", "007", "1e-320", "½", "²", "true", "None", "",
)  # fmt: skip
INTEGERS = (
    "0", "1", "2", "3", "5", "19", "20", "21", "29", "30", "59", "60", "100", "119", "120", "512", "513",
    "1000", "65535",
    "65536", "1000000", "100000000", "2147483647", "2147483648", "4294967296", "9223372036854775807",
    "9223372036854775808",
    "9" * 30, "9" * 300, "-1", "-2147483649",
)  # fmt: skip
TEXTS = (
    "", " ", "\t", "\n", "a\nb", "\r", "\x00", "\x1b[31mred", "[bold]x[/bold]", "[/]", "{}", "{0}", "%s",
    "%n%n", "$(id)",
    "`id`", "'", '"', "\\", "--", "-", "-h", "../..", "/", "//", ".", "~", "~nobody/x", "~root", "/dev/null",
    "/dev/full",
    "/proc/self/mem", "/proc/self/cwd", "file:", "file:.", "file:/", "popqa=", "nq=/dev/null", "=", "a=b", ",",
    ",,,", "a,b",
    "atlas,atlas", "all", "ALL", "auto", "cpu", "cuda:99", "cuda:-1", "none", "None", "null", "true", "é", "é", "ß",
    "İ", "数学", "🚁", "👩‍👩‍👧", "\u200b", "\u202e", "\ufeff", "\ud800", "\udcff", "a" * 300, "a" * 5000,
    "x/" * 600, "a" * 70_000,
    "http://localhost/x", "shape:", "shape:llama", "shape:nothing", "con", "0", "-1", "1e9", "smollm2-135m",
    "meta/../x",
)  # fmt: skip
JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 1.5, -0.0, 1e308, float("nan"), float("inf"), 10**7, 2**31, 2**63,
    2**64, 10**30,
    10**300, "", " ", "0", "12", "a", "a" * 300, "\ud800", "\x00", "\u202e", "../../x", "/etc/passwd",
    "{{ 1 }}", [], [[]], [1],
    ["a"], [None], {}, {"a": 1}, {"": None}, [1, "a", None, {}], "null", "None", "other/repo",
    "org/kernel@main", [[[[[[1]]]]]],
)  # fmt: skip


def json_value(rng: random.Random) -> Any:
    """One of the values, a deep one, or a long one."""
    kind = rng.random()
    if kind < 0.04:
        deep: Any = 1
        for _ in range(rng.choice((50, 500, 900))):  # what `json.dumps` can still write
            deep = [deep] if rng.random() < 0.7 else {"a": deep}
        return deep
    if kind < 0.07:
        return "long " * rng.choice((1000, 30_000, 400_000))
    if kind < 0.1:
        return [rng.choice(JSON_VALUES)] * rng.choice((100, 20_000))
    return rng.choice(JSON_VALUES)


def text(rng: random.Random) -> str:
    """One of the texts, or letters from all over Unicode."""
    if rng.random() < 0.2:
        ranges = ((1, 0x250), (0x300, 0x2FFF), (0xE000, 0x1F9FF))
        return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(1, 30)))
    return rng.choice(TEXTS)


def on_command_line(words: list[str]) -> list[str]:
    """The words as a shell can pass them: no NUL, and half a surrogate pair only where it stands for a byte."""
    return [
        word.replace("\x00", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape") for word in words
    ]
