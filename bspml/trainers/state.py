"""What a saved trainer state must look like before any of it is taken over.

`AlternatingTrainer.load_state_dict` calls `check_trainer_state` first.  A network or a loss may
still refuse its part of the state; then the trainer takes back what it has taken over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bspml.errors import CheckpointError
from bspml.files.checkpoints import check_generators

# Optimiser statistics that have the shape of their parameter.
_PER_PARAMETER = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")
_FAULTS = (KeyError, IndexError, TypeError, AttributeError, ValueError, RuntimeError, OverflowError)


def check_trainer_state(
    state: Any, optimizers: Mapping[str, torch.optim.Optimizer], rows: int, full_round: int
) -> None:
    """Check keys, position, optimisers and generators of `AlternatingTrainer.state_dict()`.

    Args:
        state: as loaded.
        optimizers: of the trainer that will take it.
        rows: N of the data set.
        full_round: steps of a round on all rows.

    Raises:
        CheckpointError: one line that says what is wrong.
    """
    with faults_named():
        for part in ("network", "initial", "loss_funcs", "curriculum", "sample_weights"):
            state[part]  # a missing one is a fault that is named below
        for kind in ("models", "optimizers", "lr_schedulers"):
            state["network"][kind].keys()
        for network in (state["network"], state["initial"]):
            for name, optimizer in optimizers.items():
                if network is not None:
                    _check_optimizer(network["optimizers"][name], optimizer, name)
        # Repaired labels can take more batches than the given ones, but not one for each row.
        check_position(state["position"], full_round, longest=max(full_round, rows))
        collected = state["collected"]
        if collected is not None and (collected.ndim != 2 or len(collected) != rows):
            raise CheckpointError(
                f"the checkpoint's collected embeddings are {tuple(collected.shape)}; this data "
                f"set has {rows} samples. Resume with the data of the run."
            )
        check_generators(state["generators"])


def are_p_values(values: Tensor, shape: torch.Size) -> bool:
    """Return whether saved p-values are float64 of this shape, in [0, 1] or NaN.

    Args:
        values: as loaded.
        shape: that they must have.

    Example:
        >>> are_p_values(torch.tensor([0.5, 2.0]).double(), torch.Size([2]))
        False
    """
    is_outside = (values < 0) | (values > 1)
    return values.shape == shape and values.dtype == torch.float64 and not is_outside.any()


def is_grouping(values: Tensor, shape: torch.Size) -> bool:
    """Return whether saved groups of samples are int64 of this shape, none below 0 or too large.

    Args:
        values: as loaded.
        shape: that they must have.

    Example:
        >>> is_grouping(torch.tensor([0, 1, 0]), torch.Size([3]))
        True
    """
    if values.shape != shape or values.dtype != torch.int64:
        return False
    return not ((values < 0) | (values >= len(values))).any()


@contextmanager
def faults_named() -> Iterator[None]:
    """Turn whatever a malformed state leads to into a one-line CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except _FAULTS as err:
        reason = " ".join(f"{type(err).__name__}: {err}".split())[:200]
        raise CheckpointError(
            f"the checkpoint does not hold the state of such a training ({reason}). Resume with "
            "the configuration of the run, or start the run anew."
        ) from err


def check_position(
    position: Mapping[str, Any], full_round: int, unit: str = "round", longest: int | None = None
) -> None:
    """Check that a training can stand there.

    Args:
        position: `round`, `step`, `steps`, `full_round` and `loss_sum` as loaded.
        full_round: steps of a round on all rows.
        unit: what a round is called.
        longest: steps of the longest round; None: `full_round`.

    Raises:
        CheckpointError: one line that says what is wrong.
    """
    for key in ("round", "step", "steps", "full_round"):
        if type(position[key]) is not int or position[key] < 0:
            raise CheckpointError(
                f"the checkpoint's `{key}` must be a whole number of at least 0; got "
                f"{position[key]!r:.16}. Start the run anew."
            )
    loss_sum = position["loss_sum"]
    if not isinstance(loss_sum, int | float) or not math.isfinite(loss_sum):
        raise CheckpointError(
            f"the checkpoint's `loss_sum` must be a finite number; got {loss_sum!r:.16}. Start the "
            "run anew."
        )
    rounds, step, steps = position["round"], position["step"], position["steps"]
    most = full_round if longest is None else longest
    possible = step <= most and rounds + step <= steps <= rounds * most + step
    if position["full_round"] != full_round or not possible:
        raise CheckpointError(
            f"the checkpoint's position ({unit} {rounds}, step {step}, {steps} steps in all, "
            f"{position['full_round']} to the {unit}) is impossible where a full {unit} has "
            f"{full_round} steps. Resume with the configuration and data of the run, or start it "
            "anew."
        )


def _check_optimizer(saved: Mapping[str, Any], optimizer: torch.optim.Optimizer, name: str) -> None:
    """Check kinds and shapes of an optimiser's state: torch compares numbers of parameters only."""
    own = optimizer.state_dict()["param_groups"]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    alike = len(saved["param_groups"]) == len(own) and all(
        _same_kinds(a, b) for a, b in zip(saved["param_groups"], own, strict=True)
    )
    for index, entry in saved["state"].items():
        for key, value in entry.items():
            if key in _PER_PARAMETER and value is not None:
                alike = alike and value.shape == parameters[index].shape
            elif isinstance(value, Tensor):
                alike = alike and value.dtype.is_floating_point
    if not alike:
        raise CheckpointError(
            f"the checkpoint's optimiser `{name}` is of another kind or network than this one. "
            "Resume with the configuration of the run, or start it anew."
        )


def _same_kinds(saved: Any, own: Any) -> bool:
    """Return whether two option trees have the same keys and kinds of values; None fits any."""
    if isinstance(own, Mapping):
        return saved.keys() == own.keys() and all(_same_kinds(saved[k], own[k]) for k in own)
    if isinstance(own, list | tuple):
        return len(saved) == len(own) and all(map(_same_kinds, saved, own))
    if own is None or saved is None:
        return True
    number = (int, float, Tensor)
    return isinstance(saved, number) if isinstance(own, number) else isinstance(saved, type(own))
