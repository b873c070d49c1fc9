"""What a selection of the rank returns and saves; and searches that are gone on with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from klnmf import RunOptions
from klnmf.model_selection import RankSelection, select_rank
from klnmf.model_selection.search import Plan, Search
from klnmf.saved.container import Container, SavedFileError, read_container, write_container
from rank_checks import counts, plain_counts


@pytest.fixture(scope="module", name="found")
def selection_of_planted_counts() -> RankSelection:
    return select_rank(counts(), range(1, 9), n_splits=3, random_state=0)


# ---- what comes back -----------------------------------------------------------------------------


def test_table_has_a_row_for_each_rank(found: RankSelection) -> None:
    table = found.table()
    assert {len(column) for column in table.values()} == {len(found.ranks)}
    assert table["rank"][table["is_best"]].tolist() == [found.best_rank]
    assert table["difference"].min() == 0
    pandas = pytest.importorskip("pandas")
    assert pandas.DataFrame(table).shape == (7, 8)


def test_printed_table_marks_the_choice(found: RankSelection) -> None:
    lines = str(found).splitlines()
    assert [line for line in lines if "<- best" in line] == [lines[4]]
    assert lines[4].split()[0] == "4"
    assert "Chosen rank: 4, the smallest within one standard error" in str(found)
    assert "The search stopped early at rank 7" in str(found)


def test_largest_rank_being_best_is_said() -> None:
    selection = select_rank(counts(), [1, 2, 3], n_splits=2, random_state=0)
    assert selection.is_at_the_edge
    assert "still falling at rank 3" in str(selection)


def test_a_single_rank_is_compared_with_nothing() -> None:
    text = str(select_rank(counts(), [3], n_splits=2, random_state=0))
    assert "nothing to compare it with" in text
    assert "still falling" not in text
    assert "smallest rank tried" not in text


def test_smallest_rank_being_best_is_said(found: RankSelection) -> None:
    assert "the smallest rank tried" not in str(found)
    text = " ".join(str(replace(found, ranks=found.ranks + 1, best_rank=2)).split())
    assert "2 is the smallest rank tried. Smaller ones may predict as well" in text
    text = " ".join(str(replace(found, best_rank=1)).split())
    assert "the smallest rank tried" not in text
    assert "No larger model predicts clearly better than the row and column sums" in text


def test_saved_and_loaded_it_is_the_same(found: RankSelection, tmp_path: Path) -> None:
    every = np.ones((1, counts().shape[1]))
    fixed = select_rank(counts(), [1], fixed_components=every, random_state=0)  # stability NaN
    assert np.isnan(fixed.stability[0])
    for selection in (found, fixed):
        selection.save(tmp_path / "rank.json")
        again = RankSelection.load(tmp_path / "rank.json")
        assert str(again) == str(selection)
        for name, column in selection.table().items():
            np.testing.assert_array_equal(again.table()[name], column)
        assert again.random_state == selection.random_state
    assert [path.name for path in tmp_path.iterdir()] == ["rank.json"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "x"),
        ("format", ["x"]),
        ("version", 1),
        ("deviance", [1.0]),
        ("deviance", [10**400] * 8),
        ("deviance", ["1"] * 8),
        ("seconds", {"a": 1}),
        ("best_rank", 99),
        ("best_rank", [1]),
        ("ranks", None),
        ("ranks", [10**400] * 8),
        ("ranks", [1.5] * 8),
        ("ranks", [[1]] * 8),
        ("is_complete", "yes"),
        ("median_total", "half"),
        ("stable_rank", 99),
        ("n_samples", -1),
    ],
)
def test_damaged_files_are_refused(
    found: RankSelection, tmp_path: Path, name: str, value: Any
) -> None:
    path = tmp_path / "rank.json"
    found.save(path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {name: value}))
    with pytest.raises(SavedFileError, match="not a rank selection saved by klnmf"):
        RankSelection.load(path)


@pytest.mark.parametrize("text", ["[" * 200_000, "5", "null", "{", "[1, 2]"])
def test_files_of_something_else_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "rank.json").write_text(text)
    with pytest.raises(SavedFileError, match="not a rank selection saved by klnmf"):
        RankSelection.load(tmp_path / "rank.json")


def test_nothing_is_written_to_a_folder_that_is_not_there(
    found: RankSelection, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        found.save(tmp_path / "nowhere" / "rank.json")


# ---- interrupted searches ------------------------------------------------------------------------


class Killed(BaseException):
    """What stands for the end of the process."""


@pytest.mark.parametrize("n_fits", [1, 4, 9, 21, 23, 35])  # the last three on the way back
def test_killed_search_goes_on_to_the_same_result(
    found: RankSelection, tmp_path: Path, n_fits: int
) -> None:
    path = tmp_path / "search"
    arguments: dict[str, Any] = {"n_splits": 3, "random_state": 0}

    def kill(record: dict[str, Any]) -> None:
        if record["n_done"] == n_fits:
            raise Killed

    with pytest.raises(Killed):
        select_rank(
            counts(), range(1, 9), run=RunOptions(checkpoint=path, callback=kill), **arguments
        )
    seen: list[int] = []
    again = select_rank(
        counts(),
        range(1, 9),
        run=RunOptions(checkpoint=path, callback=lambda record: seen.append(record["n_done"])),
        **arguments,
    )
    assert min(seen) > n_fits  # what was done is not done again
    for name in ("deviance", "standard_error", "stability", "background"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    # A search that is over is over.
    third = select_rank(
        counts(), range(1, 9), run=RunOptions(checkpoint=path, callback=kill), **arguments
    )
    np.testing.assert_array_equal(third.deviance, found.deviance)


def test_file_is_written_only_so_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from klnmf.saved import periodic_file

    written: list[int] = []
    original = periodic_file.write_container
    monkeypatch.setattr(
        periodic_file, "write_container", lambda *a, **k: (written.append(1), original(*a, **k))
    )
    for every, expected in ((1e9, 2), (0.0, 6)):  # the first, the last; and one for each fit
        written.clear()
        select_rank(
            counts(), [1, 2], n_splits=2, random_state=0,
            run=RunOptions(checkpoint=tmp_path / f"search{every}", checkpoint_every=every),
        )  # fmt: skip
        assert len(written) == expected


def test_search_of_other_data_or_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search"
    saved = RunOptions(checkpoint=path)
    given: dict[str, Any] = {"n_splits": 2, "random_state": 0, "run": saved}
    select_rank(counts(), [1, 2], **given)
    with pytest.raises(SavedFileError, match=r"another search.*ranks \(\[1, 2\] there, \[1, 3\]"):
        select_rank(counts(), [1, 3], **given)
    with pytest.raises(SavedFileError, match="checksum of X"):
        select_rank(counts(seed=1), [1, 2], **given)
    with pytest.raises(SavedFileError, match="seed"):
        select_rank(counts(), [1, 2], **(given | {"random_state": 1}))
    without_seed = select_rank(counts(), [1, 2], **(given | {"random_state": None}))
    assert without_seed.is_complete
    again = RunOptions(checkpoint=path, resume=False)
    anew = select_rank(counts(), [1, 3], **(given | {"run": again}))
    assert anew.ranks.tolist() == [1, 3]


def test_damaged_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search"
    path.write_bytes(b"no zip")
    with pytest.raises(SavedFileError, match="not a file saved by klnmf"):
        select_rank(counts(), [1, 2], run=RunOptions(checkpoint=path), random_state=0)
    assert path.read_bytes() == b"no zip"


def test_search_in_a_folder_that_is_not_there_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        select_rank(
            counts(),
            run=RunOptions(checkpoint=tmp_path / "nowhere" / "search", callback=pytest.fail),
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"back": 7}, "content.back is 7; it must be from 1 to 2"),
        ({"back": 0}, "content.back is 0; it must be from 1 to 2"),
        ({"back": "up"}, "content.back must be of type int"),
        ({"current_splits": [2]}, r"current splits are \[2\]"),
        ({"current_splits": [[1]]}, r"current splits are \[\[1\]\]"),
    ],
)
def test_search_that_does_not_add_up_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    def kill(record: dict[str, Any]) -> None:
        if record["n_done"] == 9:  # the first fit of the way back
            raise Killed

    arguments: dict[str, Any] = {"ranks": range(1, 5), "n_splits": 2, "n_jobs": 1}
    path = tmp_path / "search"
    with pytest.raises(Killed):
        select_rank(
            counts(),
            **arguments,
            random_state=0,
            run=RunOptions(callback=kill, checkpoint=path),
        )
    whole = read_container(path, "rank search")
    assert whole.content["back"] == 2
    assert whole.arrays["top_W0"].shape == (60, 4)
    write_container(path, Container("rank search", whole.content | change, whole.arrays))
    with pytest.raises(SavedFileError, match=message):
        select_rank(counts(), **arguments, random_state=0, run=RunOptions(checkpoint=path))
    for name, value in (("of_samples", np.nan), ("deviances0", -1.0), ("objectives", 1e200)):
        arrays = whole.arrays | {name: np.full_like(whole.arrays[name], value)}
        write_container(path, Container("rank search", whole.content, arrays))
        with pytest.raises(
            SavedFileError, match=f"{name} has numbers that are negative, too large"
        ):
            select_rank(counts(), **arguments, random_state=0, run=RunOptions(checkpoint=path))
    arrays = whole.arrays | {"W0": -whole.arrays["W0"]}
    write_container(path, Container("rank search", whole.content, arrays))
    with pytest.raises(SavedFileError, match="W0 has entries that are negative"):
        select_rank(counts(), **arguments, random_state=0, run=RunOptions(checkpoint=path))


def test_step_changes_nothing_until_it_is_accepted() -> None:
    search = Search.new(Plan(plain_counts(counts()), (2,), 2, (0.01,), 0, 1))
    step = search.step(0)
    assert search.factors == [None, None]
    assert search.splits_to_do == [0, 1]
    search.accept(0, step)
    assert search.splits_to_do == [1]
    assert search.n_ranks_done == 0
