"""The page at `/` with its style sheets and scripts: fixed files, and a policy under which nothing else can run.

The charts are the report's own scripts, served as they are. The page holds no data: its scripts ask the routes of the
API, and put whatever comes back on the page as text. No other host is named anywhere; what a user asked stays in the
user's browser.
"""

import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What the browser may do: run and load what comes from here as a file, and ask here."""
OWN = (
    "page.css",
    "page_api.js",
    "page_words.js",
    "page_chart.js",
    "page_verdict.js",
    "page_about.js",
    "page_history.js",
    "page.js",
)
"""Files beside this one."""
OF_THE_REPORT = {
    "report.css": "templates",
    "chart.css": "scripts",
    "dom.js": "scripts",
    "theme.js": "scripts",
    "chart_scale.js": "scripts",
    "chart_strokes.js": "scripts",
    "chart_readout.js": "scripts",
    "line_chart.js": "scripts",
    "legend.js": "scripts",
    "controls.js": "scripts",
}
"""Files of the report, and the folder that each lies in."""
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def page_router() -> APIRouter:
    """The page and its files; none of them is part of the API."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page(request: Request) -> Response:
        return _answer(request, "page.html")

    @router.get("/page/{name}")
    async def file(request: Request, name: str) -> Response:
        if name not in OWN and name not in OF_THE_REPORT:
            raise HTTPException(404)
        return _answer(request, name)

    return router


def _answer(request: Request, name: str) -> Response:
    """A file; the browser asks again each time, and is told where its copy is still good."""
    content, tag = content_of(name)
    headers = {
        "Content-Security-Policy": POLICY,
        "Cache-Control": "no-cache",
        "ETag": tag,
        "Cross-Origin-Opener-Policy": "same-origin",
        "X-Frame-Options": "DENY",
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_KINDS[name.rpartition(".")[2]], headers=headers)


@cache
def content_of(name: str) -> tuple[bytes, str]:
    """A file's bytes, and the tag that changes with them."""
    if name in OF_THE_REPORT:
        place = files("anchorscope.report") / OF_THE_REPORT[name] / name
    else:
        place = files("anchorscope.serve.page") / name
    content = place.read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'
