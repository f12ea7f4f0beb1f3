"""The scorer inside inspect_ai itself, and its logs read back."""

import subprocess
import sys
from pathlib import Path

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate

from anchorscope.datasets.catalog import DatasetSpec, open_dataset
from anchorscope_integrations.inspect_ai import truth
from running import Running

pytestmark = pytest.mark.filterwarnings("ignore")  # the library's own


def said(text: str) -> ModelOutput:
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = ModelUsage(input_tokens=5, output_tokens=2, total_tokens=7)
    return output


def test_answers_are_scored_by_the_service_and_the_log_is_a_question_file(
    service: Running, tmp_path: Path
) -> None:
    questions = [
        Sample(input="Who wrote Dracula?", target="Bram Stoker", id="dracula"),
        Sample(
            input="What is the capital of Peru?", target=["Lima", "Ciudad"], id="peru"
        ),
        Sample(input="Who wrote Emma?", target="Jane Austen", id="emma"),
    ]
    task = Task(
        dataset=MemoryDataset(questions),
        solver=generate(),
        scorer=[match(), truth(url=service.address)],
    )
    model = get_model(
        "mockllm/model",
        custom_outputs=[said("Bram Stoker\nof Ireland"), said("Quito"), said("")],
    )
    (log,) = eval(
        task, model=model, log_dir=str(tmp_path), display="none", max_samples=1
    )
    assert log.status == "success", log.error
    assert log.samples is not None
    scores = {sample.id: (sample.scores or {})["truth"] for sample in log.samples}
    wanted = service.score(("Who wrote Dracula?", "Bram Stoker")).json()["items"][0]
    assert scores["dracula"].value == pytest.approx(
        wanted["truth_probability"], abs=1e-5
    )
    assert scores["dracula"].answer == "Bram Stoker"
    assert scores["dracula"].metadata["sha256"] == "a" * 64
    assert scores["emma"].metadata["truth_probability"] is None
    found = {
        one.item_id: one
        for one in open_dataset(DatasetSpec("log", next(tmp_path.glob("*.eval"))))
    }
    assert found["dracula"].model_answer == "Bram Stoker"
    assert found["peru"].answers == ("Lima", "Ciudad")
    assert found["peru"].truthful is False
    assert found["dracula"].metadata["score.truth"] == scores["dracula"].value


def test_the_command_of_inspect_ai_finds_the_scorer(
    service: Running, tmp_path: Path
) -> None:
    """The package is installed, so `anchorscope/truth` is a name that inspect_ai can look up."""
    questions = [Sample(input="Who wrote Dracula?", target="Bram Stoker", id=1)]
    task = Task(dataset=MemoryDataset(questions), solver=generate())
    model = get_model("mockllm/model", custom_outputs=[said("Bram Stoker")])
    (log,) = eval(task, model=model, log_dir=str(tmp_path), display="none")
    scored = tmp_path / "scored.eval"
    command = Path(sys.executable).with_name("inspect")
    arguments = ["--scorer", "anchorscope/truth", "-S", f"url={service.address}"]
    subprocess.run(
        [command, "score", log.location, *arguments, "--output-file", scored],
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    (sample,) = read_eval_log(str(scored)).samples or ()
    wanted = service.score(("Who wrote Dracula?", "Bram Stoker")).json()["items"][0]
    assert sample.scores is not None
    assert sample.scores["truth"].value == pytest.approx(
        wanted["truth_probability"], abs=1e-5
    )
