"""docs/options.md, made from the fields of `Recipe`: `python tools/options_page.py` writes it."""

from pathlib import Path

from anchorscope.options import PANELS, option_of
from anchorscope.recipe import Recipe, about

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
_COMPARED = {"refuse": "refused", "flag": "flagged", "ignore": "ignored"}


def options_page() -> str:
    """Every option of a run in one table per panel."""
    parts = [
        "# Options of a run",
        "",
        "Every option of `anchorscope run` and `anchorscope.run`. Recipe files, study files and the command line use",
        "the same names (`random-cuts` and `random_cuts` are the same). The last column says what",
        "`anchorscope compare` does with runs that differ in the option: it refuses to compare them unless `--allow`",
        "names it, it flags the difference, or it ignores it.",
        "",
        "<!-- Made by tools/options_page.py from src/anchorscope/recipe.py. -->",
    ]
    for panel in PANELS:
        parts += ["", f"## {panel}", "", "| option | what it does | runs that differ |", "|---|---|---|"]
        for name, field in Recipe.model_fields.items():
            option = option_of(field)
            if option.panel == panel:
                compared = f"{_COMPARED[option.compared.treatment]}: {option.compared.reason}"
                parts.append(f"| `{name.replace('_', '-')}` | {about(name)} | {compared} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(options_page(), encoding="utf-8")
