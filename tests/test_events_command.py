"""Commands on tables of events and tensors: they become models, tables and reports."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import outcome
from event_files import MODES, tensor_of_sales, write_sales, write_table
from klnmf import load_model
from klnmf.cli import main
from klnmf.model_selection import RankSelection
from klnmf.readers import CountTable, read_tensor, write_counts, write_tensor
from klnmf.simulate import simulate_counts

EVENTS = ("--modes", "customer,product,date", "--values", "units", "--bins", "date=month")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sales.csv, in which commands run."""
    monkeypatch.chdir(tmp_path)
    write_sales(tmp_path / "sales.csv")
    return tmp_path


@pytest.fixture(name="model")
def model_file(folder: Path) -> Path:
    assert main(["fit", "sales.csv", *EVENTS, "-r", "2", "-o", "sales.klnmf", "-q"]) == 0
    return Path("sales.klnmf")


# ---- fit -----------------------------------------------------------------------------------------


def test_fit_says_what_it_found(capsys: Any) -> None:
    code, out, err = outcome(capsys, "fit", "sales.csv", *EVENTS, "-r", "2", "--seed", "3")
    assert (code, out) == (0, "")
    assert "sales.csv: customer 4 × product 4 × date 8, 16 nonzeros, total 1,206" in err
    assert "seed: 3" in err
    assert "converged after" in err
    assert "changing the factor of any one mode cannot lower the objective by more than" in err
    assert "model: sales.klnmf" in err
    saved = load_model("sales.klnmf")
    assert saved.model.mode_names_ == tuple(MODES)
    assert saved.model.labels_[0].tolist() == ["Ann", "Bo", "Cy", "Di"]
    assert saved.metadata["events"] == {"values": "units", "bins": {"date": "month"}}


@pytest.mark.parametrize("ending", [".tsv", ".parquet", ".npz", ".tns", ".tns.gz"])
def test_every_format_gives_the_same_model(ending: str, model: Path) -> None:
    path = Path(f"other{ending}")
    options: list[str] = ["--modes", "customer,product,date"]
    if ending == ".tsv":
        write_sales(path)
        options = list(EVENTS)
    else:
        write = write_table if ending == ".parquet" else write_tensor
        write(path, tensor_of_sales())
        options += ["--values", "count"] if ending == ".parquet" else []
    assert main(["fit", str(path), *options, "-r", "2", "-o", "other.klnmf", "-q"]) == 0
    expected, found = (load_model(name).model for name in (model, "other.klnmf"))
    for one, other in zip(expected.factors_, found.factors_, strict=True):
        np.testing.assert_array_equal(one.toarray(), other.toarray())
    assert found.mode_names_ == expected.mode_names_


def test_modes_of_a_tensor_are_named(capsys: Any) -> None:
    write_tensor("cells.tns", tensor_of_sales())
    code, _, err = outcome(capsys, "fit", "cells.tns", "-r", "2", "--modes", "who,what,when")
    assert code == 0
    assert "cells.tns: who 4 × what 4 × when 8" in err
    _, out, _ = outcome(capsys, "topics", "cells.klnmf", "--by", "weight")
    assert "what 0" in out


