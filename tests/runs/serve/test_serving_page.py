"""The example of docs/serving.md, against a real service; and what the page says of the command's limits."""

import re

import pytest

from anchorscope.serve.limits import Limits
from repo import DOCS
from running import Running

PAGE = (DOCS / "serving.md").read_text(encoding="utf-8")


def test_the_example_runs(served: Running, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(compile(example.replace("http://127.0.0.1:8642", served.address), "docs/serving.md", "exec"), {})
    assert re.search(r" 0\.\d+\n$", capsys.readouterr().out)


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    assert f"| {limits.items}, {limits.item_tokens:,} |" in PAGE
    assert f"| {limits.answer_tokens} |" in PAGE
    assert f"| {limits.body_bytes // 2**20} MiB, {limits.requests} |" in PAGE
    assert f"| {limits.deadline:g}, {limits.read_seconds:g} |" in PAGE
