import io
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from pytorch_metric_learning.samplers import MPerClassSampler
from pytorch_metric_learning.utils import common_functions as c_f
from torch.utils.data import DataLoader, Dataset

from bspml.data.sampler import PKSampler
from bspml.errors import CheckpointError, InputError
from helpers.draws import balanced


def unequal(seed=0, classes=30):
    rng = np.random.default_rng(seed)
    return rng.permutation(np.repeat(np.arange(classes), rng.integers(2, 15, classes)))


class Items(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor([float(i)]), i


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_every_batch_has_p_classes_of_k_samples_in_blocks(seed):
    labels = unequal(seed)
    batches = list(PKSampler(labels, 7, 4, batches_per_epoch=40, seed=seed))
    assert len(batches) == 40
    for batch in batches:
        blocks = labels[batch].reshape(7, 4)
        assert len(batch) == 28
        assert all(type(row) is int for row in batch)
        assert (blocks == blocks[:, :1]).all()
        assert len(set(blocks[:, 0])) == 7


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_a_batch_are_distinct_except_in_short_classes(seed):
    labels = unequal(seed)
    sizes = Counter(labels.tolist())
    batches = list(PKSampler(labels, 7, 4, batches_per_epoch=60, seed=seed))
    assert len(batches) == 60
    for batch in batches:
        rows = np.array(batch).reshape(7, 4)
        for group in rows:
            assert len(set(group)) == min(4, sizes[int(labels[group[0]])])


def test_a_short_class_shows_each_of_its_rows_almost_equally():
    labels = [0, 0, 0, 1, 1, 1, 1, 1, 1]
    batches = list(PKSampler(labels, 2, 8, batches_per_epoch=30))
    assert len(batches) == 30
    for batch in batches:
        counts = Counter(row for row in batch if row < 3)  # 8 places, 3 rows: 3 + 3 + 2
        assert sorted(counts.values()) == [2, 3, 3]


def test_an_epoch_of_balanced_classes_shows_every_sample_exactly_once():
    sampler = PKSampler(balanced(12, 8), 4, 4)
    assert len(sampler) == 6
    assert sorted(row for batch in sampler for row in batch) == list(range(96))
    assert sampler.coverage() == 1.0


def test_classes_come_up_equally_often_at_any_point_of_an_epoch():
    labels = balanced(30, 14)
    seen = Counter()
    for batch in PKSampler(labels, 6, 4):
        seen.update(set(labels[batch].tolist()))
        counts = [seen[c] for c in range(30)]
        assert max(counts) - min(counts) <= 1
    assert seen.total() == 30 * 4


def test_the_turns_of_a_class_are_spread_over_an_epoch():
    labels = np.repeat(np.arange(30), [80] + [20] * 29)
    sampler = PKSampler(labels, 7, 4)
    seen = Counter()
    for number, batch in enumerate(sampler, start=1):
        seen.update(set(labels[batch].tolist()))
        due = np.array([20] + [5] * 29) * number / len(sampler)
        assert (np.abs([seen[c] for c in range(30)] - due) <= 2).all()
    assert number == len(sampler) == 24  # 165 turns, 7 to a batch


SIZES = {
    "one more": ([10] * 9 + [11], 5, 4, 6),
    "few classes": ([50, 20, 20, 11], 4, 4, 13),
    "one class rules": ([50, 2, 2, 3, 2], 2, 4, 13),
    "uneven": ([2, 3, 5, 7, 11, 13, 17, 19, 23, 29], 3, 4, 13),
    "all in a batch": ([3, 2, 3], 3, 4, 1),
    "no pairs asked for": ([1, 1, 5, 2], 2, 1, 5),
}


@pytest.mark.parametrize(("sizes", "p", "k", "length"), SIZES.values(), ids=SIZES)
def test_an_epoch_shows_every_row_in_the_fewest_batches(sizes, p, k, length):
    rng = np.random.default_rng(len(sizes))
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    sampler = PKSampler(labels, p, k)
    # A batch shows at most K rows of a class, and P classes.
    fewest = max(max(-(-n // k) for n in sizes), -(-sum(-(-n // k) for n in sizes) // p))
    assert len(sampler) == length == fewest
    for _ in range(5):
        batches = list(sampler)
        assert {row for batch in batches for row in batch} == set(range(sum(sizes)))
        assert len(batches) == length
        assert all(len(set(labels[batch])) == p for batch in batches)
        assert sampler.coverage() == 1.0


def test_fewer_batches_than_show_every_row_show_as_many_as_they_can():
    labels = np.repeat(np.arange(4), [50, 20, 20, 11])
    sampler = PKSampler(labels, 4, 4, batches_per_epoch=7)
    shown = {row for batch in sampler for row in batch}
    assert Counter(labels[sorted(shown)].tolist()) == {0: 28, 1: 20, 2: 20, 3: 11}
    shown |= {row for batch in sampler for row in batch}
    assert len(shown) == 101  # the 22 others of the first class come first in the next epoch


def test_every_sample_is_reachable():
    labels = unequal(1)
    sampler = PKSampler(labels, 7, 4)
    seen = set()
    for _ in range(20):
        seen.update(row for batch in sampler for row in batch)
    assert seen == set(range(len(labels)))


@pytest.mark.parametrize("labels", [balanced(16, 6), unequal(2), unequal(5)])
def test_coverage_is_at_least_that_of_m_per_class_sampler(labels, monkeypatch):
    monkeypatch.setattr(c_f, "NUMPY_RANDOM", np.random.RandomState(0))
    sampler = PKSampler(labels, 8, 4)
    theirs = MPerClassSampler(labels, 4, 32, length_before_new_iter=len(sampler) * 32)
    for _ in range(5):
        ours = {row for batch in sampler for row in batch}
        assert sampler.coverage() == pytest.approx(len(ours) / len(labels))
        assert len(ours) >= len({int(row) for row in theirs})


@pytest.mark.parametrize(
    "labels",
    [
        np.array(list("bbaaccbbaacc")),
        torch.tensor([5, 5, -3, -3, 7, 7, 5, 5, -3, -3, 7, 7]),
        [True, True, False, False] * 3,
        [1.0, 1.0, 2.0, 2.0] * 3,
    ],
)
def test_labels_of_any_kind_are_grouped_by_equality(labels):
    plain = labels.tolist() if hasattr(labels, "tolist") else labels
    batches = list(PKSampler(labels, 2, 3))
    assert batches
    for batch in batches:
        first, second = [[plain[row] for row in batch[k : k + 3]] for k in (0, 3)]
        assert len(set(first)) == len(set(second)) == 1
        assert first[0] != second[0]


def test_renaming_the_labels_in_order_changes_nothing():
    labels = unequal(4)
    assert list(PKSampler(labels, 5, 3)) == list(PKSampler([f"{c:03d}" for c in labels], 5, 3))


# --- order ----------------------------------------------------------------------------------------


def test_an_epoch_depends_on_seed_and_epoch_only():
    labels = unequal()
    one, two = PKSampler(labels, 5, 4, seed=3), PKSampler(labels, 5, 4, seed=3)
    list(one), list(one), next(iter(two))  # different pasts
    one.set_epoch(7)
    two.set_epoch(7)
    assert list(one) == list(two)
    orders = []
    for seed, epoch in [(3, 7), (3, 8), (4, 7), (7, 3)]:
        sampler = PKSampler(labels, 5, 4, seed=seed)
        sampler.set_epoch(epoch)
        orders.append(str(list(sampler)))
    assert len(set(orders)) == 4


def test_iterating_again_goes_on_with_the_next_epoch():
    sampler, fresh = PKSampler(unequal(), 5, 4), PKSampler(unequal(), 5, 4)
    epochs = [list(sampler) for _ in range(3)]
    assert (sampler.epoch, sampler.position) == (2, len(sampler))
    for epoch, batches in enumerate(epochs):
        fresh.set_epoch(epoch)
        assert list(fresh) == batches
    assert epochs[0] != epochs[1] != epochs[2]


def ten(sampler):
    return list(islice(sampler, 10))


@pytest.mark.parametrize("batches", [None, 10])
def test_ten_batches_of_each_epoch_show_every_row_in_the_end(batches):
    labels, mask = balanced(20, 30), np.ones(600, dtype=bool)
    sampler, plain = PKSampler(labels, 4, 4, batches), PKSampler(labels, 4, 4, batches)
    seen, epochs = set(), []
    for _ in range(5):
        sampler.set_rows(mask, labels)
        epochs.append(ten(sampler))
        assert epochs[-1] == ten(plain)
        seen.update(row for batch in epochs[-1] for row in batch)
    assert seen == set(range(600))
    assert sampler.epoch == 4
    # What came last in a class had been shown: 3 x 8 of its 30 rows were, then the 6 others are.
    first = Counter(row for epoch in epochs[:3] for batch in epoch for row in batch)
    assert set(first.values()) == {1}


@pytest.mark.parametrize("batches", [None, 2])
@pytest.mark.parametrize("sizes", [[4] * 60 + [5], [*range(2, 13)] * 6, [4] * 20 + [30]])
def test_no_class_starves_where_epochs_are_short(batches, sizes):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    sampler, drawn = PKSampler(labels, 8, 4, batches), 0
    shown = np.zeros(len(labels), dtype=int)
    whole = len(PKSampler(labels, 8, 4))
    for _ in range(10 * whole):
        for batch in islice(sampler, 2):
            shown[batch] += 1
            drawn += 1
    # Once in as many batches as show every row, less what shorter epochs waste.
    assert shown.min() >= 0.75 * drawn / whole


def test_an_iteration_broken_off_costs_nothing():
    sampler = PKSampler(balanced(20, 16), 4, 4)
    assert len(sampler) == 20
    parts = [list(islice(sampler, 15)) for _ in range(3)]
    assert [len(part) for part in parts] == [15, 15, 15]
    assert parts[0] != parts[1] != parts[2]
    assert len(list(sampler)) == 20
    iter(sampler)
    assert len(list(sampler)) == 20
    assert sampler.epoch == 4


def test_after_set_epoch_nothing_of_the_past_is_left():
    sampler, fresh = PKSampler(unequal(), 5, 4), PKSampler(unequal(), 5, 4)
    ten(sampler)
    sampler.set_epoch(1)
    fresh.set_epoch(1)
    assert list(sampler) == list(fresh)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_opened_twice_yields_whole_epochs(workers):
    labels = balanced(20, 16)
    sampler = PKSampler(labels, 4, 4)
    loader = DataLoader(Items(len(labels)), batch_sampler=sampler, num_workers=workers)
    iter(loader)
    rows = [rows.tolist() for _, rows in loader]
    assert len(rows) == 20
    assert sorted(np.concatenate(rows)) == list(range(320))


def test_the_global_random_state_is_neither_read_nor_changed():
    batches = []
    for global_seed in (0, 1):
        np.random.seed(global_seed)  # noqa: NPY002
        torch.manual_seed(global_seed)
        before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
        batches.append(list(PKSampler(unequal(), 5, 4)))
        assert (np.random.get_state()[1] == before[0]).all()  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), before[1])
    assert batches[0] == batches[1]


# --- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumed", [0, 1, 5])
def test_a_resumed_epoch_yields_exactly_the_remaining_batches(consumed):
    labels = unequal()
    mask = np.arange(len(labels)) % 5 > 0
    sampler = PKSampler(labels, 6, 3, batches_per_epoch=9, seed=1)
    sampler.set_rows(mask)
    list(sampler)
    sampler.set_epoch(1)
    iterator = iter(sampler)
    for _ in range(consumed):
        next(iterator)
    saved = io.BytesIO()
    torch.save(sampler.state_dict(), saved)
    saved.seek(0)
    rest, following = list(iterator), list(sampler)

    resumed = PKSampler(labels, 6, 3, batches_per_epoch=9, seed=1)
    resumed.load_state_dict(torch.load(saved, weights_only=True))
    assert list(resumed) == rest
    assert len(rest) == 9 - consumed
    assert resumed.coverage() == pytest.approx(sampler_coverage(labels, mask, 1))
    assert list(resumed) == following


def sampler_coverage(labels, mask, epoch):
    whole = PKSampler(labels, 6, 3, batches_per_epoch=9, seed=1)
    whole.set_rows(mask)
    whole.set_epoch(epoch)
    return len({row for batch in whole for row in batch}) / mask.sum()


def test_a_state_saved_after_the_last_batch_goes_on_with_the_next_epoch():
    sampler = PKSampler(unequal(), 5, 4)
    iterator = iter(sampler)
    for _ in range(len(sampler)):
        next(iterator)  # the end itself has not been asked for
    resumed = PKSampler(unequal(), 5, 4)
    resumed.load_state_dict(sampler.state_dict())
    assert list(resumed) == list(sampler)
    assert resumed.epoch == 1


@pytest.mark.parametrize("batches", [None, 4, 9])
@pytest.mark.parametrize("change", [False, True])
def test_a_resumed_sampler_remembers_what_broken_off_epochs_have_shown(batches, change):
    labels = unequal(2)
    sampler, resumed = PKSampler(labels, 5, 3, batches), PKSampler(labels, 5, 3, batches)
    for taken in (3, 2, 4):
        list(islice(sampler, taken))
    resumed.load_state_dict(sampler.state_dict())
    if change:  # the place is of other rows then: both go on with the next epoch
        for each in (sampler, resumed):
            each.set_rows(np.arange(len(labels)) % 7 > 0)
    else:
        running = iter(sampler)  # the next epoch; the resumed one still has the rest of its own
        list(resumed), next(running)
        resumed.load_state_dict(sampler.state_dict(position=0))
        sampler.load_state_dict(sampler.state_dict(position=0))
    for _ in range(3):
        assert list(resumed) == list(sampler)


def test_set_epoch_can_enter_an_epoch_at_a_position():
    sampler = PKSampler(unequal(), 5, 4)
    sampler.set_epoch(3)
    batches = list(sampler)
    sampler.set_epoch(3, position=2)
    assert list(sampler) == batches[2:]


def test_an_abandoned_iteration_does_not_move_the_position_of_a_newer_one():
    sampler = PKSampler(balanced(12, 8), 4, 4)
    old = iter(sampler)
    next(old)
    sampler.set_epoch(5)
    next(iter(sampler))
    next(old), next(old)
    assert (sampler.epoch, sampler.position) == (5, 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_yields_the_samplers_batches_and_the_consumed_count_resumes_it(workers):
    labels = balanced(12, 16)
    expected = list(PKSampler(labels, 4, 4))
    sampler = PKSampler(labels, 4, 4)
    loader = DataLoader(Items(len(labels)), batch_sampler=sampler, num_workers=workers)
    assert len(loader) == 12
    used = 0
    for _, rows in loader:
        assert rows.tolist() == expected[used]
        used += 1
        if used == 5:
            break
    assert used == 5
    assert sampler.position >= used  # workers ask for batches ahead of the loop
    resumed = PKSampler(labels, 4, 4)
    resumed.load_state_dict(sampler.state_dict(position=used))
    assert list(resumed) == expected[5:]


def test_pml_takes_it_as_a_batch_sampler():
    labels = balanced(12, 8)
    sampler = PKSampler(labels, 4, 4)
    loader = c_f.get_train_dataloader(Items(len(labels)), 999, sampler, 0, None)
    assert [rows.tolist() for _, rows in loader] == list(PKSampler(labels, 4, 4))


# --- rows -----------------------------------------------------------------------------------------


def test_only_allowed_rows_come_up_and_none_allows_all_again():
    labels = balanced(12, 8)
    sampler = PKSampler(labels, 4, 4)
    everything = list(sampler)
    mask = torch.arange(96) % 2 == 0
    sampler.set_rows(mask)
    assert len(sampler) == 3
    assert {row for batch in sampler for row in batch} == set(range(0, 96, 2))
    assert sampler.coverage() == 1.0
    sampler.set_rows(None)
    sampler.set_epoch(0)
    assert list(sampler) == everything


def test_new_rows_begin_an_epoch_and_rows_of_before_change_nothing():
    sampler = PKSampler(balanced(12, 8), 4, 4)
    mask = np.arange(96) % 2 == 0
    sampler.set_rows(mask)
    assert (sampler.epoch, sampler.position) == (0, 0)
    running = iter(sampler)
    next(running)
    for rows, labels in ((mask, None), (torch.tensor(mask), balanced(12, 8))):
        sampler.set_rows(rows, labels)
        assert (sampler.epoch, sampler.position) == (0, 1)
    next(running)
    assert (sampler.epoch, sampler.position) == (0, 2)  # still the newest iteration
    mask[1] = True
    sampler.set_rows(mask)
    assert (sampler.epoch, sampler.position) == (1, 0)
    next(running)
    assert (sampler.epoch, sampler.position) == (1, 0)
    shown = {row for batch in sampler for row in batch}
    assert shown == set(np.flatnonzero(mask))


def test_rows_that_change_a_little_every_epoch_are_all_seen():
    sampler, seen = PKSampler(balanced(20, 30), 4, 4), set()
    for epoch in range(5):
        mask = np.arange(600) != epoch
        sampler.set_rows(mask)
        seen.update(row for batch in ten(sampler) for row in batch)
    assert len(seen) >= 595


def test_the_callers_mask_is_copied():
    sampler = PKSampler(balanced(12, 8), 4, 4)
    mask = np.arange(96) % 2 == 0
    sampler.set_rows(mask)
    mask[:] = False
    assert sampler.state_dict()["rows"].sum() == 48


def test_single_rows_are_left_out_while_enough_classes_remain():
    labels = [0, 0, 0, 1, 1, 1, 2]
    sampler = PKSampler(labels, 2, 2, batches_per_epoch=20)
    assert {row for batch in sampler for row in batch} == set(range(6))
    assert sampler.num_usable == 6
    assert sampler.coverage() == pytest.approx(6 / 7)  # the single row is missed


def test_single_rows_fill_in_when_too_few_classes_have_a_pair():
    labels = [0, 0, 0, 1, 1, 1, 2]
    batch = next(iter(PKSampler(labels, 3, 2)))
    assert batch.count(6) == 2
    assert len(batch) == 6


def test_one_sample_per_class_needs_no_pairs():
    assert sorted(next(iter(PKSampler([3, 1, 2], 3, 1)))) == [0, 1, 2]


# --- messages -------------------------------------------------------------------------------------


def test_too_few_classes_are_refused_with_the_numbers():
    with pytest.raises(InputError, match=r"with rows to sample, 12 \(96 of 96 rows\); got 13"):
        PKSampler(balanced(12, 8), 13, 4)
    with pytest.raises(InputError, match=r"with rows to sample, 0 \(0 of 0 rows\); got 2"):
        PKSampler([], 2, 2)


def test_refused_rows_change_nothing():
    sampler = PKSampler(balanced(12, 8), 4, 4)
    expected = list(PKSampler(balanced(12, 8), 4, 4))
    next(iter(sampler))
    with pytest.raises(InputError, match=r"rows to sample, 3 \(24 of 96 rows\); got 4"):
        sampler.set_rows(np.arange(96) < 24)
    with pytest.raises(InputError, match=r"\(N,\) = \(96,\) bool.*got \(3,\) torch.int64"):
        sampler.set_rows([0, 1, 2])
    with pytest.raises(InputError, match="float32"):
        sampler.set_rows(torch.ones(96))
    sampler.load_state_dict(sampler.state_dict())
    assert list(sampler) == expected[1:]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"classes_per_batch": 0}, "classes_per_batch"),
        ({"samples_per_class": -2}, "samples_per_class"),
        ({"batches_per_epoch": 0}, "batches_per_epoch"),
        ({"seed": -1}, "seed"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, name):
    with pytest.raises(InputError, match=f"`{name}` must be a whole number"):
        PKSampler(balanced(12, 8), **{"classes_per_batch": 4, **arguments})


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (PKSampler(balanced(12, 9), 4, 4), "num_samples=108, this sampler has num_samples=96"),
        (PKSampler(balanced(12, 8)[::-1].copy() // 2, 4, 4), "labels_sha256"),
        (PKSampler(balanced(12, 8), 4, 4, seed=9), "seed=9, this sampler has seed=0"),
        (PKSampler(balanced(12, 8), 3, 4), "classes_per_batch=3"),
        (PKSampler(balanced(12, 8), 4, 4, batches_per_epoch=2), "batches_per_epoch=2"),
    ],
)
def test_a_state_of_another_sampler_is_refused(other, text):
    sampler = PKSampler(balanced(12, 8), 4, 4)
    next(iter(sampler))
    with pytest.raises(CheckpointError, match=text):
        sampler.load_state_dict(other.state_dict())
    assert (sampler.epoch, sampler.position) == (0, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"position": None},
        {"drawn_from": 3},
        {"codes": None},
        {"shown": torch.ones(3, dtype=torch.bool)},
        {"through": torch.ones(3, dtype=torch.bool)},
        {"rows": torch.ones(3, dtype=torch.bool)},
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change):
    sampler = PKSampler(balanced(12, 8), 4, 4)
    state = {**sampler.state_dict(), **change}
    next(iter(sampler))
    with pytest.raises(CheckpointError, match=r"what PKSampler\.state_dict"):
        sampler.load_state_dict(state)
    assert (sampler.epoch, sampler.position) == (0, 1)


