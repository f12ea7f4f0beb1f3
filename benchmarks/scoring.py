"""How fast answers are scored, against a clean pass over the same items.

    python benchmarks/scoring.py [--items 200] [--json]

Detectors with made-up weights (speed does not depend on them) score questions of the atlas with their first accepted
answer, from text to verdict. The clean pass is given tokens, and runs them through all layers once. Ways take turns;
rates are those of the median turn, by processor time on a CPU (others may be using it), by the clock on a GPU.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import torch

from anchorscope.answers.template import make_template
from anchorscope.datasets.catalog import open_dataset, parse_spec
from anchorscope.datasets.question import Question
from anchorscope.detectors.bundle import Card, DetectorSetting, TrainedDetector
from anchorscope.detectors.detector import Detector
from anchorscope.detectors.features import CLEAN, CONFIDENCE
from anchorscope.detectors.fitted import LinearProbe, WeightedSum
from anchorscope.engine.sequences import SITES
from anchorscope.execute.run_passes import run_states
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import choose_device, choose_dtype
from anchorscope.models.loading import load as load_model
from anchorscope.progress import Silent
from anchorscope.stats.calibration import Calibration
from reporting import Parser, Report, at_least, machine, run_script

SITE = "mlp"
TARGETS = {"one pass": 0.8, "one pass, with confidence": 0.8}
"""The least share of a clean pass's rate."""


def detector(lm: LanguageModel, columns: tuple[str, ...], layer: int) -> Detector:
    """A probe and columns, added up."""
    probe = LinearProbe((CLEAN, SITE, layer), torch.ones(lm.d_model), 0.0)
    fitted = WeightedSum((probe,), (1.0,), columns, (1.0,) * len(columns), 0.0)
    template = make_template("few-shot", lm.tokenizer, lm.needs_bos)
    setting = DetectorSetting.of(vars(lm.identity()), template, "final")
    return Detector(
        TrainedDetector("made up", fitted, Calibration(1.0, 0.0, 0.5), setting, Card()),
        lm,
    )


def clean_pass(scorer: Detector, questions: list[Question]) -> Callable[[], object]:
    """The same items, tokens at hand, through all layers."""
    session = scorer.session
    items = session.items(questions)
    prefix = items[0].located.input_ids[: items[0].located.prefix_length]
    sequences = [item.sequence(("final",)) for item in items]
    work = session.planner.states("clean", sequences, prefix)
    work = replace(work, keep=(((0, SITES.index(SITE)),),))
    return lambda: run_states(session.executor, work, Silent())


def measure(given: argparse.Namespace) -> Report:
    """All ways in turn."""
    device = choose_device(given.device)
    lm = load_model(given.model, choose_dtype("auto", device), device)
    questions = [
        replace(question, model_answer=question.answers[0])
        for question in open_dataset(parse_spec("atlas"))
    ]
    questions = questions[: given.items]
    layer = 2 * lm.n_layers // 3
    one = detector(lm, (), layer)
    sure = detector(lm, CONFIDENCE, layer)
    ways: dict[str, Callable[[], object]] = {
        "clean pass": clean_pass(one, questions),
        "one pass": partial(one.score_questions, questions),
        "one pass, with confidence": partial(sure.score_questions, questions),
    }
    clock = time.perf_counter if lm.device.type == "cuda" else time.process_time
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(given.repeats + 1):
        for name, run in ways.items():
            began = clock()
            run()
            if turn:  # the first is for warming up
                taken[name].append(clock() - began)
    seconds = {name: median(found) for name, found in taken.items()}
    rows = [
        {
            "way": name,
            "items_per_s": len(questions) / spent,
            "of_clean_pass": seconds["clean pass"] / spent,
            "target": TARGETS.get(name),
        }
        for name, spent in seconds.items()
    ]
    facts = {
        "model": lm.name,
        "device": str(lm.device),
        "items": len(questions),
        "layer": layer,
        "machine": machine(lm.device),
    }
    columns = {
        "way": "{}",
        "items_per_s": "{:.3g}",
        "of_clean_pass": "{:.2f}",
        "target": "{:.2f}",
    }
    return Report(facts, columns, rows)


def main() -> int:
    """The program."""
    parser = Parser(__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--items", type=at_least(1), default=200)
    parser.add_argument("--repeats", type=at_least(1), default=3)
    return run_script(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