def test_a_matrix_in_npz_is_no_tensor(capsys: Any) -> None:
    X = simulate_counts(30, 20, 2, counts_per_sample=50, random_state=0).X
    write_counts(CountTable(X), "counts.npz")
    code, _, err = outcome(capsys, "fit", "counts.npz", "-r", "2")
    assert code == 0
    assert "changing only W, or only H, cannot" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--l1-W", "1"), "--l1-W cannot be used with events: leave it out."),
        (("--sample-weight", "w.txt"), "--sample-weight cannot be used with events"),
        (("--min-df", "2"), "--min-df cannot be used with events: leave it out."),
        (("--transpose",), "--transpose cannot be used with events"),
        (("--format", "csv"), "--format cannot be used with events"),
        (("--bins", "date"), "must be like date=week; got 'date'"),
        (("--modes", "customer"), "--modes names one column; name two or more, such as --modes"),
    ],
)
def test_misused_options(options: tuple[str, ...], message: str, capsys: Any) -> None:
    code, out, err = outcome(capsys, "fit", "sales.csv", *EVENTS, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert not list(Path().glob("*.klnmf"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("product,", "ware,"), "there is no column 'product'; the columns are: 'customer', "),
        ((",1\n", ",one\n"), "column 'units' holds 'one'; a count was expected, a finite number"),
        (("Ann,", ","), "has no label in column 'customer'. Leave them out"),
        (("2024-03", "March"), "which is no ISO date such as 2011-01-31"),
    ],
)
def test_broken_tables(change: tuple[str, str], message: str, capsys: Any) -> None:
    text = Path("sales.csv").read_text()
    assert change[0] in text
    Path("sales.csv").write_text(text.replace(*change))
    code, _, err = outcome(capsys, "fit", "sales.csv", *EVENTS)
    assert code == 1
    if message.startswith("has no"):
        message = message.replace("has", "rows have")
    assert message in err


def test_values_need_modes(capsys: Any) -> None:
    code, _, err = outcome(capsys, "fit", "sales.csv", "--values", "units")
    assert code == 2
    assert "--values is for events: name the columns that identify them too" in err
    write_tensor("cells.npz", tensor_of_sales())
    code, _, err = outcome(capsys, "fit", "cells.npz", "--values", "units")
    assert code == 1
    assert "--values cannot be used with .npz files." in err
    for option, value, message in (
        ("--solver", "ccd", "The 'solver' parameter of PoissonCP must be"),
        ("--init", "nndsvd", "The 'init' parameter of PoissonCP must be"),
        ("--bins", "data=week", "bins names 'data', which is not in modes. Did you mean 'date'?"),
        (
            "--bins",
            "date=decade",
            "bins['date'] must be one of 'day', 'week', 'month', 'year'",
        ),
    ):
        code, _, err = outcome(capsys, "fit", "sales.csv", *EVENTS, option, value)
        assert code == 1
        assert message in err


def test_modes_of_a_tensor_are_counted(capsys: Any) -> None:
    write_tensor("cells.npz", tensor_of_sales())
    code, _, err = outcome(capsys, "fit", "cells.npz", "--modes", "a,b")
    assert code == 1
    assert "mode_names must be 3 texts, one for each mode, that differ" in err


# ---- topics --------------------------------------------------------------------------------------


def test_topics_as_text(model: Path, capsys: Any) -> None:
    code, out, _ = outcome(capsys, "topics", model, "--top", "2")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "component  share  mode      top labels"
    assert lines[1].split()[:2] == ["0", "59.5%"]
    assert "customer  " in lines[1]
    assert set(lines[2].replace(",", "").split()[1:]) == {"tea", "rice"}
    assert " ██▁▁▁▁▁▁ most in 2024-0" in lines[3].replace("▇", "█")
    assert len(lines) == 7


def test_topics_as_csv_and_json(model: Path, capsys: Any) -> None:
    _, out, _ = outcome(capsys, "topics", model, "--csv", "--by", "weight")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["component", "share", "mode", "rank", "label", "weight"]
    first = [row for row in rows if row["component"] == "0" and row["mode"] == "product"]
    assert {row["label"] for row in first} == {"tea", "rice"}
    assert sum(float(row["weight"]) for row in first) == pytest.approx(1)
    _, out, _ = outcome(capsys, "topics", model, "--json", "--top", "1")
    found = json.loads(out)
    assert list(found[0]) == ["component", "share", "modes"]
    assert list(found[0]["modes"]) == MODES
    assert found[0]["modes"]["customer"][0].keys() == {"label", "lift"}


