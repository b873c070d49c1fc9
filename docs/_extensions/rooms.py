"""The directive ``rooms``: the packages of klnmf from top to bottom, each with its first sentence.

The order is that of the layers in pyproject.toml, which import-linter checks; the sentence is the
first one of the package's docstring. So the table cannot be out of date.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]


def layers() -> list[list[str]]:
    """Names of the rooms, by layer, from the top down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract.get("containers") == ["klnmf"]:
            return [layer.split(" : ") for layer in contract["layers"]]
    raise LookupError("pyproject.toml has no contract of import-linter about the layers of klnmf")


def sentence(room: str) -> str:
    """Return the first paragraph of a room's docstring."""
    path = ROOT / "src" / "klnmf" / room
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


class Rooms(SphinxDirective):
    """A table with a line for each room."""

    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(ROOT / "pyproject.toml"))
        lines = ["| | |", "|---|---|"]
        for rooms in layers():
            lines += [f"| `{room}` | {sentence(room).replace('``', '`')} |" for room in rooms]
        parent = nodes.container(classes=["rooms"])
        self.state.nested_parse(StringList(lines, source="rooms"), 0, parent)
        return [parent]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("rooms", Rooms)
    return {"parallel_read_safe": True}
