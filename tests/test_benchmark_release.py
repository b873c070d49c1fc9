"""The page of a release: what it says comes from the records of whole calls."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("matplotlib")

from benchmarks.release import page


def record(kind: str, build: str, seconds: float, objective: float, seed: int) -> dict[str, Any]:
    return {
        **{"kind": kind, "build": build, "set": "a<b", "rank": 3, "dtype": "float32"},
        **{"threads": 1, "seed": seed, "machine": "a machine", "gap": 2e-4},
        **{"seconds": seconds, "objective": objective, "environment": {"klnmf": "9.8.7"}},
    }


def test_ratios_are_those_of_the_records() -> None:
    records = [record("scikit-learn", "klnmf", 60.0, 1010.0, 0)]
    for seed in range(3):
        records += [record("whole", "baseline", 4.0 + seed, 1000.0, seed)]
        records += [record("whole", "klnmf", (4.0 + seed) / 2, 990.0, seed)]
        records += [record("level", "klnmf", 0.5, 1010.0, seed)]
    text = page(records, "9.8.7")
    row = text[text.index("<td>a&lt;b, r = 3") :].partition("</tr>")[0]
    cells = row.replace("</td>", "").split("<td>")[2:]
    assert cells == ["60.0", "5.00", "2.50", "2.00", "24.0", "120", "2e-04", "-1.000 %"]
    assert text.count("<svg") == 1
    assert "release before" in text
    assert "a<b" not in text


def test_without_a_release_before_there_are_dashes() -> None:
    text = page([record("whole", "klnmf", 2.0, 990.0, 0)], "9.8.7")
    assert text.count("<td>–</td>") == 6
