"""PRISM's filter [Liu 2021]: which samples of a batch have a label their class centres believe.

    embeddings, labels
      -> score    softmax, over the classes, of the mean similarity to each class's remembered rows,
                  or of their log density under a distribution fitted to these [Liu vMF 2021]
      -> threshold   mean, over the last batches, of the score below which the noise rate lies
      -> keep     score at or above the threshold
      -> memory   the kept rows, the oldest of all forgotten

Written from the papers' descriptions; `bspml.losses.filtered` puts it before a loss.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import nn

from bspml.errors import InputError
from bspml.functional.von_mises_fisher import concentration, log_density
from bspml.losses.pairs import prepare_batch
from bspml.losses.saved_numbers import RowMemory
from bspml.shapes import Bool, Float, Int, Tensor
from bspml.tensors.checks import check_choice, check_number, check_whole

Score = Literal["mean", "vmf"]
_ROUNDING = 1e-6  # relative; a mean of equal numbers may end one rounding above them


class PRISMFilter(RowMemory):
    """Judge the labels of each batch by the rows remembered of earlier batches.

    With v the normalised rows in the memory and M_k those of class k, the score of sample i is

        P_i = exp T(i, y_i) / sum_k exp T(i, k),   T(i, k) = mean_{v in M_k} <f(x_i), v>
                                                           = <f(x_i), centre_k>,

    over the classes that have a row in the memory (the centre, not normalised, gives the same as
    all rows one by one).  With `score="vmf"` T(i, k) is instead the log density of f(x_i) under the
    von Mises-Fisher distribution of class k, so that P_i is the posterior of equally likely
    classes and a class that scatters widely believes a distant sample sooner:

        T(i, k) = kappa_k <f(x_i), mu_k> + log C(kappa_k),     mu_k = centre_k / |centre_k|,

    with the concentration kappa_k from R_k = |centre_k|.

    The threshold is the mean of the `noise_rate`-quantiles of the scores of the last `window`
    batches, this one included, so a batch of many wrong labels loses more than a clean one.  Only
    kept rows enter the memory, first in, first out.

    Kept without being judged: every row until all classes have a remembered row or the memory has
    been filled once, because a softmax over few classes is larger and would spoil the window;
    then a row whose class has none.  At a noise rate of 0 every row is kept.

    Updates in train mode only.  Its state (memory, window, positions) is in `state_dict`, and it
    draws nothing at random, so a resumed run goes on exactly.  One process: ranks do not share
    their memories.

    Source: [Liu 2021], centres for all classes and the smooth top-R threshold; [Liu vMF 2021] for
    a von Mises-Fisher distribution estimated for each class in place of the mean similarity.
    Differs: of the second paper only what its abstract says is followed.  Ours are the estimate of
    kappa, [Banerjee 2005], equal priors as in the first paper, and R_k^2 as if the class had one
    more row, spread like those of all classes: one row alone would be infinitely tight.
    The start-up rule above, `memory_size` and `window` are our choices; the loss on
    memory rows that is trained there beside the batch loss is left out, so that what differs from
    the plain loss is the filter alone.

    Args:
        num_classes: C; labels are 0..C-1.
        embedding_size: D.
        noise_rate: share of wrong labels in [0, 1), which has to be known.
        memory_size: rows remembered, over all classes; about the size of the data set is usual.
        window: batches whose quantiles are averaged.
        score: mean, of similarities, or vmf, which weighs how tight each class is.

    Attributes:
        scores: (B,) float32 of the last batch, also where none is judged by them yet; NaN: no row
            of the class is remembered.

    Raises:
        InputError: an argument out of range, or no noise rate.

    Example:
        >>> keep = PRISMFilter(num_classes=2, embedding_size=2, noise_rate=0.25)
        >>> emb = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> keep(emb, torch.tensor([0, 0, 1, 1]))  # remembers
        tensor([True, True, True, True])
        >>> keep(emb, torch.tensor([0, 1, 1, 1]))  # the second label has become wrong
        tensor([ True, False,  True,  True])
    """

    memory_labels: Tensor
    quantiles: Tensor
    saved_numbers = ("rows_remembered", "batches_judged", "warm")

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        noise_rate: float | int | None,
        memory_size: int = 8192,
        window: int = 30,
        score: str = "mean",
    ) -> None:
        super().__init__()
        self.by_density = check_choice(score, "score", get_args(Score)) == "vmf"
        self.num_classes = check_whole(num_classes, "num_classes")
        embedding_size = check_whole(embedding_size, "embedding_size", high=2**20)
        memory_size = check_whole(memory_size, "memory_size", high=2**28)
        window = check_whole(window, "window")
        self.noise_rate = check_noise_rate(noise_rate)
        self.register_buffer("memory", torch.zeros(memory_size, embedding_size))
        self.register_buffer("memory_labels", torch.zeros(memory_size, dtype=torch.int64))
        self.register_buffer("quantiles", torch.full((window,), float("nan")))
        self.rows_remembered, self.batches_judged, self.warm = 0, 0, False
        self.scores: Tensor | None = None

    @torch.no_grad()
    def forward(self, embeddings: Tensor, labels: Any) -> Bool[Tensor, " B"]:
        """Return which rows to keep.

        Args:
            embeddings: (B, D) floats, normalised here.
            labels: (B,) integers in [0, C).

        Returns:
            (B,) bool, on the device of `embeddings`.

        Raises:
            InputError: shapes, values or labels that do not fit; nothing is remembered then.
        """
        rows, codes = self._prepare(embeddings, labels)
        self.scores = self.score(rows, codes)
        keep = torch.ones_like(codes, dtype=torch.bool)
        judged = ~self.scores.isnan()
        if self.warm and self.noise_rate > 0 and bool(judged.any()):
            keep = ~judged | (self.scores >= self._threshold(self.scores[judged]))
        if self.training:
            self._remember(rows[keep], codes[keep])
        return keep

    def _prepare(self, embeddings: Tensor, labels: Any) -> tuple[Tensor, Tensor]:
        """Return normalised float32 rows and their codes."""
        batch = prepare_batch(embeddings, labels)
        if batch.labels is None:
            raise InputError("`labels` must be given; got None. The filter judges them.")
        rows = self.comparable(batch.embeddings)
        low, high = batch.labels.aminmax() if len(batch.labels) else (0, 0)
        if low < 0 or high >= self.num_classes:
            raise InputError(
                f"`labels` must be in [0, {self.num_classes}); got {int(low)} to {int(high)}. "
                "`SampleWeights(labels).codes` numbers the classes."
            )
        return rows, batch.labels

    def score(self, rows: Float[Tensor, "B D"], codes: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
        """Compute P of normalised rows under their labels; NaN for a class without remembered rows.

        Args:
            rows: (B, D) normalised.
            codes: (B,) labels in [0, C).
        """
        counts, centres = self.centres()
        with torch.autocast(rows.device.type, enabled=False):
            if self.by_density:
                kappa = concentration(squared_lengths(counts, centres), rows.shape[1])
                cosine = rows @ nn.functional.normalize(centres).T
                closeness = log_density(cosine, kappa, rows.shape[1])  # (B, C)
            else:
                closeness = rows @ centres.T  # (B, C)
        closeness = closeness.masked_fill(counts == 0, -torch.inf)
        own = closeness.softmax(1).gather(1, codes[:, None])[:, 0]
        return own.masked_fill(counts[codes] == 0, float("nan"))

    def centres(self) -> tuple[Int[Tensor, " C"], Float[Tensor, "C D"]]:
        """Count the remembered rows of each class, and average them (0 for a class without)."""
        count = min(self.rows_remembered, len(self.memory))
        labels = self.memory_labels[:count]
        counts = torch.bincount(labels, minlength=self.num_classes)
        sums = self.memory.new_zeros(self.num_classes, self.memory.shape[1])
        sums.index_add_(0, labels, self.memory[:count])
        return counts, sums / counts.clamp(min=1)[:, None]

    def _threshold(self, scores: Float[Tensor, " J"]) -> Float[Tensor, ""]:
        """Average the quantiles of the window, this batch's included; remember it in train mode."""
        now = torch.quantile(scores, self.noise_rate)
        quantiles = self.quantiles.clone()
        quantiles[self.batches_judged % len(quantiles)] = now
        if self.training:
            self.quantiles = quantiles
            self.batches_judged += 1
        return quantiles.nanmean() * (1 - _ROUNDING)

    def _remember(self, rows: Tensor, codes: Tensor) -> None:
        size = len(self.memory)
        rows, codes = rows[-size:], codes[-size:]
        first = self.rows_remembered
        places = torch.arange(first, first + len(rows), device=rows.device) % size
        self.memory[places], self.memory_labels[places] = rows, codes
        self.rows_remembered += len(rows)
        if not self.warm:
            labels = self.memory_labels[: self.rows_remembered]
            every_class = len(labels.unique()) == self.num_classes
            self.warm = every_class or self.rows_remembered >= size

    def extra_repr(self) -> str:
        """Return sizes, for `print(loss)`."""
        return (
            f"noise_rate={self.noise_rate:g}, {len(self.memory)} rows, {self.num_classes} classes, "
            f"window of {len(self.quantiles)} batches, score={'vmf' if self.by_density else 'mean'}"
        )


def squared_lengths(counts: Int[Tensor, " C"], centres: Float[Tensor, "C D"]) -> Tensor:
    """Compute R^2 of each class: what its rows say, and as much of the average as one more row.

    Of n rows, n R^2 - 1 over n - 1 has the expectation of R^2 of very many; a class of one row
    takes the average of all classes.

    Args:
        counts: (C,) rows of each class.
        centres: (C, D) their means.

    Returns:
        (C,), 0 at least.
    """
    beyond_one = (counts * centres.square().sum(1) - 1).masked_fill(counts == 0, 0)
    average = beyond_one.sum() / (counts - 1).clamp(min=0).sum().clamp(min=1)
    return ((beyond_one + average) / counts.clamp(min=1)).clamp(min=0)


def check_noise_rate(noise_rate: Any) -> float:
    """Return the rate in [0, 1), or a refusal that says where it comes from."""
    if noise_rate is None:
        raise InputError(
            "`noise_rate` must be given: PRISM drops that share of the labels; got None. Pass the "
            "rate you know or expect, such as 0.3."
        )
    rate = check_number(noise_rate, "noise_rate", 0.0, 1.0)
    if rate == 1:
        raise InputError("`noise_rate` must be below 1; got 1: no sample would be left.")
    return rate