def test_names_are_kept(model: Path, capsys: Any) -> None:
    before = load_model(model)
    assert main(["name", str(model), "--component", "1=Office"]) == 0
    after = load_model(model)
    assert after.component_names is not None
    assert after.component_names[1] == "Office"
    assert set(after.component_names[0].split(", ")) == {"tea", "rice"}
    assert after.metadata["events"] == before.metadata["events"]
    _, out, _ = outcome(capsys, "topics", model)
    assert "  Office\n" in out
    _, out, _ = outcome(capsys, "topics", model, "--csv")
    assert out.startswith("component,name,share,mode,")
    _, out, _ = outcome(capsys, "transform", model, "sales.csv", "-o", "-")
    assert out.splitlines()[0].endswith(",Office")


# ---- transform -----------------------------------------------------------------------------------


def test_transform_reads_new_events_like_those_of_the_fit(model: Path, capsys: Any) -> None:
    Path("new.csv").write_text(
        "date,customer,product,units,shop\n"
        "2024-03-05,Eve,tea,3,x\n2024-04-09,Eve,rice,2,x\n2024-09-09,Flo,pen,4,y\n"
    )
    code, out, err = outcome(capsys, "transform", model, "new.csv", "-o", "-", "--proportions")
    assert (code, err) == (0, "new.csv: customer 2 × product 3 × date 7, 3 nonzeros, total 9\n")
    header, eve, flo = csv.reader(io.StringIO(out))
    assert header == ["customer", "component_0", "component_1"]
    assert eve == ["Eve", "1", "0"]
    assert flo == ["Flo", "0", "1"]


def test_transform_of_the_fit_is_its_first_factor(model: Path, capsys: Any) -> None:
    code, _, err = outcome(capsys, "transform", model, "sales.csv", "-o", "counts.csv")
    assert code == 0
    assert "customer: counts.csv, 4 labels × 2 components" in err
    rows = list(csv.reader(io.StringIO(Path("counts.csv").read_text())))
    fitted = load_model(model).model
    expected = fitted.factors_[0].toarray() * fitted.weights_
    np.testing.assert_allclose(np.array(rows[1:])[:, 1:].astype(float), expected, rtol=1e-3)


def test_new_labels_are_left_out_with_a_warning(model: Path, capsys: Any) -> None:
    Path("new.csv").write_text(
        "date,customer,product,units\n2024-03-05,E,tea,3\n2024-03-09,E,car,1\n"
    )
    code, _, err = outcome(capsys, "transform", model, "new.csv", "-o", "-")
    assert code == 0
    assert "25 % of the counts of X have labels that the model does not know" in err


def test_transform_refuses_what_is_for_matrices(model: Path, capsys: Any) -> None:
    code, _, err = outcome(capsys, "transform", model, "sales.csv", "-o", "-", "--few-components")
    assert code == 2
    assert "--few-components cannot be used with events" in err


# ---- report, rank and the other commands ---------------------------------------------------------


def test_report_of_a_fit_and_later(model: Path, capsys: Any) -> None:
    pytest.importorskip("jinja2")
    words = ("fit", "sales.csv", *EVENTS, "-r", "2", "--force", "--report", "r.html")
    code, _, err = outcome(capsys, *words)
    assert code == 0
    assert "report: r.html" in err
    page = Path("r.html").read_text(encoding="utf-8")
    assert "klnmf fit sales.csv --modes customer,product,date --values units" in page
    assert "Sum of all counts" in page
    assert main(["report", str(model), "-q", "--title", "Habits"]) == 0
    assert '<h1 dir="auto">Habits</h1>' in Path("sales.html").read_text(encoding="utf-8")
    code, _, err = outcome(capsys, "report", model, "sales.csv", "-o", "again.html")
    assert code == 0
    write_sales(Path("new.csv"), seed=1)
    code, _, err = outcome(capsys, "report", model, "new.csv", "-o", "new.html")
    assert code == 1
    assert "new.csv is not what sales.klnmf was fitted to" in err


