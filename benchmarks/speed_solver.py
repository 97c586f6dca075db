"""Time of the weight solve: coordinate descent against Algorithm 3 of [Zhang 2023], side by side.

    python benchmarks/speed_solver.py              # 59,551 samples in 11,318 classes of 2 to 12
    python benchmarks/speed_solver.py --json > solver.json

The statistics are drawn, with the sizes of Stanford Online Products' training half; a share of the
samples has a larger positive statistic, as wrong labels do.  Both methods start from all ones and
are compiled before the clock starts.  Algorithm 3 runs until its objective L3 is within 5 % of the
coordinate solver's L, one-sided: (L3 - L)/|L| <= 0.05.  It runs with two step sizes (the default,
and 95 % of what Theorem 1 allows, the faster) and with two ways to compute the balance term of
eq. (8): from running class sums (ours: O(1) a step) and as the equation is written (a sum over all
weights: O(N) a step).  Reading its objective is not charged to it.
"""

from __future__ import annotations

import argparse
import json
import platform
import time

import numpy as np

from bspml.weights.doubly_stochastic import StochasticOptions, StochasticRun
from bspml.weights.problem import WeightProblem
from bspml.weights.solver import solve_weights

GAP = 0.05


def draw_problem(args: argparse.Namespace) -> WeightProblem:
    """Class sizes 2 to 12 that sum to `samples`; gamma-distributed statistics."""
    rng = np.random.default_rng(args.seed)
    N, C = args.samples, args.classes
    if not 2 * C <= N <= 12 * C:
        raise SystemExit(f"--samples must lie in [2, 12] x --classes; got {N} and {C}.")
    sizes = 2 + rng.binomial(10, (N / C - 2) / 10, C)
    while (missing := int(N - sizes.sum())) != 0:
        room = np.flatnonzero(sizes < 12 if missing > 0 else sizes > 2)
        chosen = rng.choice(room, min(abs(missing), len(room)), replace=False)
        sizes[chosen] += np.sign(missing)
    labels = rng.permutation(np.repeat(np.arange(C), sizes))
    xi_pos = rng.gamma(4, 0.15, N) + 0.3 + 0.5 * (rng.random(N) < args.noise)
    xi_neg = rng.gamma(2, 0.1, N)
    return WeightProblem(xi_pos, xi_neg, labels, age=args.age, balance=args.balance)


def time_coordinate(problem: WeightProblem, repeats: int) -> dict:
    """Best and median of `repeats` solves, from the raw arrays each time (sorting included)."""
    seconds = []
    for _ in range(repeats):
        fresh = WeightProblem(
            problem.xi_pos, problem.xi_neg, problem.codes, problem.age, problem.balance
        )
        begin = time.perf_counter()
        solution = solve_weights(fresh)
        seconds.append(time.perf_counter() - begin)
    return {
        "seconds": float(np.median(seconds)),
        "seconds_best": min(seconds),
        "stationarity": solution.stationarity,
        "stationarity_scaled": problem.stationarity(solution.weights, scaled=True),
        "objective": solution.objective,
        "maw": float(problem.class_means(solution.weights).mean()),
        "sweeps": solution.sweeps,
        "status": solution.status,
    }


def time_algorithm_3(
    problem: WeightProblem, objective: float, options: StochasticOptions, args: argparse.Namespace
) -> dict:
    """Seconds until the objective is within 5 %, or until `limit` seconds have passed."""
    run = StochasticRun(problem, np.ones(problem.n), args.seed, options)
    seconds, gap = 0.0, np.inf
    chunk = max(1, problem.n // 10)
    while gap > GAP and seconds < args.limit:
        begin = time.perf_counter()
        run.run_pass(chunk)
        seconds += time.perf_counter() - begin
        gap = (problem.objective(run.weights) - objective) / abs(objective)
    return {
        "balance_term": "as printed" if options.literal_balance else "running sums",
        "gamma": run.gamma,
        "seconds": seconds,
        "steps": run.steps,
        "gap": gap,
        "reached": bool(gap <= GAP),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=59_551)
    parser.add_argument("--classes", type=int, default=11_318)
    parser.add_argument("--age", type=float, default=1.5)
    parser.add_argument("--balance", type=float, default=1.0, help="must be positive")
    parser.add_argument("--noise", type=float, default=0.3, help="share with raised xi_pos")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5, help="coordinate solves")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each Algorithm 3 run")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    problem = draw_problem(args)
    steps = [1 / problem.lipschitz_max, 1.9 / problem.lipschitz_max]
    settings = [
        StochasticOptions(gamma=gamma, literal_balance=literal)
        for literal in (False, True)
        for gamma in steps
    ]
    solve_weights(problem, max_sweeps=1)  # compile, or load the compiled kernels
    StochasticRun(problem, np.ones(problem.n), 0, settings[0]).run_pass(1)

    ours = time_coordinate(problem, args.repeats)
    theirs = [time_algorithm_3(problem, ours["objective"], s, args) for s in settings]
    for row in theirs:
        row["times_coordinate"] = row["seconds"] / ours["seconds"]
    result = {
        "samples": problem.n,
        "classes": problem.num_classes,
        "age": args.age,
        "balance": args.balance,
        "machine": platform.processor() or platform.machine(),
        "coordinate": ours,
        "algorithm_3": theirs,
    }
    print(json.dumps(result, indent=2) if args.json else render(result))


def render(result: dict) -> str:
    ours = result["coordinate"]
    lines = [
        f"{result['samples']:,} samples, {result['classes']:,} classes, "
        f"age {result['age']:g}, balance {result['balance']:g}",
        f"coordinate: {ours['seconds']:.4f} s (best {ours['seconds_best']:.4f}), "
        f"stationarity {ours['stationarity']:.1e}, {ours['sweeps']} sweeps, {ours['status']}, "
        f"L = {ours['objective']:.4f}, MAW {ours['maw']:.3f}",
    ]
    for row in result["algorithm_3"]:
        lines.append(
            f"Algorithm 3, balance term {row['balance_term']}, gamma {row['gamma']:.2f}: "
            f"{row['seconds']:.2f} s for {row['steps']:,} steps, gap {row['gap']:.1%}"
            f"{'' if row['reached'] else ' (NOT within 5 %)'}; "
            f"{row['times_coordinate']:,.0f} x the coordinate solve"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
