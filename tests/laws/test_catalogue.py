"""The catalogue names what is there, all of it and nothing else, and brings no torch along."""

from importlib import import_module
from pathlib import Path

import pytest

from anchorscope.catalogue import CUT, EVIDENCE, EXPERIMENTS, INTERVENTIONS, REWRITE, chosen_evidence
from anchorscope.experiments import experiment
from anchorscope.experiments.experiment import Experiment, chosen_experiments
from anchorscope.interventions.cuts import INTERVENTIONS as REGISTERED
from anchorscope.interventions.cuts import of_experiments
from repo import DOCS

WITH_HOME = {name: one for name, one in EXPERIMENTS.items() if one.home is not None}


def test_every_intervention_of_the_catalogue_is_registered_and_the_other_way_round() -> None:
    assert set(INTERVENTIONS) == set(REGISTERED)
    for name, entry in INTERVENTIONS.items():
        assert entry.name == name
        assert REGISTERED[name].entry is entry
        assert entry.kind == (CUT if REGISTERED[name].rewrite is None else REWRITE)


def test_every_intervention_belongs_to_an_experiment_and_says_what_it_does_in_one_line() -> None:
    for entry in INTERVENTIONS.values():
        assert entry.experiment in EXPERIMENTS
        for text in (entry.about, entry.label):
            assert text
            assert "\n" not in text


def test_every_experiment_computes_something_or_has_interventions() -> None:
    of_interventions = {one.experiment for one in INTERVENTIONS.values()}
    assert of_interventions | set(WITH_HOME) == set(EXPERIMENTS)
    assert not of_interventions & set(WITH_HOME)


@pytest.mark.parametrize("name", WITH_HOME)
def test_an_experiment_is_found_where_the_catalogue_says(name: str) -> None:
    module, _, attribute = str(EXPERIMENTS[name].home).partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, Experiment)
    assert found.name == name
    assert found.about
    assert chosen_experiments([name]) == [found]


def test_no_experiment_stands_beside_the_catalogue() -> None:
    folder = Path(str(experiment.__file__)).parent
    defined = {path.stem for path in folder.glob("*.py") if "\nEXPERIMENT = " in path.read_text(encoding="utf-8")}
    assert defined == {str(one.home).partition(":")[0].rpartition(".")[2] for one in WITH_HOME.values()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiments_page_is_there_and_names_it(name: str) -> None:
    entry = EXPERIMENTS[name]
    assert entry.name == name
    assert entry.asks.endswith("?")
    page = (DOCS / entry.docs.partition("#")[0]).read_text(encoding="utf-8")
    assert name in page.lower()


def test_controls_are_flagged_and_shown_below_everything_that_takes_the_question_away() -> None:
    controls = {name for name, one in INTERVENTIONS.items() if one.control}
    assert controls == {"random", "template", "patch-control", "patch-self", "none"}
    assert set(list(INTERVENTIONS)[-len(controls) :]) == controls
    assert {name for name, one in REGISTERED.items() if not one.changes} <= controls


def test_no_two_interventions_look_the_same_in_a_figure() -> None:
    labels = [one.label for one in INTERVENTIONS.values()]
    assert len(set(labels)) == len(labels)


def test_experiments_run_in_their_order_and_always_with_the_knockout() -> None:
    assert chosen_evidence(()) == ("knockout",)
    assert chosen_evidence(("all",)) == EVIDENCE
    for name in EVIDENCE:
        assert set(chosen_evidence((name,))) == {"knockout", name}
        assert chosen_evidence((*reversed(EVIDENCE), name)) == EVIDENCE


def test_the_knockout_and_its_controls_are_among_the_interventions_of_any_run() -> None:
    assert {one.name for one in of_experiments(chosen_evidence(()))} == {"knockout", "random", "none"}
    assert {one.name for one in of_experiments(chosen_evidence(("zeroing",)))} == {
        "knockout",
        "random",
        "none",
        "zeroing",
    }
    assert of_experiments(EVIDENCE) == list(REGISTERED.values())
