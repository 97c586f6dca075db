"""The command line, called in this process."""

from bspml.cli import main


def run(capsys, *argv):
    """Exit code, output and errors of `bspml ARGV...`."""
    code = main([str(a) for a in argv])
    out, err = capsys.readouterr()
    return code, out, err


def run_audit(capsys, *arguments):
    """Exit code, output and errors of `bspml audit ARGUMENTS...`."""
    return run(capsys, "audit", *arguments)
