import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from bspml.tensors.copies import (
    first_copies,
    near_digests,
    own_rows,
    rounding,
    row_digests,
    row_keys,
)
from bspml.tensors.unit_rows import grid_unit_rows
from helpers.draws import randn

WORDS = st.lists(st.sampled_from("abc"), max_size=12)


@given(WORDS)
def test_the_first_copy_is_the_first_equal_row(words):
    assert first_copies(np.array(words, dtype="U1")).tolist() == [words.index(w) for w in words]


@given(WORDS, WORDS)
def test_each_query_takes_its_turn_among_the_equal_rows(queries, gallery):
    rows = own_rows(np.array(queries, dtype="U1"), np.array(gallery, dtype="U1"))
    for i, word in enumerate(queries):
        places = [j for j, other in enumerate(gallery) if other == word]
        turn = queries[:i].count(word)
        assert rows[i] == (places[min(turn, len(places) - 1)] if places else -1)


def test_digests_are_equal_for_equal_rows_only():
    rows = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [2.0**-24, 1.0]])
    digests = row_digests(rows)
    assert digests[0] == digests[1]
    assert len(set(digests.tolist())) == 3
    assert row_digests(rows[:0]).shape == (0,)


@pytest.mark.parametrize("dims", [2, 16, 128])
def test_near_digests_are_alike_for_rows_within_the_tolerance_of_another(dims):
    """Against the components of all pairs, one by one."""
    draw = np.random.default_rng(dims)
    rows = torch.from_numpy(draw.normal(size=(40, dims)))
    moved = rows[:10] + 1e-5 * torch.from_numpy(draw.normal(size=(10, dims)))
    rows = grid_unit_rows(torch.cat([rows, moved, rows[:5] * 3, rows[20:22]]))
    digests = np.concatenate(near_digests([rows[:30], rows[30:]], 1e-4))
    near = torch.cdist(rows.double(), rows.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert (first_copies(digests) == (near <= 1e-4).byte().argmax(1).numpy()).all()
    exact = np.concatenate(near_digests([rows[:30], rows[30:]], 0.0))
    assert (first_copies(exact) == first_copies(row_digests(rows))).all()


def test_many_alike_and_few_rows_are_taken():
    alike = grid_unit_rows(torch.ones(500, 8) + 1e-7 * torch.randn(500, 8))
    assert len(np.unique(near_digests([alike, alike], 1e-4)[1])) < 50
    one, none = near_digests([alike[:1], alike[:0]], 1e-4)
    assert (one == row_digests(alike[:1])).all()
    assert len(none) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_row_lies_within_the_rounding_of_its_type(dtype):
    rows = torch.randn(200, 64, generator=torch.Generator().manual_seed(0)).double()
    again = torch.nn.functional.normalize(rows.to(dtype).float()).to(dtype)
    apart = torch.linalg.vector_norm(grid_unit_rows(rows) - grid_unit_rows(again), dim=1).max()
    limit = rounding(torch.finfo(dtype).eps, 64)
    assert limit / 20 < apart < limit


def test_columns_of_zeros_move_no_key():
    rows = grid_unit_rows(randn(50, 6))
    wide = torch.from_numpy(np.insert(rows.numpy(), [0, 2, 6, 6], 0.0, axis=1))
    np.testing.assert_array_equal(row_keys(wide, 3), row_keys(rows, 3))
