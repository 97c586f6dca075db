"""Miners for pytorch-metric-learning that know the sample weights."""
