"""Scores beside those of uqlm: its results in, the same with the detector's columns out, as files.

json.dump({"data": result.data, "metadata": result.metadata}, file)  # in uqlm's environment
score_file("runs/mine/detectors/anchor", "in.json", "out.json")      # in ours
UQResult(json.load(file)).to_df()                                    # there again, with the columns `uq_result.SCORES`
"""

from pathlib import Path
from typing import Any

from anchorscope.adapters.prompts import answer_of_text
from anchorscope.adapters.uq_result import pairs_of, read_result, with_scores, write_result
from anchorscope.detectors.detector import Detector


def score_file(detector: str | Path | Detector, source: str | Path, out: str | Path, **loading: Any) -> None:
    """Scores the prompts and responses of a result and writes it with the detector's columns.

    A prompt is a question: it is asked in the detector's own prompt, and the response's first line is scored as if it
    had been given there. `loading` goes to `Detector.load`.
    """
    result = read_result(source)
    ready = detector if isinstance(detector, Detector) else Detector.load(detector, **loading)
    pairs = [(question, answer_of_text(answer)) for question, answer in pairs_of(result, str(source))]
    write_result(out, with_scores(result, ready.score_many(pairs)))
