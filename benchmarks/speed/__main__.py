"""`python benchmarks/speed`: see `speed.app`."""

import sys
from pathlib import Path

# Python put this folder first, whose modules would stand before the standard library's.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from speed.app import main  # noqa: E402

if __name__ == "__main__":
    main()
