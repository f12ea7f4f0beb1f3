"""How fast answers are scored, against a clean pass over the same items: python benchmarks/scoring.py [--items 200]

Detectors with made-up weights (speed does not depend on them) score questions of the atlas with their first accepted
answer, from text to verdict. The clean pass is given tokens, and runs them through all layers once. Ways take turns;
rates are those of the median turn, by processor time on a CPU (others may be using it), by the clock on a GPU.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
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

SITE = "mlp"
TARGETS = {"one pass": 0.8, "one pass, with confidence": 0.8}
"""The least share of a clean pass's rate."""


def detector(lm: LanguageModel, columns: tuple[str, ...], layer: int) -> Detector:
    """A probe and columns, added up."""
    probe = LinearProbe((CLEAN, SITE, layer), torch.ones(lm.d_model), 0.0)
    fitted = WeightedSum((probe,), (1.0,), columns, (1.0,) * len(columns), 0.0)
    template = make_template("few-shot", lm.tokenizer, lm.needs_bos)
    setting = DetectorSetting.of(vars(lm.identity()), template, "final")
    return Detector(TrainedDetector("made up", fitted, Calibration(1.0, 0.0, 0.5), setting, Card()), lm)


def clean_pass(scorer: Detector, questions: list[Question]) -> Callable[[], object]:
    """The same items, tokens at hand, through all layers."""
    session = scorer.session
    items = session.items(questions)
    prefix = items[0].located.input_ids[: items[0].located.prefix_length]
    sequences = [item.sequence(("final",)) for item in items]
    work = session.planner.states("clean", sequences, prefix)
    work = replace(work, keep=(((0, SITES.index(SITE)),),))
    return lambda: run_states(session.executor, work, Silent())


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    device = choose_device(given.device)
    lm = load_model(given.model, choose_dtype("auto", device), device)
    questions = [replace(one, model_answer=one.answers[0]) for one in open_dataset(parse_spec("atlas"))][: given.items]
    layer = 2 * lm.n_layers // 3
    one, sure = (detector(lm, columns, layer) for columns in ((), CONFIDENCE))
    scored = dict(zip(TARGETS, (one, sure), strict=True))
    ways = {"clean pass": clean_pass(one, questions)}
    ways |= {name: (lambda who=who: who.score_questions(questions)) for name, who in scored.items()}
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
    record = {
        "model": lm.name,
        "device": str(lm.device),
        "threads": torch.get_num_threads(),
        "items": len(questions),
        "layer": layer,
        "rows": rows,
    }
    sys.stdout.write(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