def test_a_tiny_class_fills_any_number_of_places():
    sampler = PKSampler([0, 0, 1, 1], 2, 20_000, batches_per_epoch=1)
    (batch,) = sampler
    assert Counter(batch) == dict.fromkeys(range(4), 10_000)


def test_classes_are_drawn_by_the_labels_of_the_moment():
    given = [0] * 4 + [1] * 4 + [2] * 4
    repaired = [0] * 4 + [1] * 3 + [2] * 5
    sampler = PKSampler(given, 2, 2, seed=3)
    expected = PKSampler(repaired, 2, 2, seed=3)
    sampler.set_rows(None, repaired)
    assert list(sampler) == list(expected)
    saved = sampler.state_dict(position=1)
    resumed = PKSampler(given, 2, 2, seed=3)
    resumed.load_state_dict(saved)
    expected.set_epoch(0, position=1)
    assert list(resumed) == list(expected)
    sampler.set_rows(None)
    original = PKSampler(given, 2, 2, seed=3)
    original.set_epoch(sampler.epoch)
    assert list(sampler) == list(original)


def test_a_state_of_another_order_is_refused_in_a_sentence():
    saved = PKSampler([0, 0, 1, 1], 2, 2).state_dict()
    del saved["drawn_from"]["order"], saved["shown"]
    with pytest.raises(CheckpointError, match=r"draws its batches in another order: .* start"):
        PKSampler([0, 0, 1, 1], 2, 2).load_state_dict(saved)


