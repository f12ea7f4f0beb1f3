"""Every dataset has two colours of its own, and the paper's keep the paper's."""

from anchorscope.report.palette import A_ANCHORED, LINE_STYLES, Q_ANCHORED, dataset_styles, display_name


def test_paper_colours_and_line_styles():
    chosen = dataset_styles(("popqa", "triviaqa", "hotpotqa", "nq"))
    assert [look.colour(Q_ANCHORED) for look in chosen.values()] == ["#1f77b4", "#2ca02c", "#9467bd", "#e377c2"]
    assert [look.colour(A_ANCHORED) for look in chosen.values()] == ["#ff7f0e", "#d62728", "#8c564b", "#7f7f7f"]
    assert LINE_STYLES[Q_ANCHORED] == "-"
    assert LINE_STYLES[A_ANCHORED] != "-"


def test_further_datasets_are_told_apart():
    chosen = dataset_styles(("popqa", "triviaqa", "hotpotqa", "nq", "atlas", "mine", "yours"))
    colours = [colour for look in chosen.values() for colour in (look.q_colour, look.a_colour)]
    assert len(set(colours)) == len(colours)
    assert len({look.marker for look in chosen.values()}) == len(chosen)
    assert dataset_styles(("mine",)) == dataset_styles(("mine",))


def test_display_names():
    assert [display_name(name) for name in ("popqa", "nq", "atlas", "my file")] == ["PopQA", "NQ", "Atlas", "my file"]
