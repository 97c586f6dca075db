"""PRISM's filter against a loop over everything it remembers, and on planted clusters."""

import copy
import io
import math

import pytest
import torch
from hypothesis import given, strategies as st

from bspml.errors import InputError
from bspml.losses.prism import PRISMFilter, squared_lengths

ROUNDING = 1e-6
# A class whose rows cancel has an R^2 of some 1e-7, a rounding, so an R of some 3e-4.
ROUNDED_LENGTH = 2e-3


class Loop:
    """The filter by lists and loops: average similarity to every remembered row, one by one."""

    def __init__(self, classes, rate, size, window, score="mean"):
        self.classes, self.rate, self.size, self.window = classes, rate, size, window
        self.score = score
        self.memory, self.quantiles, self.warm, self.seen = [], [], False, 0

    def scores(self, rows, labels):
        found = []
        for x, y in zip(rows, labels, strict=True):
            means = self.means(x) if self.score == "mean" else self.densities(x)
            total = sum(math.exp(mean) for mean in means.values())
            found.append(math.exp(means[y]) / total if y in means else None)
        return found

    def means(self, x):
        means = {}
        for k in range(self.classes):
            similar = [float(x @ v) for v, label in self.memory if label == k]
            if similar:
                means[k] = sum(similar) / len(similar)
        return means

    def densities(self, x):
        """On the sphere in three dimensions, where C(kappa) = kappa / (4 pi sinh kappa)."""
        held = {}
        for v, label in self.memory:
            held.setdefault(label, []).append(v.double())
        # n R^2 - 1 is (n - 1) times the mean similarity of different rows of the class.
        pairs = {k: [float(a @ b) for a in rows for b in rows] for k, rows in held.items()}
        beyond = {k: sum(pairs[k]) / len(rows) - 1 for k, rows in held.items()}
        average = sum(beyond.values()) / max(1, sum(len(rows) - 1 for rows in held.values()))
        found = {}
        for k, rows in held.items():
            squared = min(max(0, (beyond[k] + average) / len(rows)), 0.999)
            kappa = max(1e-6, math.sqrt(squared) * (3 - squared) / (1 - squared))
            total = sum(rows)
            cosine = float(x.double() @ total / total.norm())
            # log sinh without overflow
            log_sinh = kappa + math.log(-math.expm1(-2 * kappa) / 2)
            found[k] = kappa * cosine + math.log(kappa / (4 * math.pi)) - log_sinh
        return found

    def __call__(self, emb, labels):
        rows = (emb.double() / emb.double().norm(dim=1, keepdim=True)).float()
        labels = labels.tolist()
        scores = self.scores(rows, labels)
        keep = [True] * len(rows)
        known = sorted(s for s in scores if s is not None)
        if self.warm and self.rate > 0 and known:
            place = self.rate * (len(known) - 1)
            low, high = known[math.floor(place)], known[math.ceil(place)]
            self.quantiles.append(low + (place - math.floor(place)) * (high - low))
            recent = self.quantiles[-self.window :]
            threshold = sum(recent) / len(recent)
            keep = [s is None or s >= threshold * (1 - ROUNDING) for s in scores]
        for kept, x, y in zip(keep, rows, labels, strict=True):
            if kept:
                self.memory = [*self.memory, (x, y)][-self.size :]
                self.seen += 1
        held = {label for _, label in self.memory}
        self.warm = self.warm or len(held) == self.classes or self.seen >= self.size
        return keep, scores


