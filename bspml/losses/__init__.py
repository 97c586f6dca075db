"""Losses for pytorch-metric-learning, with a weight per sample."""
