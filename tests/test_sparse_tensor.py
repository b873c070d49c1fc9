"""SparseTensor: its canonical form, its parts, tables of events, other packages, and its errors."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from klnmf import SparseTensor
from klnmf.data import sparse_tensor
from strategies import same_bits
from tensor_cases import same_tensor, tensors

COORDS = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 0, 1, 1]])


@st.composite
def entries(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Entries in any order, with repeated cells and zeros, of two to eight modes."""
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=2, max_size=8)))
    n = draw(st.integers(0, 12))
    rows = [draw(st.lists(st.integers(0, s - 1), min_size=n, max_size=n)) for s in shape]
    dtype = draw(st.sampled_from([np.int64, np.uint8, np.float32, np.float64]))
    values = draw(hnp.arrays(dtype, n, elements=st.integers(0, 7)))
    return np.array(rows, dtype=np.int64).reshape(len(shape), n), values, shape


# ---- canonical form ------------------------------------------------------------------------------


@given(entries())
@settings(max_examples=150, derandomize=True)
def test_entries_are_sorted_summed_and_without_zeros(given: Any) -> None:
    coords, values, shape = given
    tensor = SparseTensor(coords, values, shape)
    dense = np.zeros(shape)
    np.add.at(dense, tuple(coords), values)
    np.testing.assert_array_equal(tensor.toarray(), dense)
    assert tensor.values.all()
    keys = [tuple(cell) for cell in tensor.coords.T.tolist()]
    assert keys == sorted(set(keys))
    assert tensor.coords.dtype == np.int32
    assert tensor.coords.flags.c_contiguous
    assert tensor.shape == shape
    assert (tensor.ndim, tensor.nnz) == (len(shape), np.count_nonzero(dense))
    assert tensor.total == dense.sum()
    for mode in range(len(shape)):
        others = tuple(m for m in range(len(shape)) if m != mode)
        np.testing.assert_array_equal(tensor.margin(mode), dense.sum(axis=others))
        assert tensor.margin(mode).dtype == np.float64


def test_values_default_to_one_and_sizes_to_the_largest_places() -> None:
    tensor = SparseTensor(COORDS)
    assert tensor.shape == (2, 3, 2)
    assert tensor.values.tolist() == [1, 1, 2]
    assert tensor.mode_names == ("mode_0", "mode_1", "mode_2")
    assert tensor.labels == (None, None, None)
    assert tensor.ordered == (False, False, False)


def test_what_is_in_order_is_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = SparseTensor(COORDS)
    monkeypatch.setattr(sparse_tensor.np, "lexsort", lambda _: pytest.fail("it is in order"))
    assert same_bits(SparseTensor(tensor.coords, tensor.values).coords, tensor.coords)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([1, 2], np.int64), np.float32),
        (np.array([1, 2**24], np.int64), np.float64),
        (np.array([2**23, 2**23 + 1], np.int64), np.float32),
        (np.array([True, True]), np.float32),
        (np.array([1, 2], np.float16), np.float32),
        (np.array([1.5, 2], np.float32), np.float32),
        (np.array([1.5, 2]), np.float64),
        (np.array([1.5, 2], ">f8"), np.float64),
    ],
)
def test_type_of_the_values(values: np.ndarray, dtype: Any) -> None:
    assert SparseTensor([[0, 1], [0, 1]], values).dtype == dtype


def test_sums_may_need_a_wider_type_and_do_not_wrap() -> None:
    both = SparseTensor([[0, 0], [0, 0]], np.array([2**23, 2**23 + 1]))
    assert (both.dtype, both.total) == (np.float64, 2**24 + 1)
    assert SparseTensor([[0, 0], [0, 0]], np.array([200, 100], np.uint8)).total == 300


def test_whole_floats_are_places() -> None:
    assert same_tensor(SparseTensor(COORDS.astype(np.float32)), SparseTensor(COORDS))


