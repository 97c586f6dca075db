"""Last layers that start as the features are."""

import numpy as np
import pytest
import torch
from torch import nn

from bspml.networks import build_network
from bspml.networks.heads import features_alone, start_orthogonal, start_principal

FEATURES = torch.from_numpy(np.random.default_rng(0).random((40, 6), np.float32))


def cosines(rows):
    rows = nn.functional.normalize(rows.double())
    return rows @ rows.T


@pytest.mark.parametrize("size", [6, 9])
@pytest.mark.parametrize("start", [start_orthogonal, lambda m: start_principal(m, FEATURES)])
def test_an_embedding_as_long_as_the_features_or_longer_has_their_similarities(size, start):
    network = build_network("mlp", size, in_channels=6, hidden=0)
    start(network)
    torch.testing.assert_close(cosines(network(FEATURES)), cosines(FEATURES))


def test_a_shorter_one_is_a_projection_that_stretches_nothing_and_depends_on_the_seed_alone():
    networks = [build_network("mlp", 4, in_channels=6, hidden=0, seed=s) for s in (0, 1)]
    before = torch.get_rng_state()
    for network in networks:
        start_orthogonal(network, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    one, two = (network.layers[-1] for network in networks)
    assert torch.equal(one.weight, two.weight)
    assert not one.bias.any()
    torch.testing.assert_close(one.weight @ one.weight.T, torch.eye(4))
    start_orthogonal(networks[1], seed=4)
    assert not torch.equal(one.weight, two.weight)


def test_principal_components_keep_more_of_the_unit_rows_than_any_other_projection():
    network = build_network("mlp", 4, in_channels=6, hidden=0)
    start_principal(network, 7 * FEATURES)  # the length of a feature says nothing
    rows = nn.functional.normalize(FEATURES.double()).numpy()
    kept = np.square(rows @ network.layers[-1].weight.detach().double().numpy().T).sum()
    singular = np.linalg.svd(rows, compute_uv=False)
    assert kept == pytest.approx(np.square(singular[:4]).sum(), rel=1e-5)
    assert not network.layers[-1].bias.any()


def test_the_features_alone_are_what_the_head_takes_and_the_network_stays_as_it_was():
    network = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    bare = features_alone(network)
    torch.testing.assert_close(bare(FEATURES), network[:2](FEATURES))
    assert network(FEATURES).shape == (40, 2)
    assert torch.equal(features_alone(nn.Sequential(nn.Linear(6, 2)))(FEATURES), FEATURES)
