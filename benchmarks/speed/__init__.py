"""Each promise about speed measured against its reference, side by side in one process."""
