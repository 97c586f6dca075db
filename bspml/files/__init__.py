"""All reading and writing outside the data sets: atomic, typed, and refused with a reason."""
