"""argparse with shorter help, suggestions for mistyped options, and options spelled out."""

import argparse
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from klnmf.cli.options import EVENTS, TAKE_EVENTS
from klnmf.support.nearest_names import nearest_name
from klnmf.support.option_names import Spelling

# What other programs call our options.
_ELSEWHERE = {
    **dict.fromkeys(("--rank", "--components", "--topics", "--n-topics"), "--n-components"),
    **dict.fromkeys(("--n-jobs", "--workers"), "--jobs"),
    **{f"--{what}-column": f"--{what}-field" for what in ("text", "id", "label")},
    "--overwrite": "--force",
}


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help that adds the default of an option, and the metavar that its type has."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_value = isinstance(action.default, str | float | int) and action.nargs != 0
        is_shown = has_value and action.default != argparse.SUPPRESS
        return f"{action.help} (default: %(default)s)" if is_shown else action.help

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        metavar = getattr(action.type, "metavar", None)
        return metavar or super()._get_default_metavar_for_optional(action)


class Parser(argparse.ArgumentParser):
    """A parser whose usage is one line and whose errors suggest the option that was meant."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more, formatter_class=HelpFormatter)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown options here, where the options of the command are known."""
        found, rest = super().parse_known_args(args, namespace)
        unknown = next((word for word in rest if word.startswith("-") and word != "-"), None)
        if unknown is not None:
            name = unknown.partition("=")[0]
            if name.removeprefix("--") in EVENTS:
                self.error(f"{name} is for events; {TAKE_EVENTS}")
            self.error(f"there is no option {name}{self._suggestion(name)}")
        for action in self._actions:
            is_optional = action.nargs == "?" and not action.option_strings
            if not is_optional or getattr(found, action.dest, None) is not None:
                continue
            if rest:  # argparse looks for it no more after the first option
                setattr(found, action.dest, rest.pop(0))
            elif action.default == argparse.SUPPRESS:  # an option may give it instead
                self.error(f"{action.metavar} is missing: name what to write")
        if rest:
            self.error(
                f"one argument too many: {rest[0]!r}. If an option has several values, separate "
                "them by commas, as in english,german"
            )
        return found, rest

    def format_help(self) -> str:
        """Return the help with a usage of one line. The options are listed below it anyway."""
        self.usage = self._short_usage()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with code 2."""
        hint = f"({self.prog} --help)"
        self.exit(2, f"usage: {self._short_usage()}    {hint}\n{self.prog}: error: {message}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a command, or a value of an option, that is none of the choices."""
        if action.choices is None or value in action.choices:
            return
        meant = nearest_name(value, action.choices)
        listed = f"Choose one of: {', '.join(action.choices)}"
        way_out = listed if meant is None else f"Did you mean {meant}?"
        if action.dest == "command":
            self.error(f"there is no command {value!r}. {way_out}")
        raise argparse.ArgumentError(action, f"there is no {value!r}. {way_out}")

    def _short_usage(self) -> str:
        positional = [action for action in self._actions if not action.option_strings]
        may_lack = {a.metavar for a in positional if a.nargs == "?" and a.default is None}
        names = [f"[{a.metavar}]" if a.metavar in may_lack else f"{a.metavar}" for a in positional]
        required = [a for a in self._actions if a.option_strings and a.required]
        names += [f"{a.option_strings[0]} {a.metavar}" for a in required]
        return " ".join([self.prog, *names, "[options]"])

    def _suggestion(self, name: str) -> str:
        existing = self._option_string_actions
        meant = _ELSEWHERE.get(name)
        meant = meant if meant in existing else nearest_name(name, existing)
        if meant is None:
            return ""
        return f"; did you mean {' or '.join(existing[meant].option_strings)}?"


def spelling_of(parser: argparse.ArgumentParser) -> Spelling:
    """How messages name options to users of this command; None: it has no such option."""

    def spelled(name: str, value: tuple[Any, ...]) -> str | None:
        for action in parser._actions:
            if action.dest != name or not action.option_strings:
                continue
            word = next(s for s in action.option_strings if s.startswith("--"))
            if not value or (action.nargs == 0 and action.const == value[0]):
                return word
            if action.nargs != 0:
                given = value[0] if isinstance(value[0], list | tuple) else [value[0]]
                return f"{word} {shlex.quote(','.join(map(str, given)))}"
        return None

    return spelled
