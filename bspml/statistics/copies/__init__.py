"""Copies: the nearest samples of each, which of them are one sample, and what counts once."""
