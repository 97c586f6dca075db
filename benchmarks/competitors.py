"""What others would say about the labels: cleanlab, the vote of neighbours, a transition matrix.

Each takes features (N, D) and labels (N,) in [0, C), every class present, and returns `Opinion`s.

cleanlab [Northcutt 2021] reads probabilities of a logistic regression that did not see the sample:
5 folds, rows of the features centred and of norm 1; of `STRENGTHS`, the weakest penalty up to which
the log loss on the given labels of the fold left out still falls.

The vote [Zhu 2022] compares the label with the labels of the 10 nearest neighbours by cosine.  The
paper repeats it over random subsets and augmented images; features alone leave nothing to repeat.

The matrix [Zhu 2021] holds T[y, j] = P(label j | truth y).  A sample and its two nearest neighbours
are taken to share the truth, and their labels to be independent given it, so with p[y] = P(truth y)

    P(a) = sum_y p_y T_ya,   P(a, b) = sum_y p_y T_ya T_yb,   P(a, b, c) = sum_y p_y T_ya T_yb T_yc

The three are fitted to their observed shares: the sum of the Euclidean distances is minimised.  The
C^3 shares are never held, for |model|^2 = sum_yz p_y p_z (T_y . T_z)^3, and its product with the
observed shares is a mean over the samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp

STRENGTHS = (0.1, 0.3, 1, 3, 10, 30, 100)  # C of scikit-learn: the penalty is |w|^2 / (2 C)
FOLDS = 5
NEIGHBOURS = 10


@dataclass(frozen=True)
class Opinion:
    """How suspicious every label is, which are called wrong, and how many.

    Attributes:
        scores: (N,), large where the label looks wrong; may have ties.
        flags: (N,) bool.
        rate: estimated share of wrong labels, and the ends of its interval, NaN where none.
    """

    scores: np.ndarray
    flags: np.ndarray
    rate: tuple[float, float, float] = (np.nan, np.nan, np.nan)


def opinions(features: np.ndarray, labels: np.ndarray, seed: int) -> dict[str, Opinion]:
    """Of every competitor, by name; `seed` deals the folds."""
    near = nearest_neighbours(features, NEIGHBOURS)
    vote = neighbour_vote(labels, near)
    return {
        **cleanlab_opinions(labels, held_out_probabilities(features, labels, seed)),
        "vote": vote,
        **matrix_opinions(labels, near, vote.scores),
    }


# --------------------------------------------------------------------------------- cleanlab


def held_out_probabilities(features: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """(N, C) class probabilities of a logistic regression trained on the other folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedKFold

    rows = unit(unit(features) - unit(features).mean(0)).astype(np.float32)
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(rows, labels))
    models = [LogisticRegression(max_iter=300, warm_start=True) for _ in folds]
    best, lowest = np.zeros(0), np.inf
    for strength in STRENGTHS:
        probabilities = np.zeros((len(labels), labels.max() + 1))
        for model, (train, test) in zip(models, folds, strict=True):
            model.set_params(C=strength).fit(rows[train], labels[train])
            probabilities[np.ix_(test, model.classes_)] = model.predict_proba(rows[test])
        probabilities /= probabilities.sum(1, keepdims=True)  # they are of float32
        loss = log_loss(labels, probabilities)
        if loss > lowest:
            break
        best, lowest = probabilities, loss
    return best


def cleanlab_opinions(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, Opinion]:
    """By self-confidence and by normalised margin; flags and rate from the confident joint."""
    from cleanlab.count import estimate_joint
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    flags = find_label_issues(labels, probabilities, n_jobs=1)
    rate = 1 - float(np.trace(estimate_joint(labels, probabilities)))
    return {
        name: Opinion(
            -get_label_quality_scores(labels, probabilities, method=method),
            flags,
            (rate, np.nan, np.nan),
        )
        for name, method in (
            ("cleanlab", "self_confidence"),
            ("cleanlab margin", "normalized_margin"),
        )
    }


# ----------------------------------------------------------------------- neighbours and their vote


def unit(rows: np.ndarray) -> np.ndarray:
    """`rows` at norm 1."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def nearest_neighbours(features: np.ndarray, k: int) -> np.ndarray:
    """(N, k) other samples of largest cosine similarity, nearest first."""
    rows = unit(features.astype(np.float32))
    near = np.empty((len(rows), k), np.int64)
    for start in range(0, len(rows), 1024):
        similar = rows[start : start + 1024] @ rows.T
        own = np.arange(len(similar))
        similar[own, start + own] = -np.inf
        top = np.argpartition(-similar, k, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(similar, top, 1), axis=1, kind="stable")
        near[start : start + 1024] = np.take_along_axis(top, order, 1)
    return near


def neighbour_vote(labels: np.ndarray, near: np.ndarray) -> Opinion:
    """1 - cosine of the neighbours' label counts and the label; flagged where it is outvoted."""
    counts = label_counts(labels, near)
    own = counts[np.arange(len(labels)), labels]
    return Opinion(1 - own / np.linalg.norm(counts, axis=1), counts.max(1) > own)


