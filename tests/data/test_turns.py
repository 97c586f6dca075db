"""Turns of classes: enough for every row where that is possible, distinct in a batch, and even."""

from collections import Counter

import numpy as np
from hypothesis import given, strategies as st

from bspml.data.turns import ClassTurns, RowQueue


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.integers(1, 12),
    st.integers(1, 30),
    st.integers(0, 99),
)
def test_every_batch_has_distinct_classes_and_every_class_its_turns(needed, p, length, seed):
    p, needed, rng = min(p, len(needed)), np.array(needed), np.random.default_rng(seed)
    turns = ClassTurns(needed, length, p, rng.random(len(needed)), rng, needed)
    batches = list(turns)
    assert len(batches) == length
    assert all(len(batch) == len(set(batch)) == p for batch in batches)
    counts = Counter(c for batch in batches for c in batch)
    got = np.array([counts[c] for c in range(len(needed))])
    assert (got == turns.turns).all()
    capped = np.minimum(needed, length)
    if capped.sum() <= length * p:
        assert (got >= capped).all()
        spare = got[got > capped]  # handed to the classes with the fewest
        assert not len(spare) or spare.max() <= got.min() + 1
    else:
        assert (got <= capped).all()
        short = got[got < capped]
        assert got.max() <= short.min() + 1


def test_rows_that_were_shown_come_last_and_no_row_comes_twice_before_all_have():
    rng = np.random.default_rng(0)
    queue = RowQueue(np.arange(10), rng, late={0, 1, 2})
    first = queue.draw(4) + queue.draw(3)
    assert sorted(first) == [3, 4, 5, 6, 7, 8, 9]
    assert set(queue.draw(3)) == {0, 1, 2}
    assert Counter(queue.draw(25)).most_common()[-1][1] == 2
