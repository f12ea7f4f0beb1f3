"""Writes docs/openapi.json, the description of the service's routes, from the code: python tools/write_openapi.py"""

from pathlib import Path

from anchorscope.serve.server import openapi_text

if __name__ == "__main__":
    (Path(__file__).parents[1] / "docs" / "openapi.json").write_text(
        openapi_text(), encoding="utf-8"
    )
