"""Neighbours against a full integer argsort; ties, blocks, backends."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from bspml.errors import InputError, MissingDependencyError
from bspml.evaluation import evaluate, neighbours
from bspml.evaluation.neighbours import choose_backend, ranked_neighbours, vectors_in
from bspml.tensors.unit_rows import grid_unit_rows
from helpers.draws import randn

BACKENDS = ("torch", "faiss")


def oracle(queries, gallery, k, self_rows=None):
    """Full stable argsort of integer dot products: no rounding, equal ones by index."""
    q = np.round(queries.double().numpy() * 2**24).astype(np.int64)
    g = np.round(gallery.double().numpy() * 2**24).astype(np.int64)
    scores = q @ g.T
    if self_rows is not None:
        scores[np.arange(len(q)), self_rows] = -(2**62)
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def search(*args, **kwargs):
    return torch.cat([found for _, found in ranked_neighbours(*args, **kwargs)])


def rows(n, d, seed, duplicates=0):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    if duplicates:
        x[-duplicates:] = x[:duplicates]
    return grid_unit_rows(x)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("n", "d", "k"), [(900, 16, 33), (900, 2, 5), (130, 8, 1), (40, 3, 39)])
def test_neighbours_are_those_of_a_full_argsort(backend, n, d, k):
    x = rows(n, d, seed=n + k, duplicates=n // 5)
    own = torch.arange(n)
    expected = oracle(x, x, k, own.numpy())
    assert np.array_equal(search(x, x, k, own, backend).numpy(), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_query_gallery_search_removes_nothing(backend):
    gallery = rows(500, 12, seed=3)
    queries = torch.cat([gallery[:20], rows(30, 12, seed=4)])
    found = search(queries, gallery, 4, None, backend).numpy()
    assert np.array_equal(found, oracle(queries, gallery, 4))
    assert np.array_equal(found[:20, 0], np.arange(20))


@pytest.mark.parametrize("backend", BACKENDS)
def test_self_is_removed_by_index_and_its_duplicates_stay(backend):
    x = rows(400, 6, seed=5, duplicates=200)  # row i + 200 repeats row i
    found = search(x, x, 1, torch.arange(400), backend)[:, 0]
    assert torch.equal(found, (torch.arange(400) + 200) % 400)


@pytest.mark.parametrize("backend", BACKENDS)
def test_identical_rows_are_ranked_by_index(backend):
    x = grid_unit_rows(torch.ones(1000, 37) * 0.3)
    found = search(x, x, 3, torch.arange(1000), backend)
    assert found[0].tolist() == [1, 2, 3]
    assert found[2].tolist() == [0, 1, 3]
    assert (found[3:] == torch.tensor([0, 1, 2])).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_similarities_of_different_rows_tie_too(backend):
    # Signs of a fixed pattern: similarities take few values, each summed in another order.
    signs = torch.randint(0, 2, (600, 24), generator=torch.Generator().manual_seed(6)) * 2 - 1
    x = grid_unit_rows(signs * torch.tensor([1.0, 3.0]).repeat(12))
    own = torch.arange(600)
    assert np.array_equal(search(x, x, 20, own, backend).numpy(), oracle(x, x, 20, own.numpy()))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 400),
    d=st.integers(1, 5),
    levels=st.integers(1, 4),
    block=st.integers(1, 100),
    backend=st.sampled_from(BACKENDS),
    data=st.data(),
)
def test_any_block_size_gives_the_full_argsort(n, d, levels, block, backend, data):
    # faiss is asked only for k up to an eighth of the gallery
    k = data.draw(st.integers(1, max(1, n // 8)) | st.integers(1, n - 1))
    seed = data.draw(st.integers(0, 2**30))
    # Few levels: many duplicates, ties and zero rows.
    grid = torch.randint(-levels, levels + 1, (n, d), generator=torch.Generator().manual_seed(seed))
    x = grid_unit_rows(grid.double())
    found = search(x, x, k, torch.arange(n), backend, block_size=block)
    assert np.array_equal(found.numpy(), oracle(x, x, k, np.arange(n)))


def test_faiss_candidates_in_doubt_are_searched_exhaustively(monkeypatch):
    # 300 rows within float32's error of each other: 17 candidates cannot hold the nearest for sure.
    x = torch.ones(1000, 64, dtype=torch.float64)
    x[:300] += 1e-6 * torch.randn(300, 64, generator=torch.Generator().manual_seed(7))
    x = grid_unit_rows(x)
    searched = []
    exhaustively = neighbours._search_exhaustively

    def count(queries, *args):
        searched.append(len(queries))
        return exhaustively(queries, *args)

    monkeypatch.setattr(neighbours, "_search_exhaustively", count)
    found = search(x, x, 1, torch.arange(1000), "faiss")
    assert sum(searched) == 1000
    assert np.array_equal(found.numpy(), oracle(x, x, 1, np.arange(1000)))


@pytest.mark.parametrize("spread", [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1.0])
def test_faiss_order_is_exact_at_every_distance_between_scores(spread):
    x = torch.randn(1, 48, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    noise = torch.randn(700, 48, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x = grid_unit_rows(x + spread * noise)
    own = torch.arange(700)
    found = search(x, x, 12, own, "faiss").numpy()
    assert np.array_equal(found, oracle(x, x, 12, own.numpy()))


def test_blocks_cover_the_queries_in_order():
    x = rows(10, 3, seed=8)
    parts = [part for part, _ in ranked_neighbours(x, x, 2, torch.arange(10), block_size=4)]
    assert parts == [slice(0, 4), slice(4, 8), slice(8, 10)]


def test_k_beyond_the_gallery_is_refused_with_the_numbers():
    x = rows(10, 3, seed=9)
    with pytest.raises(InputError, match=r"k = 10 .* gallery has 9 rows without the query itself"):
        search(x, x, 10, torch.arange(10))
    with pytest.raises(InputError, match=r"k = 11 .* gallery has 10 rows\. Use k <= 10"):
        search(x, x, 11)


def test_backends_are_chosen_by_device_and_installation(monkeypatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert choose_backend("auto", cpu) == "faiss"
    assert choose_backend("auto", cuda) == "torch"
    assert choose_backend("torch", cpu) == "torch"
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert choose_backend("auto", cpu) == "torch"
    with pytest.raises(MissingDependencyError, match=r"pip install 'bspml\[cpu\]'"):
        choose_backend("faiss", cpu)


@pytest.mark.parametrize("kind", ["IndexFlatIP", "IndexFlatL2"])
def test_a_flat_index_stands_for_its_vectors(kind):
    faiss = pytest.importorskip("faiss")
    rows = grid_unit_rows(randn(60, 8))
    labels = torch.arange(60) % 6
    index = getattr(faiss, kind)(8)
    index.add(rows[20:].numpy())
    found = evaluate(rows[:20], labels[:20], (1, 4), index, labels[20:])
    assert found == evaluate(rows[:20], labels[:20], (1, 4), rows[20:], labels[20:])
    assert vectors_in(rows) is rows


def test_an_index_that_ranks_in_its_own_way_is_refused():
    faiss = pytest.importorskip("faiss")
    rows = np.eye(4, dtype=np.float32)
    scaled = faiss.IndexFlatIP(4)
    scaled.add(rows * np.float32([[1], [2], [1], [1]]))
    with pytest.raises(InputError, match=r"vectors of norm 1.*rows 1 are not, the first of norm 2"):
        vectors_in(scaled)
    for kind in (faiss.IndexHNSWFlat(4, 8), faiss.IndexFlat(4, faiss.METRIC_L1)):
        with pytest.raises(InputError, match=f"got {type(kind).__name__}, which is approximate or"):
            vectors_in(kind)
