"""Retrieval of whole sets of images, such as the frames of a video: CMC and mean average precision.

    frames (F, D) -> mean of each set's frames (S, D) -> cosine similarity of sets -> ranking

The protocol of MARS [Zheng 2016] as [Wang GR 2019] uses it: a video is the average of its frames'
embeddings, and a query is not compared with the sets that the same camera took of the same person.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from bspml.errors import InputError
from bspml.evaluation.neighbours import ranked_neighbours
from bspml.evaluation.sides import (
    check_columns,
    check_ignored,
    check_ks,
    check_reach,
    encode_jointly,
    flat,
    is_ignored,
    own_gallery_rows,
    warn_of_copies,
)
from bspml.shapes import Bool, Float, Int, Tensor
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import Labels, check_embeddings, encode_labels, normalize_rows
from bspml.tensors.copies import first_copies, rounding, row_digests
from bspml.tensors.row_index import check_same_columns, check_same_rows
from bspml.tensors.unit_rows import grid_unit_rows

KS = (1, 5, 10, 20)  # of CMC@K, where nobody chose them; known by identity


@dataclass(frozen=True)
class SetMetrics:
    """What `evaluate_sets` found; every share is in [0, 1].

    Attributes:
        cmc_at_k: {k: share of queries with a match among their k nearest sets}.
        mean_average_precision: mean over queries of the mean, over their matches, of the precision
            at the match's rank.
        map_trapezoid: the same with the precision averaged over the steps before and after each
            match: the area under the curve by the trapezoid rule, which the evaluation published
            with MARS computes.
        num_queries: queries in the means.
        num_excluded: queries without any match left in the gallery, not in the means.
        num_gallery: sets that are searched.
        num_ignored: pairs of a query and a set left out as the same class before the same camera.
        num_frames: frames averaged, of queries and gallery.
        num_ignored_frames: frames left out, as their label counts nowhere.
        num_copies: sets that are exact copies: of earlier ones, or queries that the gallery has.
        zero_sets: positions of query sets whose average is 0; their similarities are all 0.
    """

    cmc_at_k: dict[int, float]
    mean_average_precision: float
    map_trapezoid: float
    num_queries: int
    num_excluded: int
    num_gallery: int
    num_ignored: int
    num_frames: int
    num_ignored_frames: int = 0
    num_copies: int = 0
    zero_sets: tuple[int, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """Flat and ready for JSON: "cmc_at_1", ..., zero sets as their number."""
        return flat(self, "cmc_at_")

    def table(self) -> str:
        """Return one line per number, for a terminal."""
        lines = [f"CMC@{k:<11d}{100 * v:6.2f} %" for k, v in self.cmc_at_k.items()]
        lines += [
            f"{'mAP':<15}{100 * self.mean_average_precision:6.2f} %",
            f"{'mAP (trapezoid)':<15}{100 * self.map_trapezoid:6.2f} %",
            f"{self.num_queries} query sets, {self.num_gallery} gallery sets of {self.num_frames} "
            f"frames in all, {self.num_excluded} queries left out (no match in the gallery)",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class FrameSets:
    """Frames grouped into sets; see `group_frames`.

    Attributes:
        means: (S, D) float64, the average of each set's frames.
        classes: (S,) the label of each set, as given.
        set_ids: (S,) which set it is, sorted.
        cameras: (S,) the camera of each set, or None.
        sizes: (S,) frames of each set.
        num_ignored: frames left out for their label.
    """

    means: Float[Tensor, "S D"]
    classes: np.ndarray
    set_ids: np.ndarray
    cameras: np.ndarray | None
    sizes: Int[Tensor, " S"]
    num_ignored: int

    @property
    def points(self) -> np.ndarray:
        """(S,) bool, the sets whose average is not 0."""
        return (self.means != 0).any(1).numpy()


def evaluate_sets(
    embeddings: Any,
    labels: Any,
    set_ids: Any,
    cameras: Any = None,
    ks: Any = KS,
    gallery: Any = None,
    gallery_labels: Any = None,
    gallery_set_ids: Any = None,
    gallery_cameras: Any = None,
    normalize_frames: bool = False,
    ignore: Any = (),
    query_in_gallery: bool = False,
) -> SetMetrics:
    """Rank the sets of the gallery for every set of the queries.

    Without a gallery each set is searched for among all the others.  Equal similarities are
    ordered by gallery set, in the order of their ids.

    Memory: a few bytes for each pair of a query set and a gallery set.

    With sets of one frame and without cameras, `cmc_at_k` is `evaluate`'s `recall_at_k`.

    Args:
        embeddings: (F, D) frames of the queries, any floating type.
        labels: (F,) class of each frame, the same throughout a set: integers or strings.
        set_ids: (F,) which set a frame belongs to: integers or strings.
        cameras: (F,) which camera took it, the same throughout a set; None compares every set
            with every other.  With a gallery, both sides need them.
        ks: the K of CMC@K.  Of the default, those beyond the gallery are left out, and said.
        gallery, gallery_labels, gallery_set_ids, gallery_cameras: the same of the sets to search
            in.  Set ids of the two sides are unrelated.  Distractors are sets with a label that
            no query has.
        normalize_frames: scale each frame to norm 1 before averaging; otherwise a longer embedding
            counts more in its set's average, as the paper has it.
        ignore: labels that count nowhere, such as (-1,): their frames are left out of both sides.
        query_in_gallery: the queries are sets of the gallery, too, and each is compared with all
            but its own, as in `bspml.evaluate`: the one of exactly the same average and label.

    Raises:
        InputError: NaN or infinite rows, shapes that do not fit, other pandas indices, a set with
            two labels or cameras, a chosen K beyond the gallery, a query that is not in it, or no
            query with a match.

    Warns:
        UserWarning: sets that are exact copies of others, or, with a gallery, queries that are in
            it; frames that are exact copies of others of their set; an average of 0; a default K
            that does not fit.

    Example:
        >>> frames = [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> found = evaluate_sets(frames, list("aabaab"), [0, 0, 1, 2, 3, 4], ks=[1])
        >>> found.cmc_at_k[1], round(found.mean_average_precision, 3)
        (0.6, 0.683)
    """
    check_flags(normalize_frames=normalize_frames, query_in_gallery=query_in_gallery)
    by_default, ks = ks is KS, check_ks(ks)
    check_same_columns(embeddings=embeddings, gallery=gallery)
    alone, options = gallery is None, {"normalize_frames": normalize_frames, "ignore": ignore}
    queries = group_frames(embeddings, labels, set_ids, cameras, **options)
    theirs = {"labels": gallery_labels, "set_ids": gallery_set_ids, "cameras": gallery_cameras}
    if alone:
        for name, value in theirs.items():
            if value is not None:
                raise InputError(f"`gallery_{name}` comes with `gallery`, which was not given.")
        searched = queries
    else:
        searched = group_frames(gallery, prefix="gallery_", **theirs, **options)
    _check_sides(queries, searched)
    check_ignored(ignore, *(encode_labels(y) for y in (labels, gallery_labels) if y is not None))
    same_class = _equal(queries.classes, searched.classes, "labels")
    ignored = torch.zeros_like(same_class)
    if queries.cameras is not None and searched.cameras is not None:
        ignored = same_class & _equal(queries.cameras, searched.cameras, "cameras")
    own = torch.arange(len(queries.means), device="cpu") if alone else None
    if query_in_gallery and not alone:
        own = _own_sets(queries, searched)
    available = len(searched.means) - (own is not None)
    ks = check_reach(ks, available, own is not None, "sets", by_default)
    if own is not None:
        ignored[torch.arange(len(own), device="cpu"), own] = True
    sides = [searched] if own is not None else [searched, queries]
    told = [(grid_unit_rows(side.means), side.points, side.set_ids) for side in sides]
    classes, name = len(np.unique(searched.classes)), "embeddings" if alone else "gallery"
    copies = warn_of_copies(told, _tolerance(queries), classes, name, "sets")
    metrics = _set_metrics(queries, searched, same_class, ignored, ks)
    both = [queries] if alone else [queries, searched]
    return replace(
        metrics,
        num_ignored=metrics.num_ignored - (0 if own is None else len(own)),
        num_frames=sum(int(side.sizes.sum()) for side in both),
        num_ignored_frames=sum(side.num_ignored for side in both),
        num_copies=copies,
    )


def _own_sets(queries: FrameSets, searched: FrameSets) -> Int[Tensor, " Q"]:
    """Return the set of the gallery that each query is."""
    count = len(queries.means)
    codes = encode_jointly(queries.classes, count, searched.classes, len(searched.means))
    rows = [grid_unit_rows(side.means) for side in (queries, searched)]
    return own_gallery_rows(rows, codes, _tolerance(queries), np.arange(count), "sets")


def _tolerance(side: FrameSets) -> float:
    """Return how far averages lie apart that are equal within a rounding."""
    return rounding(torch.finfo(torch.float32).eps, side.means.shape[1])


def group_frames(
    embeddings: Any,
    labels: Any,
    set_ids: Any,
    cameras: Any = None,
    normalize_frames: bool = False,
    prefix: str = "",
    ignore: Any = (),
) -> FrameSets:
    """Average the frames of each set.

    Args:
        embeddings, labels, set_ids, cameras, normalize_frames: as for `evaluate_sets`.
        prefix: of the argument names in messages.
        ignore: labels whose frames are left out.

    Raises:
        InputError: as for `evaluate_sets`.
    """
    check_flags(normalize_frames=normalize_frames)
    name = prefix.rstrip("_") or "embeddings"
    named = {"labels": labels, "set_ids": set_ids, "cameras": cameras}
    check_same_rows(**{name: embeddings}, **{prefix + key: value for key, value in named.items()})
    frames = check_embeddings(embeddings, name).detach().double()
    if len(frames) == 0:
        raise InputError(f"`{name}` must have at least one row; got {tuple(frames.shape)}.")
    given = {key: value for key, value in named.items() if key != "cameras" or value is not None}
    known = {key: encode_labels(value, len(frames), prefix + key) for key, value in given.items()}
    ignored = is_ignored(known["labels"], ignore, name)
    numbers = np.flatnonzero(~ignored)
    if len(numbers) < len(frames):
        frames = frames[torch.from_numpy(numbers).to(frames.device)]
        # Encoded anew: classes of none of these are gone.
        known = {k: encode_labels(e.classes[e.codes.numpy()[numbers]]) for k, e in known.items()}
    sets = known["set_ids"]
    codes = sets.codes.to(frames.device)
    if normalize_frames:
        frames = normalize_rows(frames)
    _warn_of_repeats(frames, sets, numbers, name)
    sizes = torch.bincount(sets.codes, minlength=len(sets.classes))
    sums = frames.new_zeros(len(sizes), frames.shape[1]).index_add_(0, codes, frames)
    first = np.unique(sets.codes.numpy(), return_index=True)[1]  # (S,) the first frame of each
    of_sets = {
        key: _of_sets(encoded, prefix + key, sets, first, numbers) for key, encoded in known.items()
    }
    return FrameSets(
        means=(sums / sizes.to(sums)[:, None]).cpu(),
        classes=of_sets["labels"],
        set_ids=sets.classes,
        cameras=of_sets.get("cameras"),
        sizes=sizes,
        num_ignored=int(ignored.sum()),
    )


def _warn_of_repeats(
    frames: Float[Tensor, "F D"], sets: Labels, numbers: np.ndarray, name: str
) -> None:
    """Warn, for the caller of the caller, of frames that their set has twice.

    Not where a set has no other ones, as their average is the same.
    """
    codes = sets.codes.numpy()
    first = first_copies(np.char.add(row_digests(frames), codes.astype("S20")))
    is_copy = first != np.arange(len(first))
    copies = np.flatnonzero(is_copy & (np.bincount(codes[~is_copy])[codes] > 1))
    if len(copies):
        row, at = copies[0], sets.classes[codes[copies[0]]]
        warnings.warn(
            f"`{name}`: {len(copies)} of {len(first)} frames are exact copies of others of their "
            f"set (frame {numbers[row]} of {numbers[first[row]]}, set {at}), and count again in "
            "its average. If a sampler repeated them, as DistributedSampler does, drop them.",
            stacklevel=4,
        )


def _of_sets(
    encoded: Labels, name: str, sets: Labels, first: np.ndarray, numbers: np.ndarray
) -> np.ndarray:
    """Return the one value of each set, or refuse a set with several, naming it."""
    own, set_ids = encoded.codes.numpy(), sets.classes
    per_set = own[first]
    off = per_set[sets.codes.numpy()] != own
    if off.any():
        row = int(np.flatnonzero(off)[0])
        at = int(sets.codes[row])
        raise InputError(
            f"`{name}` must be one for all frames of a set; set {set_ids[at]!s} has "
            f"{encoded.classes[per_set[at]]!s} and {encoded.classes[own[row]]!s} (frame "
            f"{numbers[row]}). Give each of them a set of its own."
        )
    return encoded.classes[per_set]


def _check_sides(queries: FrameSets, searched: FrameSets) -> None:
    check_columns(queries.means, searched.means)
    if (queries.cameras is None) != (searched.cameras is None):
        raise InputError(
            "`cameras` and `gallery_cameras` come together; got only one of them. Without both, "
            "no set can be left out as the same camera's."
        )


def _equal(ours: np.ndarray, theirs: np.ndarray, name: str) -> Bool[Tensor, "Q G"]:
    """Return (Q, G), whether the two are the same; no text equals a number."""
    codes, gallery_codes = encode_jointly(ours, len(ours), theirs, len(theirs), name)
    return codes[:, None] == gallery_codes


def _set_metrics(
    queries: FrameSets,
    searched: FrameSets,
    same_class: Bool[Tensor, "Q G"],
    ignored: Bool[Tensor, "Q G"],
    ks: tuple[int, ...],
) -> SetMetrics:
    matches = (same_class & ~ignored).sum(1)
    answerable = (matches > 0).nonzero()[:, 0]
    if not len(answerable):
        raise InputError(
            f"`labels`: none of the {len(matches)} query sets has a match in the gallery, so "
            "nothing can be retrieved. Are these the right labels, set ids and cameras?"
        )
    rows, gallery = grid_unit_rows(queries.means)[answerable], grid_unit_rows(searched.means)
    first = torch.empty(len(answerable), dtype=torch.int64, device="cpu")
    precision, trapezoid = torch.empty(2, len(answerable), dtype=torch.float64, device="cpu")
    for part, neighbours in ranked_neighbours(rows, gallery, len(gallery)):
        query_sets = answerable[part]
        hit = (same_class & ~ignored)[query_sets].gather(1, neighbours)  # (b, G) by rank
        # Ignored sets take no rank: those behind them move up.
        is_counted = (~ignored[query_sets]).gather(1, neighbours)
        rank = is_counted.cumsum(1).double()  # from 1, where counted
        hits = hit.cumsum(1).double()
        total = matches[query_sets].double()
        first[part] = rank.gather(1, hit.byte().argmax(1, keepdim=True))[:, 0].long() - 1
        precision[part] = (hits / rank.clamp(min=1) * hit).sum(1) / total
        # One rank earlier: hits - 1 of rank - 1 sets, taken as 1 before the first set.
        before = torch.where(rank > 1, (hits - 1) / (rank - 1).clamp(min=1), 1.0)
        trapezoid[part] = ((hits / rank.clamp(min=1) + before) / 2 * hit).sum(1) / total
    zero = (queries.means == 0).all(1).nonzero()[:, 0].tolist()
    if zero:
        warnings.warn(
            f"the frames of query set {queries.set_ids[zero[0]]} average to 0 ({len(zero)} such "
            "sets): their similarities are all 0.",
            stacklevel=3,
        )
    return SetMetrics(
        cmc_at_k={k: float((first < k).double().mean()) for k in ks},
        mean_average_precision=float(precision.mean()),
        map_trapezoid=float(trapezoid.mean()),
        num_queries=len(answerable),
        num_excluded=len(matches) - len(answerable),
        num_gallery=len(gallery),
        num_ignored=int(ignored.sum()),
        num_frames=0,
        zero_sets=tuple(zero),
    )
