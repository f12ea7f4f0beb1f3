"""Both benchmarks on a machine with few libraries, as a rented one is: speeds, and equal bits through workers."""

import json
import subprocess
import sys

import pytest

from anchorscope.bench.scale_passes import ANSWERS, CLEAN_STATES, KNOCKOUT
from anchorscope.bench.table import render
from repo import SOURCES

SRC = SOURCES
_BARE = """
import sys
for name in ("typer", "click", "polars", "pydantic", "rich", "jinja2", "matplotlib", "platformdirs",
             "tomli_w", "wordfreq", "gguf", "pandas", "ray"):
    sys.modules[name] = None  # importing it fails
"""
_BOTH = """
import sys
from anchorscope.bench.__main__ import main
words, speeds, scale = (part.split() for part in sys.argv[1:])
sys.exit(main([*words, *speeds]) or main([*words, *scale]))
"""


def test_both_benchmarks_on_a_machine_with_few_libraries(save_tiny, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(_BARE, encoding="utf-8")  # workers are as bare as this process
    both = f"--model {save_tiny('llama')} --device cpu --items 6 --repeats 1 --shared 6 --own 13 --json"
    speeds = "--seconds 0.01 --work knockout --ways anchorscope,plain --out speeds.json"
    scale = "--scale --executors local,processes:1 --new-tokens 3 --batch-tokens 60"
    ran = subprocess.run(
        [sys.executable, "-c", _BOTH, both, speeds, scale],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{SRC}", "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    first, end = json.JSONDecoder().raw_decode(ran.stdout)
    assert [row["way"] for row in first["rows"]] == ["anchorscope", "plain"]
    assert json.loads((tmp_path / "speeds.json").read_text()) == first
    assert "knockout: plain, repeat 1 of 1" in ran.stderr
    _check_scale(json.loads(ran.stdout[end:]))


def _check_scale(record: dict[str, object]) -> None:
    """Workers gave the bits of this process, and every number of their table is there."""
    assert [(row["executor"], row["pass"]) for row in record["rows"]] == [
        (executor, name) for executor in ("local", "processes:1") for name in (ANSWERS, CLEAN_STATES, KNOCKOUT)
    ]
    local, through = record["rows"][:3], record["rows"][3:]
    assert [row["sha256"] for row in local] == [row["sha256"] for row in through]
    for row in through:
        assert row["bytes_received"] > 0
        assert 0 <= row["writing_seconds"] < 60
        assert row["shards"] > 1
        assert 0 <= row["coordinator_seconds"] <= row["seconds"]
        assert row["seconds_per_shard"] == pytest.approx(row["seconds"] / row["shards"])
    assert [one["executor"] for one in record["executors"]] == ["local", "processes:1"]
    assert record["executors"][1]["load_seconds"] > 0
    assert record["ratios"].keys() == {"processes:1 over local"}
    assert "the bits of all executors are equal" in render(record)
    assert "ms per MB" in render(record)
