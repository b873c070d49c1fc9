"""Runs one command: its answer goes to stdout, everything else to stderr."""

import argparse
import os
import sys
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import version
from typing import IO, cast

from klnmf.cli.files import check_inputs
from klnmf.cli.messages import (
    FAILED,
    INTERRUPTED,
    MISUSED,
    OutputLostError,
    StandardOutput,
    UsageError,
    notes_of_readers,
    report_error,
    warnings_in_one_line,
)
from klnmf.cli.parser import Parser, spelling_of
from klnmf.support.option_names import spelled_by

# Each is a module of this package with SUMMARY, EXAMPLES, add_arguments(parser) and run(args).
# Libraries are imported inside of functions there, so that --help does not wait for them.
COMMANDS = (
    *("rank", "fit", "consensus", "transform", "topics", "name", "evaluate", "report"),
    *("posterior", "convert", "prepare", "info"),
)

_EPILOG = """\
examples:
  klnmf rank counts.npz                               how many components?
  klnmf fit counts.npz -r 20 -o model.klnmf           20 components of a sparse matrix
  klnmf fit letters/ -r 10 --min-df 3 --report r.html words of a folder of .txt files, with a report
  klnmf fit cells.h5ad --layer counts -r 15           AnnData
  klnmf fit sales.csv --modes customer,product,week   events: counts with several labels
  klnmf consensus counts.npz -r 20                    which components do 100 starts agree on?
  klnmf posterior model.klnmf counts.npz              how sure are its numbers?
  klnmf topics model.klnmf                            what the components are about
  klnmf transform model.klnmf new.npz -o W.csv        the same components for new samples

Run `klnmf COMMAND --help` for the options of a command. No command overwrites a file that exists
unless --force is given.

Exit codes: 0 success (also if a fit did not converge; a warning says so), 1 error in data, model
or system, 2 invalid command line, 130 interrupted. Set KLNMF_DEBUG=1 to see the traceback of an
error.
"""


def build_parser(version: str) -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="klnmf",
        description="Nonnegative factorisation of sparse counts (Poisson NMF, PLSI, tensors).",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"klnmf {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = import_module(f"klnmf.cli.{name}")
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=f"{module.SUMMARY[0].upper()}{module.SUMMARY[1:]}.",
            epilog=f"examples:\n{module.EXAMPLES}",
        )
        module.add_arguments(command)
        command.set_defaults(parser=command, run=module.run)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Examples
    --------
    >>> main(["topics", "nowhere.klnmf"])
    1
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `2>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, open until the process ends
    args = build_parser(version("klnmf")).parse_args(arguments)
    words = sys.argv[1:] if arguments is None else arguments
    args.words = [word for word in words if word not in ("--resume", "--restart")]
    with warnings_in_one_line(), notes_of_readers(args), spelled_by(spelling_of(args.parser)):
        try:
            with redirect_stdout(cast("IO[str]", StandardOutput(sys.stdout))):
                check_inputs(args)
                code: int = args.run(args)
                sys.stdout.flush()
            return code
        except KeyboardInterrupt as stopped:
            print(*(stopped.args or ["klnmf: interrupted"]), file=sys.stderr)
            return INTERRUPTED
        except OutputLostError as error:
            # At exit, Python would try once more to write what is in the buffer.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if not isinstance(error.__cause__, BrokenPipeError):  # the reader has gone: `| head`
                report_error(error)
            return FAILED
        except Exception as error:
            report_error(error)
            return MISUSED if isinstance(error, UsageError) else FAILED
