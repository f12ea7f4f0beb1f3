"""A file of uqlm's results in, the same with a detector's scores out."""

from anchorscope.adapters.uqlm import SCORES, read_result, score_file, write_result
from anchorscope.detectors.detector import Detector

QUESTIONS = ["Who wrote Dracula?", "What is the capital of Peru?"]


def test_a_file_is_scored(bundle, tiny_llama, tmp_path):
    data = {
        "prompts": QUESTIONS,
        "responses": ["Bram Stoker\n\nHe was Irish.", " "],
        "min_probability": [0.5, 0.1],
    }
    write_result(tmp_path / "in.json", {"data": data, "metadata": None})
    loaded = {"model": tiny_llama.model, "tokenizer": tiny_llama.tokenizer}
    score_file(bundle, tmp_path / "in.json", tmp_path / "out.json", **loaded)
    found = read_result(tmp_path / "out.json")["data"]
    assert {name: found[name] for name in data} == data
    wanted = Detector.load(bundle, **loaded).score(QUESTIONS[0], "Bram Stoker")
    first = [found[name][0] for name in SCORES]
    assert first == [wanted.truth_probability, wanted.log_odds, wanted.verdict]
    assert [found[name][1] for name in SCORES] == [None, None, "unsure"]