def test_a_tensor_does_not_change() -> None:
    coords, values = np.array([[0, 1], [0, 1]], np.int32), np.array([1.0, 2.0])
    names = np.array(["a", "b"], dtype=object)
    tensor = SparseTensor(coords, values, labels=[names, None])
    coords[:], values[:], names[:] = 5, 7, "c"
    assert tensor.toarray().tolist() == [[1, 0], [0, 2]]
    assert tensor.labels[0].tolist() == ["a", "b"]
    for array in (tensor.coords, tensor.values, tensor.labels[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(AttributeError):
        tensor.shape = (3, 3)  # type: ignore[misc]
    assert same_tensor(pickle.loads(pickle.dumps(tensor)), tensor)


def test_empty_tensors_and_slices_may_be() -> None:
    nothing = SparseTensor(np.zeros((3, 0)), shape=(2, 3, 4))
    assert (nothing.nnz, nothing.total, nothing.dtype) == (0, 0.0, np.float32)
    assert nothing.margin(1).tolist() == [0, 0, 0]
    assert SparseTensor([[0], [0]], [0]).nnz == 0
    assert SparseTensor([[0], [0]], shape=(5, 2)).margin(0).tolist() == [1, 0, 0, 0, 0]


def test_one_line_says_what_it_is() -> None:
    assert repr(SparseTensor([[999], [1]])) == "SparseTensor(1,000 × 2, 1 nonzeros, total 1)"
    named = SparseTensor([[0], [1]], [0.25], mode_names=["who", "what"])
    assert repr(named) == "SparseTensor(who 1 × what 2, 1 nonzeros, total 0.25)"


# ---- parts ---------------------------------------------------------------------------------------


@given(tensors(), st.data())
@settings(max_examples=80, derandomize=True)
def test_taken_slices(tensor: SparseTensor, data: Any) -> None:
    mode = data.draw(st.integers(0, tensor.ndim - 1))
    order = data.draw(st.permutations(range(tensor.shape[mode])))
    chosen = order[: data.draw(st.integers(1, len(order)))]
    part = tensor.take(mode, chosen)
    np.testing.assert_array_equal(part.toarray(), tensor.toarray().take(chosen, axis=mode))
    assert part.mode_names == tensor.mode_names
    for m, labels in enumerate(tensor.labels):
        expected = labels if labels is None or m != mode else labels[chosen]
        assert (None if part.labels[m] is None else part.labels[m].tolist()) == (
            None if expected is None else expected.tolist()
        )
    mask = np.isin(np.arange(tensor.shape[mode]), chosen)
    assert same_tensor(
        tensor.take(tensor.mode_names[mode], mask), tensor.take(mode, sorted(chosen))
    )


@given(tensors(), st.data())
@settings(max_examples=80, derandomize=True)
def test_flattened_matrix(tensor: SparseTensor, data: Any) -> None:
    mode = data.draw(st.integers(0, tensor.ndim - 1))
    X, cells = tensor.flattened(mode)
    np.testing.assert_allclose(X.sum(axis=1), tensor.margin(mode), rtol=1e-6)
    assert (X.sum(axis=0) > 0).all()
    assert X.nnz == tensor.nnz
    others = [m for m in range(tensor.ndim) if m != mode]
    assert list(cells) == [tensor.mode_names[m] for m in others]
    place_of = [
        range(s) if labels is None else labels.tolist()
        for s, labels in zip(tensor.shape, tensor.labels, strict=True)
    ]
    columns = list(zip(*cells.values(), strict=True))
    dense = np.moveaxis(tensor.toarray(), mode, -1)
    for j, column in enumerate(columns):
        place = tuple(place_of[m].index(c) for m, c in zip(others, column, strict=True))
        np.testing.assert_array_equal(X[:, [j]].toarray().ravel(), dense[place])


def test_labels_are_texts_and_may_have_an_order() -> None:
    days = np.array(["2024-01-01", "2024-01-09"], "M8[ns]")
    dates = [datetime.date(2024, 1, 9), datetime.date(2024, 1, 1)]
    tensor = SparseTensor([[0, 1]] * 5, labels=[days, dates, [9, 10], [10, 9.5], ["a", "b"]])
    assert [labels.tolist() for labels in tensor.labels] == [
        *(["2024-01-01", "2024-01-09"], ["2024-01-09", "2024-01-01"]),
        *(["9", "10"], ["10", "9.5"], ["a", "b"]),
    ]
    assert tensor.ordered == (True, False, True, False, False)
    assert tensor.take(1, [1, 0]).ordered == (True, True, True, False, False)


# ---- events --------------------------------------------------------------------------------------

DATES = ["2023-12-31", "2024-01-01", "2024-01-07", "2024-01-22", "2024-03-01"]
BINS = {
    "day": [DATES[0], DATES[-1], 62, 0, 1, 7, 22, 61],
    "week": ["2023-12-25", "2024-02-26", 10, 0, 1, 1, 4, 9],
    "month": ["2023-12-01", "2024-03-01", 4, 0, 1, 1, 1, 3],
    "year": ["2023-01-01", "2024-01-01", 2, 0, 1, 1, 1, 1],
}
COLUMNS = {
    "texts": DATES,
    "texts with times": [f"{day} 23:59:01" for day in DATES],
    "texts in UTC": [f"{day}T23:59:01Z" for day in DATES],
    "datetime64": np.array(DATES, "M8[ns]") + np.timedelta64(86399, "s"),
    "days": np.array(DATES, "M8[D]"),
    "dates": [datetime.date.fromisoformat(day) for day in DATES],
    "datetimes": [datetime.datetime.fromisoformat(day) for day in DATES],
    "pandas": pd.Series(pd.to_datetime(DATES), index=[5, 4, 3, 2, 1]),
    "pandas with a zone": pd.Series(pd.to_datetime(DATES).tz_localize("Asia/Tokyo")),
    "pandas' categories": pd.Series(DATES, dtype="category"),
    "pyarrow": pa.chunked_array([DATES[:2], DATES[2:]]),
    "pyarrow's dates": pa.array([datetime.date.fromisoformat(day) for day in DATES]),
    "pyarrow with a zone": pa.array(
        pd.to_datetime(DATES).tz_localize("Asia/Tokyo").to_pydatetime(),
        pa.timestamp("us", "Asia/Tokyo"),
    ),
}


@pytest.mark.parametrize("bin", BINS)
@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_dates_in_bins(bin: str, column: Any) -> None:
    first, last, n_bins, *places = BINS[bin]
    events = {"who": list("abcde"), "when": column}
    tensor = SparseTensor.from_events(events, ["who", "when"], bins={"when": bin})
    labels = tensor.labels[1].tolist()
    assert [labels[0], labels[-1], len(labels)] == [first, last, n_bins]
    assert tensor.coords[1].tolist() == places
    assert tensor.ordered == (False, True)
    steps = np.diff(np.array(labels, "M8[D]")).astype(int)
    assert set(steps) <= {"day": {1}, "week": {7}, "month": {29, 31}, "year": {365}}[bin]
    assert np.array(labels, "M8[D]").astype(object)[0].weekday() == 0 or bin != "week"


def test_dates_long_ago() -> None:
    events = {"who": ["a", "a"], "when": ["1913-02-03", "1913-02-09"]}
    tensor = SparseTensor.from_events(events, ["who", "when"], bins={"when": "week"})
    assert tensor.labels[1].tolist() == ["1913-02-03"]
    assert tensor.total == 2


ROWS = {"who": ["b", "a", "b"], "what": [10, 9, 9], "when": ["2024-01-02"] * 3, "n": [2, 0, 3]}


@pytest.mark.parametrize("kind", ["dict", "pandas", "pyarrow", "polars"])
def test_tables_of_events(kind: str) -> None:
    frame: Any = ROWS
    if kind == "pandas":
        frame = pd.DataFrame(ROWS, index=[7, 7, 7])
    elif kind == "pyarrow":
        frame = pa.table(ROWS)
    elif kind == "polars":
        frame = pytest.importorskip("polars", reason="polars is not installed").DataFrame(ROWS)
    tensor = SparseTensor.from_events(frame, ["who", "what", "when"], "n")
    assert [labels.tolist() for labels in tensor.labels] == [
        ["a", "b"],
        ["9", "10"],
        ["2024-01-02"],
    ]
    assert tensor.toarray()[:, :, 0].tolist() == [[0, 0], [3, 2]]
    assert tensor.mode_names == ("who", "what", "when")
    assert tensor.ordered == (False, True, True)
    assert SparseTensor.from_events(frame, ["what", "who"]).toarray().tolist() == [[1, 1], [0, 1]]


def test_polars_times_are_local() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    when = polars.Series([datetime.datetime(2024, 1, 1, 8)]).dt.replace_time_zone("Asia/Tokyo")
    frame = polars.DataFrame({"who": ["a"], "when": when})
    tensor = SparseTensor.from_events(frame, ["who", "when"], bins={"when": "day"})
    assert tensor.labels[1].tolist() == ["2024-01-01"]


def test_ids_that_pandas_made_floats_are_whole_numbers() -> None:
    events = {"who": np.array([12346.0, 9.0]), "what": [True, False]}
    tensor = SparseTensor.from_events(events, ["who", "what"])
    assert tensor.labels[0].tolist() == ["9", "12346"]
    assert tensor.labels[1].tolist() == ["False", "True"]
    assert tensor.ordered == (True, False)


@pytest.mark.parametrize(
    "column",
    [
        [None, "a", float("nan")],
        ["", "a", None],
        np.array([np.nan, 1.0, np.nan]),
        np.array(["NaT", "2024-01-01", "NaT"], "M8[ns]"),
        pd.Series([pd.NA, 1, pd.NA], dtype="Int64"),
        pd.Series([None, "a", None], dtype="category"),
        pa.array([None, "a", None]),
        pa.array([None, "a", None]).dictionary_encode(),
        pa.array([float("nan"), 1.0, None]),
    ],
    ids=str,
)
def test_missing_labels(column: Any) -> None:
    message = r"2 of 3 rows have no label in column 'who'\. Leave them out.*such as 'unknown'"
    with pytest.raises(ValueError, match=message):
        SparseTensor.from_events({"who": column, "what": [1, 2, 3]}, ["who", "what"])


NOT_EVENTS: dict[str, tuple[type[Exception], str, Any, dict[str, Any]]] = {
    "no table": (TypeError, "frame must be a DataFrame.*got an array", np.ones((2, 2)), {}),
    "no column": (ValueError, "no column 'who'; the columns are: 'whom'.*mean", {"whom": [1]}, {}),
    "a text as modes": (TypeError, "modes must be a list of names", {}, {"modes": "who"}),
    "one mode": (ValueError, "That is a vector", {"who": [1]}, {"modes": ["who"]}),
    "no modes": (ValueError, "no events", {}, {"modes": []}),
    "no rows": (ValueError, "There are no events to count", {"who": [], "what": []}, {}),
    "lengths": (ValueError, "'who' has 2, 'what' has 1", {"who": [1, 2], "what": [1]}, {}),
    "lists": (TypeError, "'who' holds lists", {"who": [[1], [2, 3]], "what": [1, 2]}, {}),
    "tables": (ValueError, "'who' must have one", {"who": np.ones((2, 2)), "what": [1, 2]}, {}),
    "names": (ValueError, "mode_names must be 2 texts", {1: [1], 2: [1]}, {"modes": [1, 2]}),
    "negative": (ValueError, "'n' holds -1 in row 1; counts", ROWS | {"n": [1, -1, 1]}, {}),
    "not counted": (ValueError, "'n' holds nan in row 1", ROWS | {"n": [1, None, 1]}, {}),
    "words": (TypeError, "'n' must hold counts", ROWS | {"n": ["a", "b", "c"]}, {}),
    "dates": (TypeError, "got the type datetime", ROWS | {"n": np.zeros(3, "M8[D]")}, {}),
    "bins": (TypeError, "bins must be a dict such as", ROWS, {"bins": "week"}),
    "bins of others": (ValueError, "bins names 'wenn'", ROWS, {"bins": {"wenn": "week"}}),
    "no bin": (ValueError, "one of 'day', .* got 'hour'", ROWS, {"bins": {"what": "hour"}}),
    "no dates": (ValueError, "'who' holds 'b', which is no ISO", ROWS, {"bins": {"who": "day"}}),
    "no day": (
        *(ValueError, "'who' holds .*2024-02-31.*which is no ISO date"),
        *(ROWS | {"who": ["2024-02-31"] * 3}, {"bins": {"who": "day"}}),
    ),
}


@pytest.mark.parametrize(
    ("error", "message", "frame", "settings"), NOT_EVENTS.values(), ids=NOT_EVENTS
)
def test_what_is_no_table_of_events(
    error: Any, message: str, frame: Any, settings: dict[str, Any]
) -> None:
    values = "n" if isinstance(frame, dict) and "n" in frame else None
    with pytest.raises(error, match=message):
        SparseTensor.from_events(frame, **{"modes": ["who", "what"], "values": values} | settings)


# ---- other packages ------------------------------------------------------------------------------


# ---- errors --------------------------------------------------------------------------------------

TWO = [[0, 1], [0, 1]]
WRONG: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "ragged": ("rows of different lengths", ([[0, 1], [0]],), {}),
    "one dimension": (r"coords must be whole numbers of shape \(n_modes, nnz\)", ([0, 1],), {}),
    "texts": ("of the type <U1", ([["a"], ["b"]],), {}),
    "negative": (r"coords\[1, 0\] = -1; it must be 0 or more", ([[0], [-1]],), {}),
    "halves": (r"coords\[0, 1\] = 0.5; it must be a whole number", ([[0, 0.5], [0, 0]],), {}),
    "NaN": (r"coords\[0, 0\] = nan; it must be a whole", ([[np.nan], [0]],), {}),
    "infinite": (r"coords\[0, 0\] = inf; it must be below", ([[np.inf], [0]],), {}),
    "huge": (r"it must be below 2,147,483,647", ([[2**40], [0]],), {}),
    "outside": (r"coords\[1, 1\] = 1; it must be below 1, the size", (TWO, None, (2, 1)), {}),
    "vector": ("got 1 rows. That is a vector; use numpy.bincount", ([[0, 1]],), {}),
    "nine modes": ("got 9 rows. A tensor has 2 to 8 modes", (np.zeros((9, 9), int),), {}),
    "transposed": ("looks transposed: pass coords.T", (np.zeros((9, 3), int),), {}),
    "no entries": ("no entries to take the sizes from", (np.zeros((2, 0)),), {}),
    "sizes": ("shape has 3 sizes for the 2 modes", (TWO, None, (2, 2, 2)), {}),
    "empty mode": (r"from 1 to 2,147,483,647; got \(2, 0\)", (np.zeros((2, 0)), None, (2, 0)), {}),
    "wide mode": ("shape must be whole numbers from 1 to", (TWO, None, (2, 2**31)), {}),
    "all modes": ("add up to 2,400,000,000", (TWO, None, (1_200_000_000,) * 2), {}),
    "half a size": ("shape must be whole numbers", (TWO, None, (2, 2.5)), {}),
    "few values": ("one count for each of the 2 columns", (TWO, [1]), {}),
    "negative value": ("values holds -1 in row 1; counts are finite", (TWO, [1, -1]), {}),
    "NaN value": ("values holds nan in row 0; counts are finite", (TWO, [np.nan, 1]), {}),
    "infinite value": ("values holds inf in row 0", (TWO, [np.inf, 1]), {}),
    "overflow": ("more than float32 holds", ([[0, 0]] * 2, np.full(2, 3e38, np.float32)), {}),
    "names": ("mode_names must be 2 texts", (TWO,), {"mode_names": ["a"]}),
    "number as name": ("mode_names must be 2 texts", (TWO,), {"mode_names": ["a", 1]}),
    "same names": ("that differ from each other", (TWO,), {"mode_names": ["a", "a"]}),
    "few labels": (
        *("There are 1 labels of the mode 'mode_1', which has 2 slices", (TWO,)),
        {"labels": [None, ["a"]]},
    ),
    "labels of modes": ("a list of 2, for each mode", (TWO,), {"labels": [None]}),
    "same labels": ("have 'a' more than once. Make", (TWO,), {"labels": [["a", "a"], None]}),
    "missing label": ("are missing or empty", (TWO,), {"labels": [["a", None], None]}),
}


@pytest.mark.parametrize(("message", "parts", "names"), WRONG.values(), ids=WRONG)
def test_what_is_no_tensor(message: str, parts: tuple[Any, ...], names: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        SparseTensor(*parts, **names)


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        ("values must hold counts; got the type <U1", {"values": ["a", "b"]}),
        ("values must hold counts; got the type complex", {"values": [1j, 2]}),
        ("shape must be a tuple with the size of each mode; got 3", {"shape": 3}),
        ("mode_names must be a list of names; got 'ab'", {"mode_names": "ab"}),
        ("labels must be a list of 2, for each mode None .* got 'ab'", {"labels": "ab"}),
        ("labels of the mode 'mode_0' must be a list of labels; got 3", {"labels": [3, None]}),
        ("must be a list of labels; got an array", {"labels": [np.ones((2, 2)), None]}),
    ],
)
def test_what_is_of_another_type(message: str, settings: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=message):
        SparseTensor(TWO, **settings)


