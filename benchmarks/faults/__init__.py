"""A fault campaign: kills, damaged files, full disks, hostile labels and dead ranks, by number."""
