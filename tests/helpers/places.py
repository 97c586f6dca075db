"""Where the files of the repository are, wherever a test file lies."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
