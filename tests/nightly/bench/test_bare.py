"""The benchmark on a machine with few libraries, as a rented one is."""

import json
import subprocess
import sys

from repo import SOURCES

_BARE = """
import sys
for name in ("typer", "click", "polars", "pydantic", "rich", "jinja2", "matplotlib", "platformdirs",
             "tomli_w", "wordfreq", "gguf", "pandas", "ray"):
    sys.modules[name] = None  # importing it fails
"""


def test_the_benchmark_on_a_machine_with_few_libraries(save_tiny, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(_BARE, encoding="utf-8")
    options = (
        f"--model {save_tiny('llama')} --device cpu --items 6 --repeats 1 --shared 6 --own 13 --json "
        "--seconds 0.01 --work knockout --ways anchorscope,plain --out speeds.json"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "anchorscope.bench", *options.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{SOURCES}", "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    record = json.loads(ran.stdout)
    assert [row["way"] for row in record["rows"]] == ["anchorscope", "plain"]
    assert json.loads((tmp_path / "speeds.json").read_text()) == record
    assert "knockout: plain, repeat 1 of 1" in ran.stderr
