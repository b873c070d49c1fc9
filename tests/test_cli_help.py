"""``--help``: quick, short, and the same for every command."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import klnmf.cli
from klnmf.cli.main import COMMANDS, build_parser

PRINT_ALL = """
import sys
from klnmf.cli import main
for words in (["--help"], *([name, "--help"] for name in {commands})):
    try:
        main(words)
    except SystemExit:
        pass
print("loaded:", *sorted({{"dataclasses", "numpy", "scipy", "sklearn"}} & set(sys.modules)))
"""


def parser_of(command: str) -> argparse.ArgumentParser:
    subparsers = build_parser("0")._subparsers
    assert subparsers is not None
    return subparsers._group_actions[0].choices[command]  # type: ignore[index,no-any-return]


def test_help_does_not_wait_for_large_libraries() -> None:
    code = PRINT_ALL.format(commands=COMMANDS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("usage: klnmf ") == len(COMMANDS) + 1
    assert done.stdout.endswith("\nloaded:\n")


def test_each_command_is_one_file() -> None:
    folder = Path(klnmf.cli.__file__).parent
    modules = [import_module(f"klnmf.cli.{file.stem}") for file in folder.glob("[a-z]*.py")]
    commands = {module.__name__ for module in modules if hasattr(module, "SUMMARY")}
    assert commands == {f"klnmf.cli.{name}" for name in COMMANDS}


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("fit", "klnmf fit DATA [options]"),
        ("transform", "klnmf transform MODEL DATA -o FILE [options]"),
        ("report", "klnmf report MODEL [DATA] [options]"),
        ("info", "klnmf info [MODEL] [options]"),
    ],
)
def test_usage_is_one_line(command: str, usage: str) -> None:
    assert parser_of(command).format_help().startswith(f"usage: {usage}\n\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command: str) -> None:
    parser = parser_of(command)
    assert "\nexamples:\n  klnmf " in parser.format_help()
    for action in parser._actions:
        assert len(str(action.help)) > 8, action.option_strings


def test_defaults_are_shown_even_where_they_are_0_or_1() -> None:
    text = " ".join(parser_of("fit").format_help().split())
    assert "--seed SEED, --random-state SEED random seed (default: 0)" in text
    assert "--n-init N number of starts to try; the best one continues (default: 1)" in text
    assert "--force overwrite existing files; without it they are an error" in text
