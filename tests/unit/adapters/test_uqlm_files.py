"""Results in uqlm's form, written, read and, where it is installed (`make adapters`), opened by uqlm itself."""

import json
import warnings
from dataclasses import dataclass

import pytest

from anchorscope.adapters.uqlm import SCORES, pairs_of, read_result, with_scores, write_result
from anchorscope.errors import UserError


@dataclass(frozen=True)
class Scored:
    """As a detector's `Score` is read."""

    truth_probability: float | None
    log_odds: float | None
    verdict: str


ASKED = {"data": {"prompts": ["Who wrote Dracula?", "Why?"], "responses": ["Bram Stoker", ""]}, "metadata": {}}
SCORED = (Scored(0.9, 2.2, "accept"), Scored(None, None, "abstain"))


def test_a_result_comes_back_with_new_columns(tmp_path):
    there = {
        "data": {"responses": ["Bram Stoker", ""], "prompts": ["Who wrote Dracula?", "Why?"], "noncontra": [1.0, 0.2]},
        "metadata": {"temperature": 1.0, "num_responses": 5},
    }
    place = tmp_path / "in.json"
    place.write_text(json.dumps(there), encoding="utf-8")
    result = read_result(place)
    assert pairs_of(result) == [("Who wrote Dracula?", "Bram Stoker"), ("Why?", "")]
    write_result(tmp_path / "out.json", with_scores(result, SCORED))
    found = read_result(tmp_path / "out.json")
    assert found["data"] == {
        **there["data"],
        SCORES[0]: [0.9, None],
        SCORES[1]: [2.2, None],
        SCORES[2]: ["accept", "abstain"],
    }
    assert found["metadata"] == {**there["metadata"], "anchorscope_columns": list(SCORES)}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in.json", "out.json"]
    with pytest.raises(ValueError, match="1 scores for 2"):
        with_scores(result, SCORED[:1])


def test_numbers_that_are_none_become_null(tmp_path):
    result = with_scores(ASKED, SCORED)
    result["data"]["other"] = [float("nan"), float("-inf")]
    write_result(tmp_path / "out.json", result)
    assert read_result(tmp_path / "out.json")["data"]["other"] == [None, None]


def test_uqlm_opens_it(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("uqlm", reason="uqlm is not installed in this environment (make adapters)")
        from uqlm.utils.results import UQResult
    write_result(tmp_path / "out.json", with_scores(ASKED, SCORED))
    result = UQResult(json.loads((tmp_path / "out.json").read_text(encoding="utf-8")))
    table = result.to_df()
    assert list(table["prompt"]) == ["Who wrote Dracula?", "Why?"]
    assert list(table["response"]) == ["Bram Stoker", ""]
    assert table["anchorscope"][0] == 0.9
    assert list(table["anchorscope_verdict"]) == ["accept", "abstain"]
    again = tmp_path / "again.json"
    again.write_text(json.dumps({"data": result.data, "metadata": result.metadata}), encoding="utf-8")
    assert pairs_of(read_result(again)) == [("Who wrote Dracula?", "Bram Stoker"), ("Why?", "")]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no json", "no JSON"),
        ("[]", "No prompts and responses"),
        ('{"data": {"prompts": ["a"]}}', "No prompts and responses"),
        ('{"data": {"prompts": ["a"], "responses": []}}', "1 prompts and 0 responses"),
        ('{"data": {"prompts": [[{"role": "user"}]], "responses": ["b"]}}', "is no text"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, told):
    place = tmp_path / "in.json"
    place.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=told) as error:
        read_result(place)
    assert "\n" not in str(error.value)
