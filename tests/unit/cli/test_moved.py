"""Commands of earlier versions say in one line where their work is done now."""

import pytest

from anchorscope.cli.main import MOVED
from commands import invoke
from repo import ROOT


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("words", [(), ("--help",), ("--seed", "-1")])
def test_a_moved_command_names_the_script(name: str, words: tuple[str, ...]) -> None:
    result = invoke(name, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {name!r} is no command any more.")
    script = line.split("python ")[1].split()[0]
    assert (ROOT / script).is_file()