def label_counts(labels: np.ndarray, near: np.ndarray) -> np.ndarray:
    """(N, C) how many of the neighbours carry each label."""
    counts = np.zeros((len(labels), labels.max() + 1))
    np.add.at(counts, (np.arange(len(labels))[:, None], labels[near]), 1)
    return counts


# ------------------------------------------------------------------------------ transition matrix


def matrix_opinions(labels: np.ndarray, near: np.ndarray, scores: np.ndarray) -> dict[str, Opinion]:
    """Of every class, as many as the matrix says are wrong, those of the largest scores.

    "matrix" ranks across classes by how far a sample's position in its class, as a share, lies
    before the share that is wrong.  "posterior", not in the paper, ranks by P(truth is the label |
    the label and those of all neighbours), taken to be independent given the truth.
    """
    transition, prior = transition_matrix(np.c_[labels, labels[near[:, :2]]])
    joint = prior[:, None] * transition
    wrong = 1 - np.diag(joint) / joint.sum(0)  # P(truth is another | label)
    ahead = wrong[labels] - position_in_class(labels, scores)
    counts = label_counts(labels, np.c_[np.arange(len(labels)), near])
    log_posterior = counts @ np.log(transition.T + 1e-12) + np.log(prior)
    log_posterior -= logsumexp(log_posterior, axis=1, keepdims=True)
    rate = (1 - float(np.trace(joint)), np.nan, np.nan)
    return {
        "matrix": Opinion(ahead, ahead > 0, rate),
        "posterior": Opinion(
            -log_posterior[np.arange(len(labels)), labels],
            log_posterior.argmax(1) != labels,
            rate,
        ),
    }


def position_in_class(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(N,) in (0, 1): share of the sample's class at larger scores, ties and itself by half."""
    position = np.empty(len(labels))
    for c in np.unique(labels):
        members = labels == c
        ordered = np.sort(-scores[members])
        before = np.searchsorted(ordered, -scores[members], "left")
        upto = np.searchsorted(ordered, -scores[members], "right")
        position[members] = (before + upto) / (2 * len(ordered))
    return position


def transition_matrix(triples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit T (C, C) and p (C,) to the labels (N, 3) of samples and their two nearest neighbours."""
    classes = int(triples.max()) + 1
    observed = torch.from_numpy(triples)
    # A distance has a kink at 0, where the search would stop: it is rounded off at a tenth of
    # 1 / sqrt(N), the order of the observed shares' own error.
    rounding = 0.01 / len(triples)
    # Of every order, the squared norm of the observed shares.
    norms = [
        float((np.unique(triples[:, :order], axis=0, return_counts=True)[1] ** 2).sum())
        / len(triples) ** 2
        for order in (1, 2, 3)
    ]

    def distance(parameters: torch.Tensor) -> torch.Tensor:
        transition, prior = unpack(parameters, classes)
        of_sample = prior.expand(len(observed), -1)
        inner, pairs = transition @ transition.T, prior[:, None] * prior
        total = torch.zeros((), dtype=torch.float64)
        for order, norm in zip((1, 2, 3), norms, strict=True):
            of_sample = of_sample * transition.T[observed[:, order - 1]]
            squared = (pairs * inner**order).sum() - 2 * of_sample.sum(1).mean() + norm
            total = total + (squared.clamp_min(0) + rounding).sqrt()
        return total

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.from_numpy(flat).requires_grad_()
        value = distance(parameters)
        (gradient,) = torch.autograd.grad(value, parameters)
        return value.item(), gradient.numpy()

    start = np.concatenate([
        # A diagonal of 0.7: the truth is the likeliest label, which tells the classes apart.
        (np.eye(classes) * np.log(0.7 / 0.3 * max(classes - 1, 1))).ravel(),
        np.log(np.bincount(triples[:, 0], minlength=classes)),
    ])  # fmt: skip
    found = minimize(
        value_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}
    )
    transition, prior = unpack(torch.from_numpy(found.x), classes)
    return transition.numpy(), prior.numpy()


def unpack(parameters: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """T and p, each row on the simplex, from unbounded numbers (C * C + C,)."""
    table = parameters.reshape(classes + 1, classes).softmax(1)
    return table[:-1], table[-1]
