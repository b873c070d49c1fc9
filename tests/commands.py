"""Commands of the command line, run in this process."""

from __future__ import annotations

from typing import Any

import pytest

from klnmf.cli import main


def outcome(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    capsys.readouterr()
    try:
        code = main([str(word) for word in words])
    except SystemExit as exit_:  # argparse leaves like this
        code = int(exit_.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err
