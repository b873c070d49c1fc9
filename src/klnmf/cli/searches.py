"""What the long searches have in common: pictures of results, and the words on Ctrl-C."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from klnmf.cli.errors import INTERRUPTED, CommandError
from klnmf.cli.outputs import replaced


def check_picture(path: Path) -> None:
    """Refuse, before any work, a picture that could not be drawn."""
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise CommandError(
            f"{path}: pictures are written as .png, .pdf or .svg; choose such a name."
        )
    from klnmf.plots.style import pyplot

    pyplot().switch_backend("Agg")  # also says, before the work, if matplotlib is not there


def save_picture(ax: Any, path: Path) -> None:
    """Write the figure of these axes."""
    with replaced(path, "wb") as file:
        ax.figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)


def interrupted(checkpoint: Path) -> int:
    """Say how to go on; returns the exit code."""
    print("\nInterrupted.", file=sys.stderr)
    if checkpoint.exists():
        words = [word for word in sys.argv[1:] if word != "--restart"]
        print(
            f"{checkpoint} holds how far it came. To go on:\n  {shlex.join(['klnmf', *words])}",
            file=sys.stderr,
        )
    return INTERRUPTED
