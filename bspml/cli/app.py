"""The commands of `bspml`: each is a record of options and imports its work when it is called."""

from __future__ import annotations

import importlib
import inspect
import io
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, get_type_hints

import typer

from bspml import __version__
from bspml.cli import options
from bspml.cli.exit_codes import INTERRUPTED, complain, exit_code, show_warning

app = typer.Typer(
    name="bspml",
    help="Deep metric learning that survives wrong labels.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

data_app = typer.Typer(
    help="Data sets on this machine.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data_app, name="data")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files need not be text, nor the terminal UTF-8: what cannot be shown is
            # escaped.
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = show_warning  # type: ignore[assignment]  # fewer names
        try:
            code = app(args=None if argv is None else list(argv), standalone_mode=False)
            if sys.stdout is not None:  # closed by the caller
                sys.stdout.flush()  # here, not at exit: a full disk has a line of its own
        except BaseException as err:
            return exit_code(err)
    if code == INTERRUPTED:
        complain("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _version(show: bool | None) -> None:
    if show:
        print(f"bspml {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = None,
) -> None:
    pass


def _add(to: typer.Typer, name: str, options: type, work: str) -> None:
    """Make a command of a record of options and of the function that does its work.

    Args:
        to: the group of commands.
        name: of the command.
        options: a record of `bspml.cli.options`.
        work: MODULE:FUNCTION, imported when the command is called.
    """

    def command(**values: Any) -> None:
        module, _, function = work.partition(":")
        getattr(importlib.import_module(module), function)(options(**values))

    # What typer reads of a function: here it is what the record says.
    fields = inspect.signature(options).parameters.values()
    hints = get_type_hints(options, include_extras=True)
    shown = [parameter.replace(annotation=hints[parameter.name]) for parameter in fields]
    command.__doc__, command.__annotations__ = options.__doc__, hints
    command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    to.command(name)(command)


_add(app, "train", options.TrainOptions, "bspml.cli.train:run_train")
_add(app, "evaluate", options.EvaluateOptions, "bspml.cli.evaluate:run_evaluate")
_add(app, "embed", options.EmbedOptions, "bspml.cli.embed:run_embed")
_add(app, "noise", options.NoiseOptions, "bspml.cli.noise:run_noise")
_add(app, "report", options.ReportOptions, "bspml.cli.report:run_report")
_add(app, "audit", options.AuditOptions, "bspml.cli.audit:run_audit")
_add(data_app, "check", options.CheckOptions, "bspml.cli.data:run_check")