def planted(classes=8, per_class=12, width=16, spread=0.5, rate=0.25, seed=0):
    """Clusters around random directions, a share of the labels moved to another class."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.nn.functional.normalize(torch.randn(classes, width, generator=draw))
    true = torch.arange(classes).repeat_interleave(per_class)
    noise = torch.randn(len(true), width, generator=draw) * spread / math.sqrt(width)
    wrong = torch.randperm(len(true), generator=draw)[: round(rate * len(true))]
    labels = true.clone()
    shift = torch.randint(1, classes, (len(wrong),), generator=draw)
    labels[wrong] = (true[wrong] + shift) % classes
    return centres[true] + noise, labels, labels != true, draw


def batches(emb, labels, draw, size=24, epochs=3):
    for _ in range(epochs):
        for rows in torch.randperm(len(emb), generator=draw).split(size):
            yield rows, emb[rows], labels[rows]


@given(
    seed=st.integers(0, 2**20),
    classes=st.integers(1, 6),
    size=st.sampled_from([3, 20, 64]),
    window=st.sampled_from([1, 3]),
    rate=st.sampled_from([0.0, 0.1, 0.3, 0.9]),
)
def test_it_is_the_loop_over_all_remembered_rows(seed, classes, size, window, rate):
    draw = torch.Generator().manual_seed(seed)
    ours = PRISMFilter(classes, 3, rate, size, window)
    loop = Loop(classes, rate, size, window)
    for _ in range(6):
        emb = torch.randn(7, 3, generator=draw)
        labels = torch.randint(0, classes, (7,), generator=draw)
        expected, scores = loop(emb, labels)
        keep = ours(emb, labels)
        for mine, theirs in zip(ours.scores.tolist(), scores, strict=True):
            assert math.isnan(mine) if theirs is None else mine == pytest.approx(theirs, abs=1e-5)
        assert keep.tolist() == expected


@given(seed=st.integers(0, 2**20), classes=st.integers(1, 6))
def test_the_density_s_score_is_that_of_the_loop(seed, classes):
    draw = torch.Generator().manual_seed(seed)
    # At a rate of 0 all rows are remembered, so no rounding decides about the next batch.
    ours, loop = PRISMFilter(classes, 3, 0.0, 20, score="vmf"), Loop(classes, 0.0, 20, 1, "vmf")
    for _ in range(4):
        emb = torch.randn(7, 3, generator=draw) + torch.tensor([1.0, 0, 0])
        labels = torch.randint(0, classes, (7,), generator=draw)
        _, scores = loop(emb, labels)
        ours(emb, labels)
        expected = [math.nan if s is None else s for s in scores]
        assert ours.scores.tolist() == pytest.approx(expected, abs=ROUNDED_LENGTH, nan_ok=True)


@pytest.mark.parametrize("score", ["mean", "vmf"])
def test_it_finds_planted_wrong_labels_and_keeps_their_share(score):
    emb, labels, is_noisy, draw = planted(per_class=40)
    keep = PRISMFilter(8, 16, 0.25, memory_size=len(emb), score=score)
    dropped = torch.zeros(len(emb), dtype=torch.bool)
    for rows, x, y in batches(emb, labels, draw, size=64, epochs=8):
        dropped[rows] = ~keep(x, y)
    assert dropped.float().mean() == pytest.approx(0.25, abs=0.03)
    assert (dropped & is_noisy).sum() / dropped.sum() > 0.95
    assert (dropped & is_noisy).sum() / is_noisy.sum() > 0.95


def test_the_density_allows_a_scattered_class_what_a_tight_one_may_not_do():
    # Two classes 60 degrees apart; the middle is 30 degrees from both, where the mean similarity
    # is the higher for the tight one.
    draw = torch.Generator().manual_seed(0)
    tight = torch.tensor([1.0, 0, 0, 0]) + 0.02 * torch.randn(200, 4, generator=draw)
    wide = torch.tensor([0.5, 0.75**0.5, 0, 0]) + 0.4 * torch.randn(200, 4, generator=draw)
    labels = torch.arange(400) // 200
    middle = torch.tensor([[0.75**0.5, 0.5, 0, 0]])
    chance = {}
    for score in ("mean", "vmf"):
        keep = PRISMFilter(2, 4, 0.2, score=score)
        keep(torch.cat([tight, wide]), labels)
        chance[score] = keep.score(middle, torch.tensor([0])).item()
    assert chance["mean"] > 0.5
    assert chance["vmf"] < 1e-6


def test_a_class_of_one_row_is_as_tight_as_the_average():
    counts = torch.tensor([1, 2, 0, 3])
    centres = torch.tensor([[1.0, 0], [0.8, 0], [0, 0], [0.6, 0.0]])
    # n R^2 - 1: 0, .28, -, .08; average .36 / 3 = .12
    expected = [0.12, (0.28 + 0.12) / 2, 0.12, (0.08 + 0.12) / 3]
    assert squared_lengths(counts, centres).tolist() == pytest.approx(expected)


def test_the_threshold_is_of_the_window_so_a_clean_batch_loses_less():
    emb, labels, is_noisy, draw = planted(per_class=40)
    keep = PRISMFilter(8, 16, 0.25, memory_size=len(emb), window=20)
    for _, x, y in batches(emb, labels, draw, epochs=2):
        keep(x, y)
    keep.eval()
    clean, noisy = emb[~is_noisy][:24], emb[is_noisy][:24]
    from_clean = keep(clean, labels[~is_noisy][:24])
    from_noisy = keep(noisy, labels[is_noisy][:24])
    assert from_clean.float().mean() > 0.9
    assert from_noisy.float().mean() < 0.2


def test_every_row_is_kept_at_rate_0_and_during_start_up():
    emb, labels, _, draw = planted()
    free, filtering = PRISMFilter(8, 16, 0.0), PRISMFilter(8, 16, 0.5)
    assert filtering(emb[:30], labels[:30]).all()  # 3 of 8 classes
    assert not filtering.warm
    assert filtering(emb[:30], labels[:30]).all()
    for _, x, y in batches(emb, labels, draw):
        assert free(x, y).all()
    assert free.warm


def test_equal_scores_are_all_kept_whatever_the_rounding_of_their_mean():
    for classes in range(2, 30):
        emb, labels = torch.ones(2 * classes, 3), torch.arange(2 * classes) % classes
        keep = PRISMFilter(classes, 3, 0.4, window=7)
        assert all(bool(keep(emb, labels).all()) for _ in range(9))


def test_only_kept_rows_are_remembered():
    emb, labels, _, draw = planted(rate=0.3)
    keep = PRISMFilter(8, 16, 0.3, memory_size=500)
    total = 0
    for _, x, y in batches(emb, labels, draw, epochs=1):
        total += int(keep(x, y).sum())
    assert keep.rows_remembered == total < len(emb)


def test_a_class_that_left_the_memory_is_kept_and_comes_back():
    keep = PRISMFilter(2, 2, 0.4, memory_size=4)
    x = torch.tensor([[1.0, 0.0]] * 4)
    keep(torch.eye(2), torch.tensor([0, 1]))
    keep(x, torch.zeros(4, dtype=torch.int64))  # pushes class 1 out
    assert keep.centres()[0].tolist() == [4, 0]
    assert keep(x[:1], torch.tensor([1])).tolist() == [True]
    assert keep.scores.isnan().all()
    assert keep.centres()[0].tolist() == [3, 1]


def test_more_rows_than_the_memory_holds_leave_the_last_ones():
    keep = PRISMFilter(10, 1, 0.0, memory_size=4)
    keep(torch.ones(10, 1), torch.arange(10))
    assert sorted(keep.memory_labels.tolist()) == [6, 7, 8, 9]


def test_eval_mode_judges_and_changes_nothing():
    emb, labels, _, draw = planted()
    keep = PRISMFilter(8, 16, 0.25)
    for _, x, y in batches(emb, labels, draw):
        keep(x, y)
    keep.eval()
    before = copy.deepcopy(keep.state_dict())
    first, again = keep(x, y), keep(x, y)
    assert torch.equal(first, again)
    assert not first.all()
    for key, value in keep.state_dict().items():
        same = value == before[key] if isinstance(value, dict) else None
        assert same or torch.equal(torch.nan_to_num(value, 7.0), torch.nan_to_num(before[key], 7.0))


def test_a_resumed_filter_goes_on_exactly():
    emb, labels, _, draw = planted()
    stream = list(batches(emb, labels, draw, epochs=4))
    ours = PRISMFilter(8, 16, 0.25, memory_size=50, window=5)
    for _, x, y in stream[:7]:
        ours(x, y)
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    resumed = PRISMFilter(8, 16, 0.25, memory_size=50, window=5)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for _, x, y in stream[7:]:
        assert torch.equal(ours(x, y), resumed(x, y))
        assert torch.equal(ours.scores, resumed.scores)
        assert torch.equal(ours.quantiles, resumed.quantiles)


def test_order_length_and_precision_of_the_rows_do_not_matter():
    emb, labels, _, draw = planted()
    ours, other = (PRISMFilter(8, 16, 0.25) for _ in range(2))
    for _, x, y in batches(emb, labels, draw):
        order = torch.randperm(len(x), generator=draw)
        keep = ours(x, y)
        assert torch.equal(keep[order], other(5.0 * x[order].double(), y[order]))


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    keep = PRISMFilter(3, 3, 0.4)
    keep(torch.eye(3), torch.arange(3))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_rate": None}, "`noise_rate` must be given: PRISM drops that share"),
        ({"noise_rate": 1}, "`noise_rate` must be below 1; got 1"),
        ({"noise_rate": -0.1}, r"`noise_rate` must be in \[0, 1\]"),
        ({"noise_rate": math.nan}, "`noise_rate`"),
        ({"num_classes": 0}, "`num_classes` must be a whole number"),
        ({"embedding_size": 0}, "`embedding_size` must be a whole number"),
        ({"memory_size": 0}, "`memory_size` must be a whole number"),
        ({"window": 0}, "`window` must be a whole number"),
        ({"score": "median"}, "`score` must be one of mean, vmf; got 'median'"),
    ],
)
def test_impossible_settings_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        PRISMFilter(**{"num_classes": 2, "embedding_size": 2, "noise_rate": 0.1, **change})


def test_batches_that_do_not_fit_are_refused_and_not_remembered():
    keep = PRISMFilter(2, 2, 0.1)
    with pytest.raises(InputError, match=r"the memory's 2 columns; got 3"):
        keep(torch.eye(3), torch.tensor([0, 1, 1]))
    with pytest.raises(InputError, match=r"`labels` must be in \[0, 2\); got 0 to 2"):
        keep(torch.eye(2), torch.tensor([0, 2]))
    with pytest.raises(InputError, match="`labels` must be given"):
        keep(torch.eye(2), None)
    with pytest.raises(InputError, match="must be finite"):
        keep(torch.full((1, 2), math.nan), torch.tensor([0]))
    assert keep.rows_remembered == 0
    assert keep(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)).shape == (0,)


@pytest.mark.parametrize("score", ["mean", "vmf"])
@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_rows_of_any_finite_length_are_judged_alike(scale, score):
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 5
    emb = torch.eye(5)[labels] + 0.2 * torch.randn(40, 5, generator=draw)
    given = torch.where(torch.arange(40) < 6, (labels + 1) % 5, labels)
    keep = PRISMFilter(5, 5, 0.15, score=score)
    keep(scale * emb, labels)
    assert (~keep(scale * emb, given)).nonzero()[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
