"""The catalogue names what is there, all of it and nothing else, and brings no torch along."""

from importlib import import_module
from pathlib import Path

import pytest

from anchorscope.catalogue import EVIDENCE, EXPERIMENTS, INTERVENTIONS
from anchorscope.experiments import experiment
from anchorscope.experiments.experiment import Experiment, chosen_experiments
from anchorscope.interventions.cuts import INTERVENTIONS as REGISTERED
from anchorscope.interventions.cuts import of_experiments
from repo import DOCS

WITH_HOME = {name: one for name, one in EXPERIMENTS.items() if one.home is not None}


def test_every_intervention_of_the_catalogue_is_registered_and_the_other_way_round() -> (
    None
):
    assert set(INTERVENTIONS) == set(REGISTERED)
    for name, entry in INTERVENTIONS.items():
        assert entry.name == name
        assert REGISTERED[name].entry is entry
    assert of_experiments(EVIDENCE) == list(REGISTERED.values())


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
    defined = {
        path.stem
        for path in folder.glob("*.py")
        if "\nEXPERIMENT = " in path.read_text(encoding="utf-8")
    }
    assert defined == {
        str(one.home).partition(":")[0].rpartition(".")[2] for one in WITH_HOME.values()
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiments_page_is_there_and_names_it(name: str) -> None:
    entry = EXPERIMENTS[name]
    assert entry.name == name
    assert entry.asks.endswith("?")
    page = (DOCS / entry.docs.partition("#")[0]).read_text(encoding="utf-8")
    assert name in page.lower()
