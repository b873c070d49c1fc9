"""Fuzz everything that klnmf reads: ``PYTHONPATH=tests python -m fuzz --help``."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import zipfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from random import Random

from fuzz.children import Tried, Workplace, try_all, workplace
from fuzz.odd import kept_cases, odd_cases
from fuzz.seeds import Files, seeds_of
from fuzz.targets import TARGETS
from fuzz.trees import zipped

BATCH = 100
FOUND = Path("build/fuzz")


def main() -> int:
    """Run the command; 1 where something was found."""
    arguments = _arguments()
    names = arguments.target or list(TARGETS)
    if arguments.replay:
        return _replay(arguments.replay, names)
    report = Report(arguments.keep)
    print(f"seed {arguments.seed}, at most {arguments.tries or 'any number of'} tries per target")
    end = time.monotonic() + arguments.seconds
    with workplace() as place:
        for name in names:
            TARGETS[name].begun()  # made once, before there are children
        next_try = dict.fromkeys(names, arguments.first)
        while next_try and time.monotonic() < end:
            for name in list(next_try):
                first = next_try[name]
                last = min(first + BATCH, arguments.first + (arguments.tries or sys.maxsize))
                _try_some(place, name, arguments.seed, range(first, last), report)
                next_try[name] = last
                if arguments.tries and last == arguments.first + arguments.tries:
                    del next_try[name]
                if time.monotonic() > end:
                    break
    report.show(names)
    return int(bool(report.found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after this time")
    parser.add_argument("--tries", type=int, help="and after so many tries of each target")
    parser.add_argument("--first", type=int, default=0, help="number of the first try")
    parser.add_argument(
        "--seed", type=int, default=int.from_bytes(os.urandom(4)), help="another one each time"
    )
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="these alone")
    parser.add_argument("--keep", type=Path, default=FOUND, help="folder for what was found")
    parser.add_argument("--replay", type=Path, help="read what such a folder keeps, print JSON")
    return parser.parse_args()


def _try_some(place: Workplace, name: str, seed: int, numbers: range, report: Report) -> None:
    target = TARGETS[name]

    def make(number: int) -> Files:
        return target.mutated(Random(f"{seed} {name} {number}"))

    for tried in try_all(place, target, numbers, make):
        report.add(name, seed, tried)


class Report:
    """What was tried and found; one file of each cause is kept, the smallest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: dict[str, Counter[str]] = {}
        self.found: dict[tuple[str, str], int] = {}  # size of the kept case

    def add(self, name: str, seed: int, tried: Tried) -> None:
        """Count a try, and keep what it found."""
        self.counts.setdefault(name, Counter())[tried.verdict.kind] += 1
        if tried.verdict.kind != "found":
            return
        key, size = (name, tried.verdict.cause), sum(map(len, tried.files.values()))
        if key not in self.found:
            print(f"{name}, try {tried.number}: {tried.verdict.cause}", flush=True)
        if size < self.found.get(key, sys.maxsize):
            self.found[key] = size
            how = f"seed {seed}, try {tried.number}\n\n{tried.verdict.cause}\n{tried.verdict.text}"
            keep(self.folder / name, tried.verdict.cause, tried.files, how)

    def show(self, names: list[str]) -> None:
        """Print a table."""
        print(f"{'target':22}{'tries':>10}{'read':>10}{'refused':>10}{'found':>10}{'causes':>8}")
        for name in names:
            counts = self.counts.get(name, Counter())
            causes = sum(target == name for target, _ in self.found)
            row = [counts.total(), counts["read"], counts["refused"], counts["found"]]
            print(f"{name:22}" + "".join(f"{n:10,}" for n in row) + f"{causes:8,}")
        if self.found:
            print(f"What was found is in {self.folder}.")


def keep(folder: Path, cause: str, files: Files, text: str) -> None:
    """Write a case into an archive, and beside it how it came about."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", cause).strip("-")[:100]
    folder.mkdir(parents=True, exist_ok=True)
    packed = zipped(list(files.items()), zipfile.ZIP_DEFLATED)
    (folder / f"{name}.zip").write_bytes(packed)
    (folder / f"{name}.txt").write_text(text)


def known_cases(folder: Path, target: str) -> list[tuple[str, str, Files]]:
    """Group, name and files of known cases: good, odd, and those of FOLDER/TARGET/NAME.zip."""
    groups = {
        "good": {str(number): files for number, files in enumerate(seeds_of(target))},
        "odd": odd_cases(target),
        "kept": kept_cases(target, folder),
    }
    return [(group, name, files) for group in groups for name, files in groups[group].items()]


def _replay(folder: Path, names: list[str]) -> int:
    """Read known cases again, and print a JSON object a line."""
    n_found = 0
    with workplace() as place:
        for name in names:
            cases = known_cases(folder, name)
            files = [files for _, _, files in cases]
            for tried in try_all(place, TARGETS[name], range(len(cases)), files.__getitem__):
                n_found += tried.verdict.kind == "found"
                group, case, _ = cases[tried.number]
                about = {"target": name, "group": group, "case": case}
                print(json.dumps(about | asdict(tried.verdict)), flush=True)
    return int(n_found > 0)


if __name__ == "__main__":
    sys.exit(main())
