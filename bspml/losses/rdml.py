"""RDML: triplets under the rescaled hinge, whose far outliers stop pulling."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss

from bspml.functional import rescaled_hinge
from bspml.shapes import Tensor
from bspml.tensors.checks import check_number


class RDMLLoss(TripletMarginLoss):
    """(1 - e^{-eta h}) / (1 - e^{-eta})  of the triplet hinge  h = max(0, d_ap - d_an + margin).

    A triplet's pull decays as e^{-eta h}, so one that a wrong label makes hopeless counts little;
    eta -> 0 is the plain hinge.  Values lie in [0, 1 / (1 - e^{-eta})], 1 at h = 1.

    Source: [Al-Obaidi 2020], as compared with in [Zhang 2023]; the hinge is that of [Xu 2017].
    Differs: there a Mahalanobis distance is learned on fixed features by half-quadratic
    optimisation; here d is the squared Euclidean distance of normalised embeddings and the network
    is trained through it.

    Default distance: LpDistance(power=2), in [0, 4] (similarities work too).
    Default reducer: AvgNonZeroReducer: the mean over the triplets that violate the margin.
    Reducer input: "triplet".

    Args:
        eta: >= 0; [Zhang 2023] selects it from 0.5, 1, 2, 3, 4.
        margin: of the hinge, in units of the distance.
        **kwargs: of pytorch-metric-learning's TripletMarginLoss, but `smooth_loss`.

    Raises:
        InputError: `eta` negative, or a number that is not finite.

    Example:
        >>> emb = torch.tensor([[1., 0.], [1., 0.], [0., 1.], [0., 1.]])
        >>> RDMLLoss(eta=1.0)(emb, torch.tensor([0, 1, 0, 1]))  # h = 3 for 4 triplets, 1 for 4
        tensor(1.2516)
    """

    def __init__(self, eta: float | int = 1.0, margin: float | int = 1.0, **kwargs: Any) -> None:
        super().__init__(margin=check_number(margin, "margin"), smooth_loss=False, **kwargs)
        self.eta = check_number(eta, "eta", low=0.0)
        self.add_to_recordable_attributes(name="eta", is_stat=False)

    def compute_loss(
        self, embeddings: Tensor, labels: Any, indices_tuple: Any, ref_emb: Any, ref_labels: Any
    ) -> dict[str, dict[str, Any]]:
        """Return the hinges of the triplets, rescaled.

        Args:
            embeddings: (B, D).
            labels: (B,).
            indices_tuple: triplets or pairs, or None.
            ref_emb: (R, D).
            ref_labels: (R,).
        """
        loss_dict = super().compute_loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        hinges = loss_dict["loss"]
        if isinstance(hinges["losses"], torch.Tensor):  # a bare 0 stands for "no triplet"
            hinges["losses"] = rescaled_hinge(hinges["losses"], self.eta)
        return loss_dict

    def get_default_distance(self) -> LpDistance:
        """Return the squared Euclidean distance of normalised embeddings."""
        return LpDistance(power=2)
