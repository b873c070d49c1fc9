"""The command ``klnmf``: from a file of counts to a model, its topics and its report."""

from klnmf.cli.main import main

__all__ = ["main"]
