"""``klnmf completion``."""

import argparse
from importlib.metadata import version

from klnmf.cli.messages import DONE
from klnmf.support.optional_packages import require

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

    shtab = require("shtab", "klnmf completion", "completion")
    print(shtab.complete(build_parser(version("klnmf")), shell=args.shell))
    return DONE
