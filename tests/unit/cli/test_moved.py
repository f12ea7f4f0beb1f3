"""Commands and options of earlier versions say in one line what to do instead."""

import re

import pytest

from anchorscope.cli.main import GONE
from commands import invoke
from repo import ROOT


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("words", [(), ("--help",), ("--seed", "-1")])
def test_what_is_gone_names_what_to_do(gone: str, words: tuple[str, ...]) -> None:
    is_option = "--" in gone
    given = (*gone.split(), "1") if is_option else (*gone.split(), *words)
    result = invoke(*given)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {gone} is gone: ")
    for script in re.findall(r"python (\S+\.py)", line):
        assert (ROOT / script).is_file()
