"""Data sets of images or features with labels: readers, splits, samplers, and wrong labels."""
