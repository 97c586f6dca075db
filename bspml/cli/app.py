"""The commands of `bspml` with their options; each imports its work, and torch, when called."""

from __future__ import annotations

import inspect
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from bspml import __version__
from bspml.cli.exit_codes import INTERRUPTED, complain, exit_code, interrupts_kept, warning_printer
from bspml.cli.options import (
    AuditOptions,
    EvaluateOptions,
    Json,
    Method,
    NoiseOptions,
    Output,
    Quiet,
    TrainOptions,
)

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
    """Run the command line and return its exit code.

    Args:
        argv: the arguments; None: those of this process.
    """
    try:  # first of all: an interrupt may come at any time
        if argv is None:  # figures go to files; matplotlib refuses a notebook's where it is not
            os.environ.pop("MPLBACKEND", None)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # Names of files need not be text, nor the terminal UTF-8: what cannot be shown is
                # escaped.
                stream.reconfigure(errors="backslashreplace")
        with warnings.catch_warnings(), interrupts_kept():
            warnings.showwarning = warning_printer()
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


def taking(command: Callable[[Any], None]) -> Callable[..., None]:
    """Make the fields of the record that a command takes, its `options`, its parameters.

    Example:
        >>> list(inspect.signature(noise).parameters)[:2]
        ['labels', 'kind']
    """
    record = get_type_hints(command)["options"]

    @wraps(command)
    def called(**values: Any) -> None:
        command(record(**values))

    called.__signature__ = inspect.signature(record, eval_str=True)  # type: ignore[attr-defined]
    called.__annotations__ = get_type_hints(record, include_extras=True)
    return called


@app.command()
@taking
def train(options: TrainOptions) -> None:
    """Train an embedding while noisy samples lose their weight."""
    from bspml.cli.train import run_train

    run_train(options)


@app.command()
def configs(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print this one: ... > mine.yaml")
    ] = None,
) -> None:
    """Experiments that come with bspml, for `bspml train NAME`."""
    from bspml.cli.train import run_configs

    run_configs(name)


@app.command()
@taking
def evaluate(options: EvaluateOptions) -> None:
    """Recall@K, MAP@R, R-precision, NMI and AMI of a run or of embeddings you have."""
    from bspml.cli.evaluate import run_evaluate

    run_evaluate(options)


@app.command()
def embed(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run folder.")],
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Folder of images, train or test, or features for a run that takes them.",
        ),
    ] = "test",
    output: Output = None,
    method: Method = None,
    json: Json = False,
) -> None:
    """Embed images or features with a trained network; writes .npz: embeddings, labels, names."""
    from bspml.cli.embed import run_embed

    run_embed(run, what, output, method, json)


@app.command()
@taking
def noise(options: NoiseOptions) -> None:
    """Put wrong labels into a label file; the true ones and the flags are kept beside them."""
    from bspml.cli.noise import run_noise

    run_noise(options)


@app.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of an audit.")],
    json: Json = False,
) -> None:
    """Make report.html again from what a run or an audit left behind."""
    from bspml.cli.report import run_report

    run_report(run, json)


@app.command()
@taking
def audit(options: AuditOptions) -> None:
    """How many labels are wrong, which, and what they should be; needs no training."""
    from bspml.cli.audit import run_audit

    run_audit(options)


@data_app.command("check")
def data_check(
    name: Annotated[
        str,
        typer.Argument(
            help="cub, cars196, in-shop, sop, omniglot, cifar10, cifar100, glyphs, cars98n, "
            "food101n, folder, table, huggingface or features."
        ),
    ],
    root: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of the data set; of a table, the file."),
    ] = None,
    decode_all: Annotated[
        bool, typer.Option("--decode-all", help="Decode every image, not only its header.")
    ] = False,
    subset: Annotated[
        bool, typer.Option("--subset", help="Fewer images than published are no problem.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what is missing, damaged or miscounted, and where to get the data set."""
    from bspml.cli.data import run_check

    run_check(name, root, decode_all, subset, json, quiet)
