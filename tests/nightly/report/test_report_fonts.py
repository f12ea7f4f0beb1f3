"""Fonts in the PDFs: every glyph that is drawn as it is in the font, and nothing that only shapes running text."""

import re
import zlib
from io import BytesIO

from fontTools.ttLib import TTFont
from matplotlib.font_manager import findfont

from anchorscope.report.charts.delta_p import DeltaPChart
from report_synthetic import make_findings


def embedded_fonts(pdf: bytes) -> list[TTFont]:
    """The TrueType fonts among the streams of a PDF."""
    packed = re.findall(rb"stream\r?\n(x.*?)endstream", pdf, re.DOTALL)
    streams = [zlib.decompressobj().decompress(one) for one in packed]
    return [TTFont(BytesIO(one)) for one in streams if one.startswith(b"\x00\x01\x00\x00")]


def test_glyphs_are_those_of_the_font_without_tables_for_shaping(tmp_path):
    DeltaPChart.from_findings(make_findings(("atlas",))).save(tmp_path)
    fonts = embedded_fonts((tmp_path / "figures" / "delta_p.pdf").read_bytes())
    assert fonts
    whole = {bold: TTFont(findfont(f"DejaVu Sans:{'bold' if bold else 'regular'}")) for bold in (False, True)}
    n_outlines = 0
    for font in fonts:
        assert not {"GDEF", "GPOS", "GSUB", "MATH"} & set(font.keys())
        own = whole[bool(font["head"].macStyle & 1)]
        for glyph in set(font.getGlyphOrder()) - {".notdef"}:  # what is drawn for no letter has no outline here
            assert font["hmtx"][glyph] == own["hmtx"][glyph]
            points = font["glyf"][glyph].getCoordinates(font["glyf"])[0]
            assert list(points) == list(own["glyf"][glyph].getCoordinates(own["glyf"])[0])
            n_outlines += len(points) > 0
    assert n_outlines > 20
