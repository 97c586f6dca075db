"""Statistics by neighbours inside both curricula: the same weights where the error allows no other,
and the choice between exact and nearly linear."""

import pytest
import torch

import bspml
from bspml.errors import InputError
from bspml.statistics.pair_bounded import NeighbourStatistics
from bspml.statistics.sampled_contrastive import SampledContrastiveStatistics
from bspml.trainers.curriculum import search as search_module
from bspml.trainers.settings import Scales
from helpers.draws import around_centres


def data(n=400, classes=8):
    labels = torch.arange(n) % classes
    E = around_centres(labels, 16, spread=0.3)
    given = labels.clone()
    given[:80] = (labels[:80] + 1 + torch.arange(80) % (classes - 1)) % classes
    return E.double(), given


@pytest.mark.parametrize(
    "options", [{"preset": "paper", "target_maw": 0.8, "base": 0.5}, {"preset": "auto"}]
)
def test_neighbours_give_the_weights_of_the_exact_statistics(options, monkeypatch):
    monkeypatch.setattr("bspml.statistics.pair_bounded._SMALL", 1)
    monkeypatch.setattr("bspml.statistics.pair_bounded._EXACT_FROM", 2.0)
    # The null judges alone, as it does by neighbours.
    monkeypatch.setattr("bspml.trainers.curriculum.automatic.FEWEST_LABELS", 1000)
    E, labels = data()
    weights = {}
    for search in ("exact", "neighbours"):
        weights[search] = bspml.SampleWeights(labels)
        curriculum = bspml.SelfPacedCurriculum(
            weights[search], search=search, statistics_error=1e-6, **options
        )
        curriculum.update(E)
    exact, near = (weights[key].weights for key in ("exact", "neighbours"))
    assert float((exact < 0.5).double().mean()) > 0.1
    # The sampled null moves the noise rate a little; the order of the labels is the same.
    assert float(((exact < 0.5) != (near < 0.5)).double().mean()) < 0.03


def test_auto_is_exact_below_the_size_and_by_neighbours_from_it_on(monkeypatch):
    E, labels = data()
    found = {}
    for size in (401, 400):
        monkeypatch.setattr(search_module, "NEIGHBOURS_FROM", size)
        how = search_module.StatisticsSearch("auto", None)
        found[size] = (
            how.pair_statistics(E, labels, Scales(base=0.5), None),
            how.contrastive_statistics(E, labels, torch.ones(len(E)).double(), None, True),
        )
    below = [isinstance(s, NeighbourStatistics | SampledContrastiveStatistics) for s in found[401]]
    above = [isinstance(s, NeighbourStatistics | SampledContrastiveStatistics) for s in found[400]]
    assert (below, above) == ([False, False], [True, True])
    named = search_module.StatisticsSearch("neighbours", None)
    assert isinstance(named.pair_statistics(E, labels, Scales(base=0.5), None), NeighbourStatistics)
    monkeypatch.setattr(search_module, "NEIGHBOURS_FROM", 1)
    named = search_module.StatisticsSearch("exact", None)
    found = named.pair_statistics(E, labels, Scales(base=0.5), None)
    assert not isinstance(found, NeighbourStatistics)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"search": "graph"}, "`search` must be"),
        ({"statistics_error": 0}, r"`statistics_error` must be in \[1e-09, 2\]"),
    ],
)
def test_wrong_choices_are_refused(change, match):
    with pytest.raises(InputError, match=match):
        bspml.SelfPacedCurriculum(bspml.SampleWeights([0, 0, 1, 1]), **change)
