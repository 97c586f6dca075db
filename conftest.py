"""Under pytest, beartype checks every shape and type annotation of bspml at run time."""

import gc
import importlib
import os
from pathlib import Path

import hypothesis
import pytest
from jaxtyping import _import_hook

# Their asserts explain themselves as those of the test files do.
pytest.register_assert_rewrite("helpers")

# Older ones (all of Python 3.10) wrap what says @no_type_check, which numba then cannot compile.
if hasattr(_import_hook, "_is_no_type_check"):
    importlib.import_module("helpers.typechecks").install()

# A full sweep of the garbage collector walks all that torch is made of, to find next to nothing.
gc.set_threshold(50_000, 20, 50)
# No test cuts the power, so nothing need reach the disk; a wrong descriptor is still refused.
os.fsync = os.fstat
# Rendered data sets stay out of the home folder.
os.environ["BSPML_CACHE"] = str(Path(__file__).parent / ".pytest_cache" / "bspml")

# A deadline per example would time the machine, not the code; the same examples every time.
hypothesis.settings.register_profile("bspml", deadline=None, derandomize=True)
hypothesis.settings.load_profile("bspml")


def pytest_configure(config):
    """Set torch up, where tests run: with `-n` this process only hands them out, without torch."""
    if not config.getoption("numprocesses", None):
        import torch

        # Tests are many small steps: one thread is faster than two that wait for each other.
        torch.set_num_threads(1)
        # The workers of a loader that goes with a reference cycle do not hear that it ends, and the
        # sweep, in whatever test it falls, waits this long for each before it ends them: 5 s.
        torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.2


def pytest_ignore_collect(collection_path):
    """The doctests of an integration need its framework: tests/integrations runs them."""
    return True if collection_path.parts[-3:-1] == ("bspml", "integrations") else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `-n`, tests that share what is slow to make stay in one process: most often a file."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, test = nodeid.partition("::")
            if file.startswith("tests/distributed/"):
                return "tests/distributed"  # its session fixture starts all ranks
            return test if test == "test_in_the_interpreter" else file

    return Scheduling(config, log)
