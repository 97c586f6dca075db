"""`python benchmarks/faults`: see `faults.app`."""

import sys
from pathlib import Path

# Python put this folder first; its modules are imported by the name of their package.
sys.path[0] = str(Path(__file__).resolve().parents[1])
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from faults.app import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