def test_rank_of_events_and_in_a_report(model: Path, capsys: Any) -> None:
    pytest.importorskip("jinja2")
    write_sales(Path("sales.csv"), crowd=20)
    assert main(["fit", "sales.csv", *EVENTS, "-r", "2", "-q", "--force"]) == 0
    code, out, _ = outcome(capsys, "rank", "sales.csv", *EVENTS, "--ranks", "1-3", "--splits", "3")
    assert code == 0
    assert "Chosen rank: 2" in out
    assert RankSelection.load("sales.rank.json").best_rank == 2
    assert main(["report", str(model), "--rank", "sales.rank.json", "-q"]) == 0
    assert "Held-out counts suggest 2 components" in Path("sales.html").read_text(encoding="utf-8")
    code, _, err = outcome(
        capsys, "rank", "sales.csv", *EVENTS, "--exposure", "sales.csv", "--force"
    )
    assert code == 2
    assert "--exposure cannot be used with events" in err


def test_info_names_the_modes(model: Path, capsys: Any) -> None:
    _, out, _ = outcome(capsys, "info", model)
    assert "customer 4 × product 4 × date 8" in out


def test_commands_for_matrices_say_what_to_do_instead(model: Path, capsys: Any) -> None:
    code, _, err = outcome(capsys, "evaluate", model, "sales.csv")
    assert code == 1
    assert "sales.klnmf is a model of events (customer × product × date), and `klnmf eval" in err
    assert "its score evaluates new events" in err
    write_tensor("cells.tns", tensor_of_sales())
    code, _, err = outcome(capsys, "consensus", "cells.tns", "-r", "2")
    assert code == 1
    assert "cells.tns holds a tensor, and `klnmf consensus` takes matrices." in err


def test_models_of_matrices_take_no_events(capsys: Any) -> None:
    X = simulate_counts(30, 20, 2, counts_per_sample=50, random_state=0).X
    write_counts(CountTable(X), "counts.npz")
    assert main(["fit", "counts.npz", "-r", "2", "-q"]) == 0
    code, _, err = outcome(capsys, "transform", "counts.klnmf", "sales.csv", *EVENTS, "-o", "W.csv")
    assert code == 2
    assert "--modes is for models of events; counts.klnmf is a model of a matrix." in err
    write_tensor("cells.npz", tensor_of_sales())
    code, _, err = outcome(capsys, "transform", "counts.klnmf", "cells.npz", "-o", "W.csv")
    assert code == 1
    assert "cells.npz holds a tensor, and `klnmf transform` takes matrices with this model" in err


def test_strange_metadata_does_no_harm(model: Path, capsys: Any) -> None:
    saved = load_model(model)
    for strange in (7, {"values": 3, "bins": "week"}, {"values": None, "bins": {"x": "week"}}):
        saved.model.save("strange.klnmf", metadata={"events": strange})
        code, _, err = outcome(
            capsys, "transform", "strange.klnmf", "sales.csv", *EVENTS[2:], "-o", "-"
        )
        assert code == 0, err


def test_modes_of_csv_are_columns(capsys: Any) -> None:
    """A name with = is a column of a table, not a file."""
    Path("odd.csv").write_text("a=b,c\nx,y\nx,z\nw,z\n")
    assert main(["fit", "odd.csv", "--modes", "a=b,c", "-r", "1", "-q"]) == 0
    assert load_model("odd.klnmf").model.mode_names_ == ("a=b", "c")
    assert read_tensor("odd.csv", modes=["a=b", "c"]).total == 3


def test_a_consensus_of_events_is_refused_with_the_way_in_python(capsys: Any) -> None:
    write_tensor("sales.tns", tensor_of_sales())
    for words in (("sales.csv", *EVENTS), ("sales.tns",)):
        code, _, err = outcome(capsys, "consensus", *words, "-r", "2", "-o", "c.klnmf")
        assert code == 2 or (code, words) == (1, ("sales.tns",))
        assert "klnmf.model_selection.consensus takes a klnmf.SparseTensor" in err
