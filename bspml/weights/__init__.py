"""The weights of the samples, the problem they solve, and its solvers."""
