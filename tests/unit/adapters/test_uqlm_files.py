"""Results in uqlm's form, written, read and, where it is installed (`make adapters`), opened by uqlm itself."""

import json
import warnings
from dataclasses import dataclass

import pytest

from anchorscope.adapters.uqlm import pairs_of, read_result, with_scores, write_result
from anchorscope.errors import UserError


@dataclass(frozen=True)
class Scored:
    truth_probability: float | None
    log_odds: float | None
    verdict: str


ASKED = {
    "data": {
        "prompts": ["Who wrote Dracula?", "Why?"],
        "responses": ["Bram Stoker", ""],
    },
    "metadata": {},
}
SCORED = (Scored(0.9, 2.2, "true"), Scored(None, None, "unsure"))


def test_uqlm_opens_it(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(
            "uqlm", reason="uqlm is not installed in this environment (make adapters)"
        )
        from uqlm.utils.results import UQResult
    write_result(tmp_path / "out.json", with_scores(ASKED, SCORED))
    result = UQResult(json.loads((tmp_path / "out.json").read_text(encoding="utf-8")))
    table = result.to_df()
    assert list(table["prompt"]) == ["Who wrote Dracula?", "Why?"]
    assert list(table["response"]) == ["Bram Stoker", ""]
    assert table["anchorscope"][0] == 0.9
    assert list(table["anchorscope_verdict"]) == ["true", "unsure"]
    again = tmp_path / "again.json"
    again.write_text(
        json.dumps({"data": result.data, "metadata": result.metadata}), encoding="utf-8"
    )
    assert pairs_of(read_result(again)) == [
        ("Who wrote Dracula?", "Bram Stoker"),
        ("Why?", ""),
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no json", "no JSON"),
        ("[]", "No prompts and responses"),
        ('{"data": {"prompts": ["a"]}}', "No prompts and responses"),
        ('{"data": {"prompts": ["a"], "responses": []}}', "1 prompts and 0 responses"),
        (
            '{"data": {"prompts": [[{"role": "user"}]], "responses": ["b"]}}',
            "is no text",
        ),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, content, told):
    place = tmp_path / "in.json"
    place.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=told):
        read_result(place)