@pytest.mark.parametrize(
    ("message", "mode", "indices"),
    [
        ("at least one slice of the mode 'mode_0'", 0, []),
        ("numbers from 0 to 1 or 2 bools", 0, [2]),
        ("numbers from 0 to 1 or 2 bools", 0, [-1]),
        ("numbers from 0 to 1 or 2 bools", 0, [0.0]),
        ("numbers from 0 to 1 or 2 bools", 0, [True, False, True]),
        ("more than once", 0, [0, 0]),
        (r"from 0 to 2 or one of 'mode_0', .*; got 'mode_9'\. Did you", "mode_9", [0]),
        ("mode must be a number from 0 to 2", 3, [0]),
    ],
)
def test_slices_that_are_not_there(message: str, mode: Any, indices: Any) -> None:
    with pytest.raises(ValueError, match=message):
        SparseTensor(COORDS).take(mode, indices)


def test_there_and_back_as_events_and_as_sparse() -> None:
    pd, sparse = pytest.importorskip("pandas"), pytest.importorskip("sparse")
    labels = [["a", "b"], None, ["2024-01-01", "2024-01-08"]]
    tensor = SparseTensor(
        [[0, 1, 1], [2, 0, 0], [0, 1, 0]],
        [3, 1, 4],
        mode_names=["who", "what", "when"],
        labels=labels,
    )
    frame = pd.DataFrame(tensor.to_events())
    again = SparseTensor.from_events(frame, ["who", "what", "when"], "count")
    np.testing.assert_array_equal(again.toarray()[:, :, :], tensor.toarray()[:, [0, 2]])
    with pytest.raises(ValueError, match="called 'count'"):
        SparseTensor([[0], [0]], mode_names=["who", "count"]).to_events()
    coo = tensor.to_sparse()
    assert isinstance(coo, sparse.COO)
    np.testing.assert_array_equal(SparseTensor.from_sparse(coo).toarray(), tensor.toarray())
