"""The Hessian over one weight per class, diagonal plus rank 2, against the dense matrix."""

import numpy as np
import pytest

from bspml.weights.face import Face
from bspml.weights.problem import WeightProblem
from helpers.comparisons import feasible


def draw(seed, F, C, balance, spread):
    """A face over the first F of C singleton classes, its weights, and the problem's Hessian."""
    rng = np.random.default_rng(seed)
    x = spread * rng.standard_normal(C)
    problem = WeightProblem(np.zeros(C), x, np.arange(C), age=0.3, balance=balance)
    w = rng.random(C)
    slope = problem.gradient(w).numpy()
    free = np.arange(F)
    # Exact for a quadratic: columns of the Hessian are differences of gradients.
    hessian = np.stack([(problem.gradient(w + e) - problem.gradient(w)).numpy() for e in np.eye(C)])
    return Face.of(problem, free, slope[:F]), w, hessian[:F, :F], problem


GRID = [(s, F, C, b, r) for s in range(8) for F, C in [(2, 2), (3, 9), (9, 9)]
        for b, r in [(0.0, 1.0), (1.0, 0.3), (1.0, 20.0), (1e4, 1.0)]]  # fmt: skip


@pytest.mark.parametrize(("seed", "F", "C", "balance", "spread"), GRID)
def test_face_agrees_with_the_dense_hessian(seed, F, C, balance, spread):
    face, _, H, _ = draw(seed, F, C, balance, spread)
    scale = np.abs(H).max()
    u = np.random.default_rng(seed).standard_normal(F)
    np.testing.assert_allclose(face.curve(u), H @ u, atol=1e-12 * scale * F)
    lowest = np.linalg.eigvalsh(H)[0]
    assert face.is_semidefinite() == (lowest >= -1e-12 * scale)
    residual = H @ face.newton_direction() + face.slope
    assert np.abs(residual).max() < 1e-8 * scale


def test_negative_directions_are_negative_and_steps_that_say_so_lower_the_objective():
    negative, lowered = 0, 0
    for point in GRID:
        face, w, H, problem = draw(*point)
        if np.linalg.eigvalsh(H)[0] < -1e-9 * np.abs(H).max():
            d = face.negative_direction()
            assert d @ H @ d < 0
            negative += 1
        before = problem.objective(w)
        if face.step(w, face.newton_direction()):
            assert problem.objective(w) < before
            lowered += 1
        assert feasible(w)
    assert negative > 20
    assert lowered > 20


def test_large_faces_find_a_negative_direction_without_the_dense_matrix():
    face, w, _, problem = draw(0, 400, 400, balance=1.0, spread=900.0)
    assert not face.is_semidefinite()
    before = problem.objective(w)
    assert face.step(w, face.negative_direction())
    assert problem.objective(w) < before
    assert feasible(w)


def test_a_flat_common_direction_is_followed_to_the_bound():
    # No statistics, all classes free: moving all means together costs nothing but earns age.
    problem = WeightProblem(np.zeros(3), np.zeros(3), [0, 1, 2], age=1.0, balance=1.0)
    w = np.full(3, 0.25)
    face = Face.of(problem, np.arange(3), problem.gradient(w).numpy())
    assert face.is_semidefinite()
    assert face.step(w, face.newton_direction())
    assert w.tolist() == [1, 1, 1]


def test_steps_end_exactly_on_the_bounds():
    face, w, _, _ = draw(1, 9, 9, balance=0.1, spread=3.0)
    assert face.step(w, face.negative_direction())
    assert np.any((w == 0) | (w == 1))


def test_single_weights_are_left_to_the_sweep():
    face, w, _, _ = draw(0, 1, 4, balance=1.0, spread=1.0)
    assert face.is_semidefinite()
    assert not face.step(w, face.newton_direction())