def test_building_it_around_another_sampler_is_refused_with_what_to_do():
    s = PKSampler(balanced(12, 8), 4, 4)
    with pytest.raises(InputError, match=r"use_distributed_sampler=False.*`share"):
        type(s)(range(96), batch_size=s.batch_size, drop_last=s.drop_last)
    with pytest.raises(InputError, match=r"use_distributed_sampler=False.*`share"):
        PKSampler(balanced(12, 8), 4, 4, sampler=range(96))  # where it was made in a hook
    with pytest.raises(InputError, match="PKSampler takes no `class_per_batch`"):
        PKSampler(balanced(12, 8), class_per_batch=4)


def test_labels_are_asked_for_and_another_s_arguments_refused_without_them_too():
    with pytest.raises(InputError, match="`labels` must be one label per data-set row; got none"):
        PKSampler()
    order = torch.utils.data.SequentialSampler(range(9))
    with pytest.raises(InputError, match=r"use_distributed_sampler=False.*`share"):
        PKSampler(sampler=order, batch_size=3, drop_last=False)


def test_batches_and_epochs_that_fit_no_memory_are_refused():
    for sizes, words in (
        ({"samples_per_class": 10**12}, "`samples_per_class` must be at most 16,777,216 rows; got"),
        ({"batches_per_epoch": 10**18}, "`batches_per_epoch` must be at most 16,777,216 batches"),
    ):
        with pytest.raises(InputError, match=words):
            PKSampler([0, 0, 1, 1], 2, **sizes)


def test_a_place_behind_the_epoch_is_refused():
    sampler = PKSampler([0, 0, 1, 1], 2, 2)
    state = sampler.state_dict()
    for position, words in ((2, "is 2, an epoch has 1 batc"), (10**30, "must be a whole number")):
        with pytest.raises(CheckpointError, match=f"`position` {words}"):
            sampler.load_state_dict({**state, "position": position})
    sampler.load_state_dict({**state, "position": 1})
    del state["rows"]
    with pytest.raises(CheckpointError, match="'rows' is missing"):
        sampler.load_state_dict(state)
