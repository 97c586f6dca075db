"""`bspml ...` in processes of its own, each a fork of one that did the imports."""

import multiprocessing
import os
import signal
import sys
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
# The first optimiser would import dynamo in each fork.
_CONTEXT.set_forkserver_preload(["bspml.cli.train", "bspml.experiment.run", "torch._dynamo"])


class Command:
    """The command line in another process, with one thread.

    Args:
        argv: after `bspml`.
        errors: file for what it says to stderr.
        largest: bytes that a file may have on its "full disk"; None: any number.
    """

    def __init__(self, argv, errors, largest=None):
        self.errors = Path(errors)
        words = [str(word) for word in argv]
        self._process = _CONTEXT.Process(target=_run, args=(words, str(errors), largest))
        self._process.start()

    def has_ended(self):
        return self._process.exitcode is not None

    def send_signal(self, number):
        os.kill(self._process.pid, number)

    def wait(self, seconds=120):
        """Exit code and stderr."""
        self._process.join(seconds)
        assert self.has_ended()
        return self._process.exitcode, self.errors.read_text("utf-8")


def _run(argv, errors, largest):
    import torch

    from bspml.cli import main

    torch.set_num_threads(1)
    file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # Ctrl-C reaches it even where the tests themselves run in the background, which ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if largest is not None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    sys.exit(main(argv))
