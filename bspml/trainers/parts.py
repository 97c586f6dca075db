"""The parts of a training that have a state: what starts anew with the network, and what stays."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pytorch_metric_learning.losses import CrossBatchMemory
from torch import nn
from torch.nn.parameter import is_lazy

from bspml.errors import CheckpointError, InputError
from bspml.losses.saved_numbers import places_in_queues, take_places_in_queues
from bspml.trainers.state import faults_named
from bspml.weights.state import SampleWeights


class TrainingParts:
    """Whatever of a training is saved beside its position.

    The network's parts (models, their average, optimisers, schedulers, the scale of the gradients,
    what the losses have learned or remember) start anew where the curriculum asks for a fresh
    network: proxies trained on a half's labels would tell the next network of them, and a running
    threshold is of the losses of another network.  Weights, curriculum and patience stay.

    Args:
        trainer: a `MetricLossOnly`.
        curriculum: of the sample weights, or None.
        averaged: torch's `AveragedModel` of the trunk, or None.
        patience: a `Patience`, or None.

    Attributes:
        initial: state of the network's parts before the first step.
        restart_due: whether this network is to be thrown away, and an evaluation looks at it first.

    Raises:
        InputError: a curriculum that starts anew, and parameters without a size yet.
    """

    def __init__(self, trainer: Any, curriculum: Any, averaged: Any, patience: Any) -> None:
        self.trainer, self.curriculum = trainer, curriculum
        self.averaged, self.patience, self.restart_due = averaged, patience, False
        if curriculum is not None and curriculum.may_reset:
            _refuse_lazy(trainer.models)
        states = {kind: _states(held) for kind, held in self._network_holders().items()}
        self.initial = copy.deepcopy(states)

    def restart_network(self) -> None:
        """Take the network and all that goes with it back to before the first step.

        Raises:
            InputError: it has grown since, or shrunk.
        """
        self.restart_due = False
        try:
            self._load_network_state(self.initial)
        except (KeyError, RuntimeError, ValueError) as err:  # torch's, of modules and optimisers
            why = " ".join(f"{err}".split())[:200]
            raise InputError(
                "the network, its optimiser or its loss has other parameters than before the first "
                f"step, and cannot start anew after the warm-up ({why}). Make all of them "
                'before the training, or take warmup="features".'
            ) from err

    def state_dict(self) -> dict[str, Any]:
        """Return all states; the initial network where one may still be asked for."""
        curriculum, due = self.curriculum, self.restart_due
        returns = due or (curriculum is not None and curriculum.may_reset)
        holders = self._network_holders()
        del holders["learned"]  # in `loss_funcs` as well
        return {
            "network": {kind: _states(held) for kind, held in holders.items()},
            "initial": self.initial if returns else None,
            "restart_due": due,
            "loss_funcs": _states(self.trainer.loss_funcs),
            "queues": {k: places_in_queues(loss) for k, loss in self.trainer.loss_funcs.items()},
            "curriculum": None if curriculum is None else curriculum.state_dict(),
            "sample_weights": None if curriculum is None else curriculum.weights.state_dict(),
            "patience": None if self.patience is None else self.patience.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: a part does not fit; nothing is changed then.
        """
        before, initial = copy.deepcopy(self.state_dict()), self.initial
        try:
            with faults_named():
                self._take(state)
        except CheckpointError:
            self._take(before)
            self.initial = initial
            raise

    def _take(self, state: Mapping[str, Any]) -> None:
        if state["initial"] is not None:
            self._load_network_state(state["initial"])  # would otherwise fail at the reset only
            self.initial = state["initial"]
        self._load_network_state(state["network"])
        for name, loss in self.trainer.loss_funcs.items():
            loss.load_state_dict(state["loss_funcs"][name])
            take_places_in_queues(loss, state.get("queues", {}).get(name, {}))  # not once
        # Not before it was kept, nor where the run began without.
        if self.patience is not None and state.get("patience") is not None:
            self.patience.load_state_dict(state["patience"])
        if self.curriculum is not None:
            self.curriculum.weights.load_state_dict(state["sample_weights"])
            self.curriculum.load_state_dict(state["curriculum"])
            if self.curriculum.may_reset and state["initial"] is None:
                raise CheckpointError(
                    "the checkpoint lacks the initial network, which this warm-up returns to. "
                    "Start the run anew."
                )
        if state.get("restart_due"):  # saved in the evaluation of a network that was to go
            self.restart_network()

    def _network_holders(self) -> dict[str, Mapping[str, Any]]:
        """Return what starts anew with the network, by kind and name."""
        t = self.trainer
        holders: dict[str, Mapping[str, Any]] = {
            "models": t.models,
            "optimizers": t.optimizers,
            "lr_schedulers": t.lr_schedulers,
            "learned": {name: _Learned(loss) for name, loss in t.loss_funcs.items()},
        }
        if self.averaged is not None:
            holders["averaged"] = {"trunk": self.averaged}
        scaler = getattr(t, "scaler", None)
        if scaler is not None and scaler.is_enabled():
            holders["scalers"] = {"gradients": scaler}
        return holders

    def _load_network_state(self, state: Mapping[str, Any]) -> None:
        for kind, holders in self._network_holders().items():
            if kind == "learned" and kind not in state:
                continue  # in `loss_funcs`; nor kept once
            for name, holder in holders.items():
                # A copy: an optimiser writes into the tensors, torch's CyclicLR takes keys out.
                holder.load_state_dict(copy.deepcopy(state[kind][name]))


def _refuse_lazy(models: Mapping[str, nn.Module]) -> None:
    lazy = [n for m in models.values() for n, p in m.named_parameters() if is_lazy(p)]
    if lazy:
        raise InputError(
            f"the network has parameters without a size yet, such as {lazy[0]}, and the warm-up "
            "returns to it as it is now. Pass a batch through it first: network(inputs)."
        )


class _Learned:
    """What a loss has learned or remembers, as a part with a state; the weights are not its own.

    Taking one over also empties its memories.
    """

    def __init__(self, loss: nn.Module) -> None:
        self.loss = loss

    def state_dict(self) -> dict[str, Any]:
        parts = self.loss.named_modules(remove_duplicate=False)
        tables = tuple(f"{name}." for name, part in parts if isinstance(part, SampleWeights))
        state = self.loss.state_dict().items()
        return {name: value for name, value in state if not name.startswith(tables)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, _ in self.loss.named_parameters():
            state[name]  # a missing one is a fault; buffers were not kept once
        self.loss.load_state_dict({**self.loss.state_dict(), **state})
        for module in self.loss.modules():
            if isinstance(module, CrossBatchMemory):
                module.reset_queue()


def _states(holders: Mapping[str, Any]) -> dict[str, Any]:
    return {name: holder.state_dict() for name, holder in holders.items()}
