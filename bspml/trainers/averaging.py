"""The exponential moving average of a network's weights: smoother than any of its steps."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import check_number


def average_weights(network: torch.nn.Module, decay: float = 0.999) -> AveragedModel:
    """Make the average of a network over its coming steps, torch's `AveragedModel`.

    After the first step it is the network; after step n + 1

        average = d average + (1 - d) network,    d = min(decay, (1 + n) / (10 + n)),

    so that a short training does not keep its start: with 0.999 throughout, the network of the
    first step would still be a third of the average after 1,000.  Buffers are averaged too: the
    statistics of batch normalisations follow the weights.

    Args:
        network: trained elsewhere; `update_parameters(network)` takes a step of it in.
        decay: of the past at each step, in (0, 1].

    Returns:
        The average; its `module` is a network to embed with.

    Raises:
        InputError: a decay out of range, or no network.

    Example:
        >>> network = torch.nn.Linear(1, 1, bias=False)
        >>> average = average_weights(network, decay=0.9)
        >>> for value in (1.0, 2.0):
        ...     _ = torch.nn.init.constant_(network.weight, value)
        ...     average.update_parameters(network)
        >>> round(average.module.weight.item(), 4)  # 2/11 of the first, 9/11 of the second
        1.8182
    """
    check_kind(network, "network", torch.nn.Module, "a torch.nn.Module")
    check_number(decay, "decay", 0, 1, open_low=True)

    def move(averaged: Any, current: Any, number: Any) -> None:
        ramp = (1 + int(number)) / (10 + int(number))
        get_ema_multi_avg_fn(min(decay, ramp))(averaged, current, number)

    return AveragedModel(network, multi_avg_fn=move, use_buffers=True)
