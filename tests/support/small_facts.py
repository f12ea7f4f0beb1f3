"""A small question file with supplied answers, and the recipe of a quick run on it: what the tests of whole runs share.

A random model's own answers are garbage, so the file brings its own, with labels: 40 true and 40 false ones in two
relations. The end of an answer tells a little about its label, so that probes find something. Beside them stand rows
that must not be used: one of an example's subject, one without an answer, and two more true ones than false ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

SYLLABLES = (
    "ar",
    "bel",
    "cor",
    "dun",
    "esh",
    "fal",
    "gor",
    "hul",
    "iva",
    "jor",
    "kel",
    "lum",
    "mor",
    "nia",
    "oru",
)
BEGINNINGS, TRUE_ENDS, FALSE_ENDS = (
    ("Bo", "Mira", "Lun", "Zet"),
    ("la", "ka.", "na"),
    ("ox", "ux", "ix."),
)


def rows() -> list[dict[str, Any]]:
    """The rows of the file: 80 that are used, then four that are not."""
    rng = np.random.default_rng(0)
    found = []
    for index in range(82):
        truthful = (index // 2) % 2 == 0 or index >= 80
        ends = TRUE_ENDS if truthful == (rng.random() < 0.85) else FALSE_ENDS
        place = f"{SYLLABLES[index // 15].title()}{SYLLABLES[index % 15]}"
        relation = ("capital", "anthem")[index % 2]
        text = ("What is the capital of {}?", "Which anthem does {} sing?")[
            index % 2
        ].format(place)
        said = "".join(
            str(rng.choice(parts)) for parts in (BEGINNINGS, ("", "ve", " New "), ends)
        )
        found.append(
            {
                "id": f"item-{index}",
                "question": text,
                "answers": ["Never"],
                "subject": place,
                "relation": relation,
                "property_words": [relation],
                "model_answer": said,
                "truthful": truthful,
                "popularity": index,
            }
        )
    found[4]["subject"], found[4]["question"] = (
        found[8]["subject"],
        f"What is the capital near {found[8]['subject']}?",
    )
    common = {
        "answers": ["Tokyo"],
        "relation": "capital",
        "property_words": ["capital"],
    }
    found.append(
        {
            **common,
            "id": "few-shot",
            "question": "What is the old capital of Japan?",
            "subject": "Japan",
            "model_answer": "Kyoto",
            "truthful": True,
        }
    )
    found.append(
        {
            **common,
            "id": "empty",
            "question": "What is the capital of Nowhere?",
            "subject": "Nowhere",
            "model_answer": " ",
            "truthful": False,
        }
    )
    return found


def unlabelled(count: int) -> list[dict[str, Any]]:
    """The first rows without their labels, so that nobody knows them beforehand: every third accepts its answer."""
    without = [
        {name: value for name, value in row.items() if name != "truthful"}
        for row in rows()[:count]
    ]
    return [
        row | {"answers": ["Never" if number % 3 else row["model_answer"]]}
        for number, row in enumerate(without)
    ]


def write_questions(path: Path, chosen: list[dict[str, Any]] | None = None) -> Path:
    path.write_text(
        "".join(
            json.dumps(row) + "\n" for row in (rows() if chosen is None else chosen)
        ),
        encoding="utf-8",
    )
    return path


def quick_options(questions: Path, **options: Any) -> dict[str, Any]:
    """A recipe that runs in a few seconds."""
    quick = {
        "datasets": (f"file:{questions}",),
        "bootstrap": 100,
        "folds": 3,
        "device": "cpu",
        "dtype": "float32",
        "random_cuts": 2,
        "directions": 4,
        "report": False,
    }
    return {**quick, **options}


def liven(model: Any) -> None:
    """Makes a tiny model attend more sharply: in the one that tests build, the question hardly reaches the answer."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                parameter.mul_(3)
            elif name.endswith(("v_proj.weight", "o_proj.weight")):
                parameter.mul_(4)
