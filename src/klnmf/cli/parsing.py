"""argparse with help for mistyped options, and options as they are typed for a value."""

from __future__ import annotations

import argparse
import difflib
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from klnmf.support.option_names import Spelling

# What options are called elsewhere.
_KNOWN_AS = {
    **dict.fromkeys(
        ("--rank", "--k", "--components", "--topics", "--n-topics", "--num-topics"),
        "--n-components",
    ),
    **dict.fromkeys(("--n-iter", "--iterations"), "--max-iter"),
    **dict.fromkeys(("--n-jobs", "--workers", "--cores"), "--jobs"),
    **dict.fromkeys(("--overwrite", "--yes"), "--force"),
    **dict.fromkeys(("--out", "--outfile"), "--output"),
    "--sep": "--delimiter",
    "--lowercase": "--keep-case",
    "--stopwords": "--stop-words",
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are short and suggest the option that was meant."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown options here, where it is known which ones the command has."""
        found, rest = super().parse_known_args(args, namespace)
        unknown = next((word for word in rest if word.startswith("-") and word != "-"), None)
        if unknown is not None:
            name = unknown.partition("=")[0]
            self.error(f"there is no option {name}{self._suggestion(name)}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where all options are; leaves with code 2."""
        needed = [str(a.metavar or a.dest) for a in self._actions if not a.option_strings]
        usage = " ".join([self.prog, *needed, "[options]"])
        self.exit(2, f"usage: {usage}    ({self.prog} --help)\n{self.prog}: error: {message}\n")

    def _suggestion(self, name: str) -> str:
        there = self._option_string_actions
        meant = _KNOWN_AS.get(name)
        if meant not in there:
            meant = next(iter(difflib.get_close_matches(name, there, 1)), None)
        if meant is None:
            return ""
        return f"; did you mean {' or '.join(there[meant].option_strings)}?"


def words_for(parser: argparse.ArgumentParser, name: str, *value: Any) -> list[str] | None:
    """Words of the command line that give an argument of Python, here with this value.

    None where this command has no such option, or none for that value.
    """
    for action in parser._actions:
        if action.dest != name or not action.option_strings:
            continue
        word = next(s for s in action.option_strings if s.startswith("--"))
        if not value or (action.nargs == 0 and action.const == value[0]):
            return [word]
        if action.nargs != 0:
            given = value[0]
            is_list = isinstance(given, list | tuple)
            return [word, ",".join(map(str, given)) if is_list else str(given)]
    return None


def spelling_of(parser: argparse.ArgumentParser) -> Spelling:
    """How messages name options to whoever called this command."""

    def spelled(name: str, value: tuple[Any, ...]) -> str | None:
        words = words_for(parser, name, *value)
        return None if words is None else shlex.join(words)

    return spelled
