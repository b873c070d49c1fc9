"""The directive ``command-help``: what ``klnmf --help`` or ``klnmf COMMAND --help`` prints."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive

from klnmf.cli.main import build_parser


class CommandHelp(Directive):
    """``.. command-help:: fit`` is the help of one command, without a name that of all."""

    optional_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        parser = build_parser(version("klnmf"))
        if self.arguments:
            name = self.arguments[0]
            commands = parser._subparsers._group_actions[0].choices
            if name not in commands:
                raise self.error(f"klnmf has no command {name!r}; there are {list(commands)}")
            parser = commands[name]
        parser.color = False  # Python 3.14 would colour the text
        text = parser.format_help()
        return [nodes.literal_block(text, text, language="none")]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
