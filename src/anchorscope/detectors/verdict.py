"""The verdict on an answer is one of four words, the same in terminal, files, API, page and docs.

Imports nothing heavy: commands name the verdicts before torch is there.
"""

from typing import Literal, get_args

Verdict = Literal["true", "unsure", "false", "out-of-range"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
TRUE: Verdict = "true"
UNSURE: Verdict = "unsure"
FALSE: Verdict = "false"
OUT_OF_RANGE: Verdict = "out-of-range"
"""The answer is unlike everything that the detector was trained on."""
