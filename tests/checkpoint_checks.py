"""Fits that are killed and gone on with, and what makes two fits the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klnmf import KLNMF
from klnmf.saved.container import Container, read_container
from klnmf.simulate import simulate_counts
from strategies import fit_quietly, make_model, same_bits

COUNTS = simulate_counts(60, 40, 3, counts_per_sample=60, random_state=0).X
# Nearly pure samples: some swaps pay.
PURE = simulate_counts(
    120, 80, 6, concentration_W=0.05, concentration_H=0.05, counts_per_sample=100, random_state=1
).X


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda stream: None)


@pytest.fixture(name="path")
def checkpoint_path(tmp_path: Path) -> Path:
    return tmp_path / "fit.checkpoint"


class Killed(BaseException):
    """Stands for a signal that nobody can catch."""


def model(path: Path | None = None, **parameters: Any) -> KLNMF:
    defaults = {"n_components": 3, "random_state": 0, "n_threads": 1, "tol": 0.0, "max_iter": 8}
    return make_model(checkpoint=path, **{**defaults, "checkpoint_every": 0.0, **parameters})


def kill_at(iteration: int, error: type[BaseException] = Killed) -> Any:
    """Callback that ends the fit after this iteration, before the next checkpoint."""

    def callback(record: dict[str, Any]) -> None:
        if record["iteration"] == iteration:
            raise error

    return callback


def raise_killed(*arguments: Any) -> None:
    """Die, whatever was asked for."""
    raise Killed


def killed(
    path: Path, iteration: int, X: Any = COUNTS, start: Any = None, **parameters: Any
) -> None:
    """Begin a fit and let it die."""
    with pytest.raises(Killed):
        model(path, callback=kill_at(iteration), **parameters).fit(X, **(start or {}))


def assert_same_fit(found: tuple[Any, KLNMF], expected: tuple[Any, KLNMF]) -> None:
    (W, fit), (expected_W, undisturbed) = found, expected
    assert same_bits(W, expected_W)
    assert same_bits(fit.components_, undisturbed.components_)
    for name in ("divergence_", "optimality_gap_", "kkt_residual_", "converged_", "n_iter_"):
        assert getattr(fit, name) == getattr(undisturbed, name), name
    assert timeless(fit.history_) == timeless(undisturbed.history_)


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records without their times; None for NaN, which does not equal itself."""
    return [
        {
            key: None if value != value else value
            for key, value in record.items()
            if key != "seconds"
        }
        for record in history
    ]


def content_of(path: Path) -> Container:
    return read_container(path, "checkpoint")


def each_checkpoint(path: Path, X: Any, **parameters: Any) -> Iterator[Container]:
    """Checkpoints before every iteration of one fit, each in its turn under the path."""
    copies: list[bytes] = []
    keep = model(path, callback=lambda record: copies.append(path.read_bytes()), **parameters)
    fit_quietly(X, model=keep)
    for number, copy in enumerate(copies):
        path.write_bytes(copy)
        container = content_of(path)
        assert container.content["state"]["iteration"] == number
        yield container


def resumed_fit(path: Path, X: Any, **parameters: Any) -> tuple[Any, KLNMF]:
    """Go on from what is there, without further checkpoints but the last."""
    return fit_quietly(X, model=model(path, resume=True, **{**parameters, "checkpoint_every": 1e9}))
