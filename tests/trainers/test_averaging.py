"""The average of a network's weights: beside a slow loop, buffers included."""

import copy

import pytest
import torch

from bspml.errors import InputError
from bspml.trainers.averaging import average_weights
from helpers.comparisons import same

ROUNDING = 1e-6  # float32, a few dozen steps


def make_network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


def take_steps(network, steps, then):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    rng = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        network(torch.randn(8, 3, generator=rng)).tanh().pow(3).mean().backward()
        optimizer.step()
        then()


@pytest.mark.parametrize("decay", [0.3, 0.6, 0.999])
def test_the_average_is_that_of_a_slow_loop(decay):
    network = make_network()
    average = average_weights(network, decay)
    expected, seen = {}, []

    def take_in():
        average.update_parameters(network)
        n = len(seen)
        d = min(decay, (1 + n) / (10 + n))
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                value = value.double().clone()
                expected[name] = d * expected[name] + (1 - d) * value if n else value
        seen.append(n)

    take_steps(network, 30, take_in)
    found = average.module.state_dict()
    assert len(expected) == 6  # weights, biases, and the running statistics
    for name, value in expected.items():
        torch.testing.assert_close(found[name].double(), value, rtol=ROUNDING, atol=ROUNDING)
    assert not torch.equal(found["1.running_var"], network.state_dict()["1.running_var"])


def test_a_short_training_forgets_its_start():
    """Of weights that jump from 0 to 1 after the first step, 100 steps later hardly any is 0."""
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(network.weight)
    average = average_weights(network, 0.999)
    average.update_parameters(network)
    torch.nn.init.ones_(network.weight)
    for _ in range(100):
        average.update_parameters(network)
    assert 1 - average.module.weight.item() < 1e-6
    assert 0.999**100 > 0.9  # what a constant decay would have left


def test_the_network_is_left_alone_and_the_state_goes_on_bit_for_bit():
    network = make_network()
    average = average_weights(network, 0.9)
    take_steps(network, 5, lambda: average.update_parameters(network))
    before, state = copy.deepcopy(network.state_dict()), copy.deepcopy(average.state_dict())
    average.update_parameters(network)
    assert same(dict(network.state_dict()), dict(before))
    other = average_weights(make_network(), 0.9)
    other.load_state_dict(state)
    other.update_parameters(network)
    assert same(dict(other.state_dict()), dict(average.state_dict()))


@pytest.mark.parametrize("decay", [0, 1.5, -0.1, float("nan")])
def test_a_decay_that_is_none_is_refused(decay):
    with pytest.raises(InputError, match="`decay` must be"):
        average_weights(torch.nn.Linear(1, 1), decay)
