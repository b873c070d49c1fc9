"""The directive ``executed``: Python that is run, with what it prints and draws.

The blocks of a page share their names, as the cells of a notebook do. A picture needs the option
``:alt:`` with a description for those who cannot see it.
"""

from __future__ import annotations

import contextlib
import io
import traceback
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

# Pictures are files of the source folder for Sphinx; this one is not under version control.
FOLDER = "_build/executed"
DOTS_PER_INCH = 192  # twice what a page has, for screens with small dots


class Executed(SphinxDirective):
    """Show a block of code and what came of it."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        found: list[nodes.Node] = [nodes.literal_block(code, code, language="python")]
        printed = self._run(code)
        if printed:
            output = nodes.literal_block(printed, printed, language="none")
            found.append(nodes.container("", output, classes=["executed-output"]))
        return [*found, *self._pictures()]

    def _run(self, code: str) -> str:
        names = self.env.temp_data.setdefault("executed", {"__name__": "__main__"})
        # What the blocks of a page write is there for the later ones, and nowhere else.
        folder = Path(self.env.srcdir, FOLDER, "files", self.env.docname)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.redirect_stdout(io.StringIO()) as stream, contextlib.chdir(folder):
            try:
                exec(compile(code, f"{self.env.docname}, line {self.lineno}", "exec"), names)
            except Exception as error:
                raise self.error(f"This code failed:\n{traceback.format_exc()}") from error
        return stream.getvalue().rstrip()

    def _pictures(self) -> list[nodes.Node]:
        import matplotlib.pyplot as plt

        found: list[nodes.Node] = []
        for number in plt.get_fignums():
            if "alt" not in self.options:
                raise self.error("A picture was drawn: describe it in the option :alt:.")
            figure = plt.figure(number)
            place = self.env.temp_data["executed pictures"] = (
                self.env.temp_data.get("executed pictures", 0) + 1
            )
            name = f"{FOLDER}/{self.env.docname}-{place}.png"
            path = Path(self.env.srcdir, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=DOTS_PER_INCH, bbox_inches="tight")
            width = f"{round(96 * plt.imread(path).shape[1] / DOTS_PER_INCH)}px"
            found.append(nodes.image("", uri=f"/{name}", alt=self.options["alt"], width=width))
        plt.close("all")
        return found


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("executed", Executed)
    return {"parallel_read_safe": True}
