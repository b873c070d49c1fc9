"""Commands of the command line."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from klnmf.cli import main

# Options with which no word of a few short texts is left out.
EVERY_WORD = ("--min-df", "1", "--max-df", "1.0")


def outcome(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that runs in this process."""
    capsys.readouterr()
    try:
        code = main([str(word) for word in words])
    except SystemExit as exit_:  # argparse leaves like this
        code = int(exit_.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def interrupted(words: Sequence[str], text: bytes) -> str:
    """Press Ctrl-C in a command after a line with this text; return what it prints after that."""
    process = subprocess.Popen(
        [sys.executable, "-m", "klnmf", *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stderr is not None
    while text not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    return said
