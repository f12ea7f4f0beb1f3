"""`anchorscope bench`: the same options as the bare door, the table or one JSON object."""

import json
from pathlib import Path

import pytest

from anchorscope.bench import measuring
from commands import invoke


@pytest.fixture
def quick(save_tiny, monkeypatch) -> list[str]:
    monkeypatch.setitem(
        measuring._MATMUL_SIZE, "cpu", 256
    )  # the machine's peak need not be exact here
    options = "--device cpu --items 4 --repeats 1 --seconds 0.01 --shared 6 --own 13 --work knockout"
    return [
        "bench",
        "--model",
        str(save_tiny("llama")),
        *options.split(),
        "--ways",
        "anchorscope,plain-batched",
    ]


def test_json_is_one_object_and_a_file(quick, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    result = invoke(*quick, "--json", "--out", str(out))
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert [(row["way"], row["max_difference"] < 1e-5) for row in record["rows"]] == [
        ("anchorscope", True),
        ("plain-batched", True),
    ]
    assert json.loads(out.read_text()) == record
    assert "repeat 1 of 1" in result.stderr


def test_the_table_goes_to_standard_output(quick) -> None:
    result = invoke(*quick, "--quiet")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert next(line for line in lines if line.startswith("work")).split()[:3] == [
        "work",
        "way",
        "done",
    ]
    assert any(line.startswith("knockout  plain-batched") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ways", "plane"], "Unknown way 'plane'; allowed: "),
        (["--repeats", "0"], "--repeats 0 is too small; allowed: 1 or more."),
        (["--dtype", "int4"], "Unknown dtype 'int4'"),
        (
            ["--out", "no/such/x.json"],
            "--out no/such/x.json is in a folder that does not exist",
        ),
        (
            ["--out", __file__],
            f"--out {__file__} is there already; choose another name",
        ),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    result = invoke("bench", *arguments, "--quiet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1
