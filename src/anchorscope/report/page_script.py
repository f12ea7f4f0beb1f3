"""The page's own code and data, inside the page: small scripts joined into one, its hash in the content policy.

The page may run exactly one script, the one whose hash its policy names. Whatever a question, an answer or a model's
name may smuggle in has another hash and stays dead. Data travel as JSON that holds no character that could end it.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from markupsafe import Markup

FRAME_SCRIPTS = ("dom", "theme", "contents", "printing")
"""What every page needs: light and dark, the bar of contents, printing."""
CHART_SCRIPTS = (
    *FRAME_SCRIPTS, "hash_state", "chart_scale", "chart_strokes", "chart_readout", "line_chart", "legend", "controls",
    "chart_export", "chart_view",
)  # fmt: skip
"""What every page with a chart needs, in the order in which they build on each other."""
REPORT_SCRIPTS = (*CHART_SCRIPTS, "delta_p_view", "probe_view", "item_store", "item", "item_list", "explorer")
"""The scripts of report.html."""
STYLES = ("chart", "explorer", "compare")
"""Style sheets beside the page's own."""

_DANGEROUS = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})


def joined_script(names: Sequence[str]) -> str:
    """The scripts of these names as one, closed against everything else on the page."""
    parts = "\n".join(_text(f"{name}.js") for name in names)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


def joined_styles() -> str:
    """The style sheets that lie beside the scripts."""
    return "\n".join(_text(f"{name}.css") for name in STYLES)


def content_policy(script: str) -> str:
    """What the page may do: show embedded images, use its own styles, run this one script. Nothing is loaded."""
    nothing = [f"{what} 'none'" for what in ("default-src", "base-uri", "form-action")]
    allowed = [*nothing, "img-src data:", "style-src 'unsafe-inline'"]
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
        allowed.append(f"script-src 'sha256-{digest}'")
    return "; ".join(allowed)


def embedded_json(value: Any) -> Markup:
    """JSON that can stand in a script element: no character in it can end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_DANGEROUS))


def _text(name: str) -> str:
    return (files("anchorscope.report") / "scripts" / name).read_text(encoding="utf-8")
