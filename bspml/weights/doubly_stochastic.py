"""[Zhang 2023] Algorithm 3 as printed: doubly stochastic projection coordinate gradient.

Each step draws one weight w_a of class c, then K other weights of c, then P other classes and K
weights of each, all without replacement, and moves w_a by a projected step along

    G(w_a) = (1/N_c) (G_p + G_n + G_b - age)                                              eq. (8)
    G_p = mean over the K of c        w_p (xi_pos_p + xi_pos_a)
    G_n = mean over the P x K others  w_n (xi_neg_n + xi_neg_a)
    G_b = 2 balance (m_c - mean of the other classes' m_k),  exact from running class sums

E[G] is the exact derivative.  P is clamped to C - 1 and K to the weights there are, where the
average is exact.  The anchor is uniform over the N weights (the print says "stochastically").

What is known about its convergence.  Theorem 1 asks for 0 < gamma_{t+1} <= gamma_t < 2/L_max,
sum gamma = inf and sum gamma sigma^2 < inf, sigma^2 the variance of G.  With fixed P and K, sigma
does not vanish, so the two sums contradict each other: no step size meets eq. (12) then, and the
theorem says nothing.  What the default gamma_t = gamma / (1 + t / t0) does satisfy are the
classical conditions sum gamma = inf, sum gamma^2 < inf.  `batch_growth` > 1 does satisfy eq. (12):
P and K then reach all classes and weights after finitely many passes, and sampling without
replacement makes sigma exactly 0 from there on; a step then costs O(N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from bspml.errors import InputError
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_number, check_whole
from bspml.weights.problem import Outcome, WeightProblem

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@dataclass(frozen=True)
class StochasticOptions:
    """Settings of Algorithm 3.

    Attributes:
        gamma: first step size, in (0, 2/L_max).  Default 1/L_max: on a coordinate of the greatest
            curvature this is the exact minimiser of the sampled model.  Must be given if L_max = 0
            (balance 0, or one class), where the theorem sets no scale.
        decay_passes: t0 in gamma_t = gamma / (1 + t / t0), in passes of N steps; inf: constant.
        classes_per_step: P.
        samples_per_class: K.
        batch_growth: factor on P and K after each pass, at least 1.
        patience: stop when the objective, read after each pass, has not fallen below its lowest by
            a share `min_decrease` for this many passes in a row.
        min_decrease: see patience.
        literal_balance: sum G_b over all N weights in every step, as eq. (8) is written, instead
            of from running class sums.  Same answer up to rounding, O(N) a step; for benchmarks.
    """

    gamma: float | int | None = None
    decay_passes: float | int = 10.0
    classes_per_step: int = 16
    samples_per_class: int = 4
    batch_growth: float | int = 1.0
    patience: int = 10
    min_decrease: float | int = 1e-4
    literal_balance: bool = False

    def __post_init__(self) -> None:
        check_flags(literal_balance=self.literal_balance)
        decay = check_number(
            self.decay_passes, "decay_passes", 0, open_low=True, allow_infinite=True
        )
        checked: dict[str, float] = {
            "decay_passes": decay,
            "batch_growth": check_number(self.batch_growth, "batch_growth", low=1.0),
            "min_decrease": check_number(self.min_decrease, "min_decrease", low=0.0),
        }
        if self.gamma is not None:
            checked["gamma"] = check_number(self.gamma, "gamma", low=0.0, open_low=True)
        for name in ("classes_per_step", "samples_per_class", "patience"):
            checked[name] = check_whole(getattr(self, name), name)
        for name, value in checked.items():  # what came as a tensor or a fraction computes, too
            object.__setattr__(self, name, value)  # frozen


class Draws(NamedTuple):
    """The random stream of a run and its two shuffles, changed in place.

    A partial Fisher-Yates on any order draws without replacement, so the shuffles live through the
    run: samples within each class, and the classes, each with its inverse.

    Attributes:
        random: (1,) uint64, state of splitmix64.
        slots: (N,) the positions, those of a class in its slots.
        slot_of: (N,) slot of each position.
        classes: (C,) the classes.
        class_at: (C,) where each class stands in `classes`.
    """

    random: np.ndarray
    slots: np.ndarray
    slot_of: np.ndarray
    classes: np.ndarray
    class_at: np.ndarray


class StepSettings(NamedTuple):
    """What the steps of one pass have in common.

    Attributes:
        age: lambda.
        balance: mu.
        gamma: first step size.
        decay: steps t0 in gamma_t = gamma / (1 + t / t0).
        P: other classes drawn for a step.
        K: weights drawn of each class.
        literal: sum G_b over all N weights in every step.
    """

    age: float
    balance: float
    gamma: float
    decay: float
    P: int
    K: int
    literal: bool


def first_step_size(problem: WeightProblem, gamma: float | int | None) -> float:
    """Return gamma_1, checked against Theorem 1's bound 2/L_max.

    Args:
        problem: the weight problem.
        gamma: first step size; None takes 1/L_max.

    Raises:
        InputError: gamma >= 2/L_max, or not given where L_max = 0.
    """
    lipschitz = problem.lipschitz_max
    if gamma is None:
        if lipschitz == 0:
            raise InputError(
                "`gamma` must be given when the balance term is absent (balance = 0 or one class): "
                "the curvature along a weight is 0, so Theorem 1 sets no scale. Try 1.0."
            )
        return 1 / lipschitz
    if lipschitz > 0 and gamma >= 2 / lipschitz:
        raise InputError(
            f"`gamma` must be below 2/L_max = {2 / lipschitz:g} (L_max = 2 balance / min N_c^2); "
            f"got {gamma:g}. Lower it, or leave it out for 1/L_max."
        )
    return float(gamma)


class StochasticRun:
    """State of one run of Algorithm 3; `run_pass` advances it by N steps.

    Args:
        problem: the weight problem.
        start: (N,) feasible weights.
        seed: start of the run's own random stream; global generators are neither read nor changed.
        options: settings of the method.

    Attributes:
        steps: steps done so far.
    """

    def __init__(
        self, problem: WeightProblem, start: np.ndarray, seed: int, options: StochasticOptions
    ) -> None:
        self.problem, self.options = problem, options
        self.gamma = first_step_size(problem, options.gamma)
        self.steps = 0
        self._w = np.ascontiguousarray(start[problem.class_sorted.order])
        random = np.array([seed], dtype=np.uint64)
        n, C = problem.n, problem.num_classes
        self._draws = Draws(random, np.arange(n), np.arange(n), np.arange(C), np.arange(C))

    @property
    def weights(self) -> np.ndarray:
        """(N,) current weights in the caller's order."""
        return self.problem.class_sorted.scatter(self._w)

    def run_pass(self, steps: int | None = None) -> None:
        """Do `steps` steps, N by default."""
        problem, options = self.problem, self.options
        n = problem.n
        # Past 1e15 every class and weight is taken anyway; float powers must not overflow.
        growth = min(options.batch_growth ** min(self.steps // n, 10_000), 1e15)
        settings = StepSettings(
            problem.age,
            problem.balance,
            self.gamma,
            options.decay_passes * n,
            math.ceil(min(options.classes_per_step * growth, problem.num_classes)),
            math.ceil(min(options.samples_per_class * growth, n)),
            options.literal_balance,
        )
        steps = n if steps is None else steps
        run_steps(self._w, problem.class_sorted, self._draws, settings, self.steps, steps)
        self.steps += steps


def minimise_stochastically(
    problem: WeightProblem,
    start: np.ndarray,
    tol: float | int,
    max_passes: int,
    seed: int,
    options: StochasticOptions,
) -> Outcome:
    """Run Algorithm 3 in passes of N steps.

    Args:
        problem: the weight problem.
        start: (N,) feasible weights, in the order of the data.
        tol: the scaled stationarity to reach.
        max_passes: most passes.
        seed: start of the run's own random stream.
        options: settings of the method.

    The print stops after T steps.  Ours stops, looking after each pass, at the first of
    - stationary: the scaled stationarity of the exact gradient is at most tol;
    - no_progress: `patience` passes without a relative fall of `min_decrease`.  With fixed P and K
      this is how the method ends, see above; nothing went wrong;
    - max_sweeps: `max_passes` passes, T = max_passes N.
    """
    run = StochasticRun(problem, start, seed, options)
    lowest, waited = problem.objective(start), 0
    for passes in range(1, max_passes + 1):
        run.run_pass()
        weights = run.weights
        residual = problem.stationarity(weights, scaled=True)
        if residual <= tol:
            return Outcome(weights, passes, "stationary", "First-order point, not certified.")
        value = problem.objective(weights)
        waited = 0 if value < lowest - options.min_decrease * abs(lowest) else waited + 1
        lowest = min(lowest, value)
        if waited >= options.patience:
            message = (
                f"The objective stopped falling at a residual of {residual:.1e} > tol={tol:g}: "
                "steps of fixed variance hover around a stationary point, which is how Algorithm 3 "
                "as published ends, so nothing needs to be changed to reproduce it. For an exact "
                "answer use method='coordinate' (in a configuration: curriculum.solver), or "
                "batch_growth > 1."
            )
            return Outcome(weights, passes, "no_progress", message)
    message = (
        f"Residual {residual:.1e} > tol={tol:g} after {max_passes} passes. Raise `max_sweeps`, "
        "or use method='coordinate'."
    )
    return Outcome(weights, max_passes, "max_sweeps", message)


@numba.njit(cache=True)
def draw_below(random, n):
    """Draw a uniform integer in [0, n) from splitmix64; its bias is below n / 2^32.

    Args:
        random: (1,) uint64 state; advanced.
        n: in 1..2^32.
    """
    random[0] += _GOLDEN
    z = random[0]
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    z = z ^ (z >> _31)
    return np.int64(((z >> _32) * np.uint64(n)) >> _32)


@numba.njit(cache=True)
def _swap(order, position, a, b):
    """Swap slots a and b of a shuffle and of its inverse."""
    order[a], order[b] = order[b], order[a]
    position[order[a]], position[order[b]] = a, b


@numba.njit(cache=True)
def _draw_front(random, order, position, lo, hi, count):
    """Put `count` of the slots lo..hi, drawn without replacement, into lo..lo + count."""
    if count < hi - lo:  # all of them need no drawing
        for r in range(count):
            _swap(order, position, lo + r, lo + r + draw_below(random, hi - lo - r))


@numba.njit(cache=True)
def stochastic_gradient(a, w, data, zeta, M, draws, settings):
    """Draw one value of N_c G(w_a), eq. (8).

    Args:
        a: position of the anchor.
        w: (N,) weights in class order.
        data: `ClassSorted`.
        zeta: (C,) sums of the classes' weights.
        M: the sum of the classes' means.
        draws: `Draws`, advanced.
        settings: `StepSettings`.
    """
    starts, codes, xi_pos, xi_neg = data.starts, data.codes, data.xi_pos, data.xi_neg
    random, slots, slot_of, classes, class_at = draws
    P, K = settings.P, settings.K
    C, c = len(starts) - 1, codes[a]
    size = float(starts[c + 1] - starts[c])
    g = -settings.age
    if size > 1:
        last = starts[c + 1] - 1
        _swap(slots, slot_of, slot_of[a], last)  # the anchor is not one of the others
        k = min(K, last - starts[c])
        _draw_front(random, slots, slot_of, starts[c], last, k)
        total = 0.0
        for s in range(starts[c], starts[c] + k):
            total += w[slots[s]] * (xi_pos[slots[s]] + xi_pos[a])
        g += total / k
    if C > 1:
        m = zeta[c] / size
        g += 2 * settings.balance * (m - (M - m) / (C - 1))
        _swap(classes, class_at, class_at[c], C - 1)
        p = min(P, C - 1)
        _draw_front(random, classes, class_at, 0, C - 1, p)
        total = 0.0
        for r in range(p):
            lo, hi = starts[classes[r]], starts[classes[r] + 1]
            k = min(K, hi - lo)
            _draw_front(random, slots, slot_of, lo, hi, k)
            inner = 0.0
            for s in range(lo, lo + k):
                inner += w[slots[s]] * (xi_neg[slots[s]] + xi_neg[a])
            total += inner / k
        g += total / p
    return g


@numba.njit(cache=True)
def _class_sums(w, starts, zeta):
    """Write the sum of each class's weights into zeta (C,); return M, the sum of their means."""
    M = 0.0
    for c in range(len(zeta)):
        zeta[c] = 0.0
        for i in range(starts[c], starts[c + 1]):
            zeta[c] += w[i]
        M += zeta[c] / (starts[c + 1] - starts[c])
    return M


@numba.njit(cache=True)
def run_steps(w, data, draws, settings, done, steps):
    """Do `steps` steps of Algorithm 3, in place.

    Args:
        w: (N,) weights in class order; changed.
        data: `ClassSorted`.
        draws: `Draws`, advanced.
        settings: `StepSettings`.
        done: steps done before; the step size decays over both.
        steps: steps to do.
    """
    starts, codes, gamma, decay = data.starts, data.codes, settings.gamma, settings.decay
    zeta = np.empty(len(starts) - 1)
    M = _class_sums(w, starts, zeta)
    for t in range(done, done + steps):
        a = draw_below(draws.random, len(w))
        size = float(starts[codes[a] + 1] - starts[codes[a]])
        if settings.literal:
            M = _class_sums(w, starts, zeta)
        g = stochastic_gradient(a, w, data, zeta, M, draws, settings)
        new = min(1.0, max(0.0, w[a] - gamma / (1 + t / decay) * g / size))
        zeta[codes[a]] += new - w[a]
        M += (new - w[a]) / size
        w[a] = new
