"""Data sets that fit in a hand, their files, samplers, and the index that follows each sample."""
