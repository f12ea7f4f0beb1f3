"""anchorscope: where does a language model's sense of truth come from, the question or the answer?

`anchorscope.run(...)` does the main job and returns a `Run`; `open_run(folder)` opens a finished one; `compare(runs,
out=...)` compares several; `fit(model, questions)` makes a hallucination detector, `detect(runs)` compares detectors on
finished runs, and `Detector.load(bundle)` scores answers with one; `verify(folder)` checks every file of a folder.
Names are imported on first use.
"""

import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorscope.answers.grade import grade as grade
    from anchorscope.api import Run as Run
    from anchorscope.api import fit as fit
    from anchorscope.api import open_run as open_run
    from anchorscope.api import run as run
    from anchorscope.api import verify as verify
    from anchorscope.comparing.compare import Comparison as Comparison
    from anchorscope.comparing.compare import compare as compare
    from anchorscope.datasets.formats import first_line as first_line
    from anchorscope.datasets.question import Question as Question
    from anchorscope.detecting.detect import Detection as Detection
    from anchorscope.detecting.detect import detect as detect
    from anchorscope.detectors.detector import Detector as Detector
    from anchorscope.errors import UserError as UserError
    from anchorscope.models.language_model import LanguageModel as LanguageModel
    from anchorscope.models.loading import load as load_model  # noqa: F401
    from anchorscope.recipe import Recipe as Recipe

_HOMES = {
    "run": "anchorscope.api:run",
    "fit": "anchorscope.api:fit",
    "open_run": "anchorscope.api:open_run",
    "Run": "anchorscope.api:Run",
    "verify": "anchorscope.api:verify",
    "compare": "anchorscope.comparing.compare:compare",
    "Comparison": "anchorscope.comparing.compare:Comparison",
    "detect": "anchorscope.detecting.detect:detect",
    "Detection": "anchorscope.detecting.detect:Detection",
    "Detector": "anchorscope.detectors.detector:Detector",
    "Recipe": "anchorscope.recipe:Recipe",
    "Question": "anchorscope.datasets.question:Question",
    "LanguageModel": "anchorscope.models.language_model:LanguageModel",
    "load_model": "anchorscope.models.loading:load",
    "grade": "anchorscope.answers.grade:grade",
    "first_line": "anchorscope.datasets.formats:first_line",
    "UserError": "anchorscope.errors:UserError",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'anchorscope' has no attribute {name!r}")
    if "IPython" in sys.modules:
        # In a notebook without ipywidgets, the bars of transformers greet everybody with this; ours do without them.
        warnings.filterwarnings("ignore", message="IProgress not found")
    home, _, inside = _HOMES[name].partition(":")
    return getattr(import_module(home), inside)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
