import numpy as np
import torch
from hypothesis import given, strategies as st

from bspml.tensors.copies import first_copies, own_rows, row_digests

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
