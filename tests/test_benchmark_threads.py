"""Speed-up by number of threads: what is measured, and how it is told."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.scaling import counts
from benchmarks.threads import measured, parts_of_fit


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_part_of_a_fit_can_be_run_again() -> None:
    parts = parts_of_fit(counts(20_000, 1.0), rank=3, n_threads=2, iterations=1)
    for action in parts.values():
        action()
        action()
    assert list(parts)[-1] == "whole fit"


def test_a_part_that_loses_to_fewer_threads_is_marked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import benchmarks.threads as module

    seconds = iter([1.0, 0.5, 0.7])
    monkeypatch.setattr(module, "parts_of_fit", lambda *_: {"work": lambda: None})
    monkeypatch.setattr(module, "least_seconds", lambda *_, **__: next(seconds))
    monkeypatch.setattr(module, "throughput", lambda _, number, *__: float(number))

    class NoPool:
        def __enter__(self) -> NoPool:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

    class Context:
        Barrier = staticmethod(int)
        Pool = staticmethod(lambda *_: NoPool())

    monkeypatch.setattr(module.multiprocessing, "get_context", lambda _: Context)
    records = measured(counts(20_000, 1.0), 3, [1, 2, 4], iterations=1, budget=0.0)
    assert [record["speedup"] for record in records] == [1.0, 2.0, 1.0 / 0.7]
    assert [record["is_slower"] for record in records] == [False, False, True]
    assert [record["efficiency"] for record in records] == [1.0, 1.0, pytest.approx(1 / 2.8)]
    assert capsys.readouterr().out.count("slower") == 1
