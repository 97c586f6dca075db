"""The command line; torch is imported only by the commands that need it."""

from bspml.cli.app import main

__all__ = ["main"]
