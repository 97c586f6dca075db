"""`python -m bspml`, so that `torchrun -m bspml` finds the command line."""

import sys

from bspml.cli import main

if __name__ == "__main__":
    sys.exit(main())
