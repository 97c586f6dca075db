"""Under pytest, beartype checks every shape and type annotation of bspml at run time."""

import gc
import os
import sys
import types
from pathlib import Path

import beartype
import hypothesis
import jaxtyping
import pytest
import torch
from jaxtyping import _import_hook

# Their asserts explain themselves as those of the test files do.
pytest.register_assert_rewrite("helpers")

# An int is welcome where a float is annotated (PEP 484's numeric tower), as everywhere in Python.
_checker = types.ModuleType("_bspml_checker")
_checker.check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))  # type: ignore[attr-defined]
sys.modules["_bspml_checker"] = _checker

# Older ones (all of Python 3.10) wrap what says @no_type_check, which numba then cannot compile.
if hasattr(_import_hook, "_is_no_type_check"):
    jaxtyping.install_import_hook("bspml", "_bspml_checker.check")

# Tests are many small steps: one thread is faster than two that wait for each other.
torch.set_num_threads(1)
# A full sweep of the garbage collector walks all that torch is made of, to find next to nothing.
gc.set_threshold(50_000, 20, 50)
# Rendered data sets stay out of the home folder.
os.environ["BSPML_CACHE"] = str(Path(__file__).parent / ".pytest_cache" / "bspml")

# A deadline per example would time the machine, not the code; the same examples every time.
hypothesis.settings.register_profile("bspml", deadline=None, derandomize=True)
hypothesis.settings.load_profile("bspml")


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
