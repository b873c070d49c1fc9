"""``klnmf completion``."""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.metadata import version

from klnmf.cli.messages import DONE, CommandError

SUMMARY = "print a shell script that completes klnmf's commands and options"
EXAMPLES = """\
  klnmf completion bash > ~/.local/share/bash-completion/completions/klnmf
  klnmf completion zsh > ~/.zfunc/_klnmf
"""
SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"{', '.join(SHELLS)}")


def run(args: argparse.Namespace) -> int:
    """Print a completion script."""
    from klnmf.cli.main import build_parser

    try:
        shtab = import_module("shtab")
    except ImportError as error:
        raise CommandError(
            'completion scripts need shtab: pip install "klnmf[completion]"'
        ) from error
    print(shtab.complete(build_parser(version("klnmf")), shell=args.shell))
    return DONE
