"""What goes wrong, by whose mistake.

`UserError` is the user's mistake: the message says what was expected, what came, where, and what
to do.  The command line prints it as one line and exits with 2.  Anything else is a fault of ours
and exits with 1, a lost rank included.  Each class also derives from the builtin a Python caller
would catch.

A sentence is written where the fault is seen.  The places that most of them come from:

| about | made in |
|:--|:--|
| arguments: shapes, labels, rows; ranges | `tensors/checks.py`, `row_checks.py`; `scalars.py` |
| the embeddings, labels and pairs of a batch | `losses/pairs.py` |
| a YAML's keys and values | `experiment/config/messages.py`, `trainers/settings.py` |
| names of training methods and their hyper-parameters | `experiment/methods/registry.py` |
| names of data sets, missing images and lists | `data/catalogue.py`, `data/completeness.py` |
| files that cannot be opened or are damaged | `files/opening.py`; tables: `files/columns.py` |
| arrays in files; links that nothing is written through | `files/arrays.py`; `files/atomic.py` |
| checkpoints, and runs that do not fit them | `files/checkpoints.py`, `experiment/resuming.py` |
| what the command line prints, and the exit code | `cli/exit_codes.py` |

Example:
    >>> from bspml.errors import ConfigError, UserError
    >>> try:
    ...     raise ConfigError("unknown key `loss.alhpa`; did you mean `alpha`?")
    ... except ValueError as err:
    ...     print(isinstance(err, UserError), err)
    True unknown key `loss.alhpa`; did you mean `alpha`?
"""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any


class BspmlError(Exception):
    """Base of every error this package raises on purpose.

    Attributes:
        said_elsewhere: another process of a group prints it.
    """

    said_elsewhere = False


class UserError(BspmlError):
    """The caller's mistake; the message names the argument or file and the remedy."""


class InputError(UserError, ValueError):
    """An argument has the wrong shape, range or content."""


class SampleIndexError(UserError, IndexError):
    """A sample index points outside the data set, or is missing."""


class ConfigError(UserError, ValueError):
    """A configuration has an unknown key, a wrong type or an impossible value."""


class DataError(UserError, ValueError):
    """Files of a data set are missing, damaged or not what they claim to be."""


class CheckpointError(UserError, ValueError):
    """A checkpoint is missing, damaged, foreign or belongs to other data."""


class RunError(UserError, OSError):
    """A run folder cannot be used as asked: it exists already, or is not a run."""


class BusyRunError(RunError):
    """Another process trains in the run folder."""


class MissingDependencyError(UserError, ImportError):
    """An optional package is needed; the message has the line that installs it."""


@contextlib.contextmanager
def about(
    what: object,
    kind: type[UserError] = DataError,
    faults: type[Exception] | tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Put `what` before the words of an error that leaves a block.

    Args:
        what: a file, a key or an argument.
        kind: of the error that leaves it instead.
        faults: which errors; default: those of that kind.
    """
    caught = faults or kind
    try:
        yield
    except caught as err:
        raise kind(f"{what}: {err}") from err


def import_optional(module: str, otherwise: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: its dotted name.
        otherwise: what to tell the user without it: what needs it, and the line that installs it.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        found = importlib.import_module(module)
        if getattr(getattr(found, "__spec__", None), "origin", "") is None:  # some folder's name
            raise ImportError(name=module)
    except ImportError as err:
        raise MissingDependencyError(otherwise) from err
    return found


class LostRankError(BspmlError, RuntimeError):
    """Another process of the group was killed, or does not answer; nobody's mistake."""
