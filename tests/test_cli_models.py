"""Commands that use a model, and those that show and convert."""

from __future__ import annotations

import csv
import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cli_files import SAMPLES, WORDS, counts_file, model_file, write_counts_file  # noqa: F401 (fixtures)
from commands import EVERY_WORD, outcome
from klnmf import load_model
from klnmf.readers import CountTable, read_counts, write_counts

VERSION_1 = Path(__file__).parent / "data" / "model-v1.klnmf"

# ---- transform, topics, evaluate, report ---------------------------------------------------------


def test_transform_matches_features_by_name(model: Path, counts: Path, capsys: Any) -> None:
    table = CountTable(sp.load_npz(counts), SAMPLES, WORDS)
    order = np.random.default_rng(0).permutation(40)
    extra = sp.hstack([table.X[:, order], sp.csr_array(np.ones((60, 1)))])
    shuffled = CountTable(extra, SAMPLES, [*(WORDS[j] for j in order), "unknown"])
    write_counts(shuffled, Path("shuffled.mtx"))
    code, _, err = outcome(capsys, "transform", model, "shuffled.mtx", "-o", "W.csv")
    assert code == 0
    assert "40 of 40 features of the model found (100.0 %), 0 missing, 1 other ignored" in err
    assert err.count("features of the model") == 1
    with open("W.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["sample", "component_0", "component_1", "component_2"]
    assert [row[0] for row in rows[1:]] == SAMPLES
    W = np.array([[float(value) for value in row[1:]] for row in rows[1:]])
    assert pytest.approx(load_model(model).W.toarray(), rel=1e-4, abs=1e-6) == W


def test_a_text_is_represented_alike_alone_and_among_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = ["Sea and Ship", "sea ship sail", "corn field plough", "field corn sun", "sea corn"]
    texts = [" ".join([text] * (3 + i)) for i, text in enumerate(texts)]
    for folder, chosen in (("all", range(5)), ("one", [4])):
        Path(folder).mkdir()
        for i in chosen:
            Path(folder, f"{i}.txt").write_text(texts[i])
    words = ["fit", "all", "-r", 2, "-o", "m.klnmf", "--keep-case", "--ngram-range", "1,2"]
    assert outcome(capsys, *words, *EVERY_WORD)[0] == 0
    among = outcome(capsys, "transform", "m.klnmf", "all", "-o", "-", "-q")[1].splitlines()
    code, out, err = outcome(capsys, "transform", "m.klnmf", "one", "-o", "-")
    assert code == 0
    # The words that it does not have are zeros, and it is taken apart as the model's texts were.
    assert out.splitlines()[1] == among[5]
    n_features = load_model("m.klnmf").model.n_features_in_
    assert f"4 of {n_features} features of the model occur, 0 others ignored" in err
    assert err.count("features of the model") == 1


@pytest.mark.parametrize("name", ["W.npz", "W.npy", "W.tsv"])
def test_transform_writes_by_the_ending(model: Path, counts: Path, capsys: Any, name: str) -> None:
    assert outcome(capsys, "transform", model, counts, "-o", name, "--proportions")[0] == 0
    if name == "W.npz":
        W = sp.load_npz(name).toarray()
    elif name == "W.npy":
        W = np.load(name)
    else:
        W = np.loadtxt(name, skiprows=1, usecols=(1, 2, 3), delimiter="\t")
    assert W.sum(axis=1) == pytest.approx(np.ones(60), rel=1e-5)


def test_transform_to_stdout_and_to_an_unknown_ending(
    model: Path, counts: Path, capsys: Any
) -> None:
    code, out, _ = outcome(capsys, "transform", model, counts, "-o", "-")
    assert code == 0
    assert out.startswith("sample,component_0,component_1,component_2\ndoc0,")
    code, _, err = outcome(capsys, "transform", model, counts, "-o", "W.xlsx")
    assert code == 2
    assert "W is written as .csv, .tsv, .npz or .npy" in err


def test_without_names_the_number_of_features_must_agree(model: Path, capsys: Any) -> None:
    sp.save_npz("plain.npz", sp.csr_array(np.ones((3, 5))))
    code, _, err = outcome(capsys, "transform", model, "plain.npz", "-o", "W.csv")
    assert code == 1
    assert "DATA has 5 features and the model 40; they cannot be matched because DATA has no" in err
    assert not Path("W.csv").exists()


def test_topics_as_text_csv_and_json(model: Path, capsys: Any) -> None:
    code, text, _ = outcome(capsys, "topics", model, "--top", 4)
    assert code == 0
    assert text.startswith("component  share  top features\n")
    _, table, _ = outcome(capsys, "topics", model, "--top", 4, "--csv")
    rows = list(csv.DictReader(table.splitlines()))
    assert len(rows) == 12
    assert list(rows[0]) == ["component", "share", "rank", "feature", "lift"]
    _, answer, _ = outcome(capsys, "topics", model, "--top", 4, "--json")
    topics = json.loads(answer)
    assert [topic["component"] for topic in topics] == [0, 1, 2]
    assert sum(topic["share"] for topic in topics) == pytest.approx(1)
    largest = max(topics, key=lambda topic: topic["share"])
    assert largest["features"][0]["feature"] in text.splitlines()[1]
    outcome(capsys, "topics", model, "--csv", "-o", "topics.csv")
    assert Path("topics.csv").read_text().count("\n") == 31


def test_evaluate_agrees_with_the_estimator(model: Path, counts: Path, capsys: Any) -> None:
    code, out, _ = outcome(capsys, "evaluate", model, counts, "--json")
    assert code == 0
    scores = json.loads(out)
    X = sp.load_npz(counts)
    assert scores["log_likelihood"] == pytest.approx(load_model(model).model.score(X), rel=1e-12)
    assert 1 < scores["perplexity"] < 40
    assert len(scores["npmi_of_components"]) == 3
    code, out, _ = outcome(capsys, "evaluate", model, counts)
    assert f"perplexity      {scores['perplexity']:.6g} (guessing evenly: 40)" in out


@pytest.mark.parametrize("command", ["transform", "evaluate", "report"])
def test_data_are_read_from_the_layer_of_the_model(
    counts: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    anndata = pytest.importorskip("anndata")
    X = sp.csr_matrix(sp.load_npz(counts))
    cells = anndata.AnnData(X * 2, layers={"counts": X})
    cells.var_names = WORDS
    cells.write_h5ad("cells.h5ad")
    anndata.AnnData(X, var=cells.var).write_h5ad("others.h5ad")
    fit = ("fit", "cells.h5ad", "-r", 2, "--layer", "counts", "-o", "m.klnmf", "-q")
    assert outcome(capsys, *fit)[0] == 0
    totals: list[float] = []

    def read(*given: Any, **options: Any) -> CountTable:
        table = read_counts(*given, **options)
        totals.append(float(table.X.sum()))
        return table

    monkeypatch.setattr("klnmf.cli.data.read_counts", read)
    outputs = {"transform": "W.csv", "report": "r.html"}
    more = ["-o", outputs[command], "--force"] if command in outputs else []
    note = "reading 'counts', as for the model; --layer reads another matrix\n"
    code, _, err = outcome(capsys, command, "m.klnmf", "cells.h5ad", *more)
    assert (code, note in err) == (0, True), err
    code, _, err = outcome(capsys, command, "m.klnmf", "cells.h5ad", "--layer", "X", *more)
    assert (code, note in err) == (0, False), err
    code, _, err = outcome(capsys, command, "m.klnmf", "others.h5ad", *more)
    assert code == 1
    assert note in err
    assert "others.h5ad: it has no 'counts'. It has: X." in err
    assert outcome(capsys, command, "m.klnmf", counts, *more)[0] == 0  # a file without layers
    assert totals == [X.sum(), 2 * X.sum(), X.sum()]


def test_report_from_the_model_alone_and_with_data(model: Path, counts: Path, capsys: Any) -> None:
    assert outcome(capsys, "report", model)[0] == 0
    alone = Path("model.html").read_text(encoding="utf-8")
    assert "doc3" in alone
    assert outcome(capsys, "report", model, counts, "-o", "full.html")[0] == 0
    assert len(Path("full.html").read_text(encoding="utf-8")) > len(alone)


def test_report_shows_the_names_of_components_and_speaks_of_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("all").mkdir()
    for i, text in enumerate(["sea ship sail", "sea ship", "corn field plough", "field corn sun"]):
        Path("all", f"{i}.txt").write_text(text * 3)
    assert outcome(capsys, "fit", "all", "-r", 2, "-o", "m.klnmf", "--report", "fit.html")[0] == 0
    assert "4 documents × " in Path("fit.html").read_text(encoding="utf-8")
    saved = load_model("m.klnmf")
    for names, shown in ((["Water", "Land"], True), (["Water"], False)):
        saved.model.save(
            "n.klnmf",
            W=saved.W,
            feature_names=saved.feature_names,
            metadata=saved.metadata | {"component_names": names},
        )
        assert outcome(capsys, "report", "n.klnmf", "-o", "r.html", "--force")[0] == 0
        page = Path("r.html").read_text(encoding="utf-8")
        assert ("Water" in page) == shown  # as many names as components, or none
        assert "4 documents × " in page


def shown_command(page: str) -> list[str]:
    """The words of the command that a report shows in place of code."""
    text = Path(page).read_text(encoding="utf-8")
    assert 'id="python-snippet"' not in text
    found = re.search('<code id="shell-command">(.*?)</code>', text, re.DOTALL)
    assert found
    program, *words = shlex.split(html.unescape(found[1]))
    assert program == "klnmf"
    return words


def test_the_command_in_the_report_is_that_of_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [{"body": f"sea ship {word} sand"} for word in ("wave", "Wave", "wind", "wave wind")]
    Path("my docs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words = ["fit", "my docs.jsonl", "--text-field", "body", "--keep-case", "--ngram-range", "1,2"]
    words += ["-r", "2", "-o", "first.klnmf", "--report", "first.html"]
    assert outcome(capsys, *words, "--restart")[0] == 0
    assert outcome(capsys, "report", "first.klnmf", "-o", "other.html")[0] == 0
    for page in ("first.html", "other.html"):
        assert shown_command(page) == words
    assert outcome(capsys, "consensus", "my docs.jsonl", *words[2:7], "-o", "c.klnmf")[0] == 0
    assert outcome(capsys, "report", "c.klnmf")[0] == 0
    assert shown_command("c.html") == ["consensus", "my docs.jsonl", *words[2:7], "-o", "c.klnmf"]


def test_a_report_on_a_file_of_a_stranger_shows_one_command_or_code(
    model: Path, capsys: Any
) -> None:
    saved = load_model(model)
    for command in (["fit", "x; rm *", "a\nb", 1], "rm *", None):
        metadata = saved.metadata | {"command": command}
        saved.model.save("n.klnmf", W=saved.W, metadata=metadata)
        assert outcome(capsys, "report", "n.klnmf", "-o", "r.html", "--force")[0] == 0
        if isinstance(command, list):
            assert shown_command("r.html")[:2] == ["fit", "x; rm *"]
        else:  # older files have none
            assert "# input = &#39;counts.npz&#39;\nmodel = KLNMF(" in Path("r.html").read_text()


def test_a_report_on_other_data_shows_those(model: Path, capsys: Any) -> None:
    X = sp.csr_array(sp.load_npz("counts.npz")[::-1])
    names = [f"other{i}" for i in range(60)]
    labels = ["new"] * 60
    write_counts(CountTable(X, names, WORDS, labels), Path("other.npz"))
    assert outcome(capsys, "report", model, "other.npz", "-o", "other.html")[0] == 0
    text = Path("other.html").read_text(encoding="utf-8")
    assert "other3" in text
    assert "doc3" not in text
    assert '"new"' in text


def test_evaluate_looks_at_the_features_that_both_know(model: Path, capsys: Any) -> None:
    X = sp.load_npz("counts.npz")
    write_counts(CountTable(X[:, 5:30], SAMPLES, WORDS[5:30]), Path("part.npz"))
    code, out, err = outcome(capsys, "evaluate", model, "part.npz", "--json")
    assert code == 0
    assert "25 of 40 features of the model found" in err
    scores = json.loads(out)
    assert scores["features"] == 25
    part = load_model(model).model
    part.components_, part.n_features_in_ = part.components_[:, 5:30], 25
    assert scores["log_likelihood"] == pytest.approx(part.score(X[:, 5:30]), rel=1e-12)


def test_a_wrong_pattern_is_one_line(counts: Path, capsys: Any) -> None:
    Path("docs.jsonl").write_text('{"text": "sea"}\n')
    code, _, err = outcome(capsys, "fit", "docs.jsonl", "--token-pattern", "(")
    assert code == 1
    assert "--token-pattern is not a regular expression" in err


# ---- convert, info -------------------------------------------------------------------------------


def test_convert_keeps_names_and_refuses_to_overwrite(counts: Path, capsys: Any) -> None:
    assert outcome(capsys, "convert", counts, "counts.csv")[0] == 0
    assert outcome(capsys, "convert", "counts.csv", "again.npz", "--layout", "triplets")[0] == 0
    code, _, err = outcome(capsys, "convert", counts, "again.npz")
    assert code == 1
    assert "again.npz exists already" in err
    assert outcome(capsys, "fit", "again.npz", "-r", 2)[0] == 0
    assert set(load_model("again.klnmf").feature_names) <= set(WORDS)


def test_texts_are_counted_with_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [{"text": "the sea and the ship"}, {"text": "the ship at sea"}, {"text": "a field"}]
    Path("docs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, _, err = outcome(
        capsys, "convert", "docs.jsonl", "words.mtx", "--stop-words", "english", "--min-df", "2"
    )
    assert code == 0
    assert "3 samples × 2 features" in err


def test_info_names_versions_machine_and_model(model: Path, capsys: Any) -> None:
    code, out, _ = outcome(capsys, "info", "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["machine"]["threads"] >= 1
    assert facts["machine"]["instruction set"]
    assert set(facts["back-ends"]) == {"cpu", "cuda", "dask", "reference"}
    _, text, _ = outcome(capsys, "info", model)
    assert "components               3" in text
    assert "input                    counts.npz" in text
    assert re.search(r"optimality gap +[0-9.e-]+\n", text)


def test_info_of_a_model_whose_gap_is_unknown(capsys: Any) -> None:
    """A version that did not compute it wrote the file; JSON knows no NaN."""
    _, out, _ = outcome(capsys, "info", VERSION_1, "--json")
    assert json.loads(out, parse_constant=pytest.fail)["model"]["optimality gap"] is None
    assert "optimality gap           unknown\n" in outcome(capsys, "info", VERSION_1)[1]


@pytest.mark.parametrize(
    "words",
    [
        "fit counts.npz -r 2 -o OUT.klnmf",
        "fit counts.npz -r 2",
        "fit counts.npz -r 2 -o new.klnmf --report OUT.html",
        "rank counts.npz --ranks 1,2 -o OUT.json",
        "rank counts.npz --ranks 1,2 -o new.json --plot OUT.png",
        "consensus counts.npz -r 2 --runs 3 -o OUT.klnmf",
        "consensus counts.npz -r 2 --runs 3 -o new.klnmf --result OUT.klnmf",
        "transform model.klnmf counts.npz -o OUT.csv",
        "topics model.klnmf -o OUT.txt",
        "name model.klnmf --component 0=Sea -o OUT.klnmf",
        "report model.klnmf -o OUT.html",
        "report model.klnmf",
        "convert counts.npz OUT.npz",
        "convert counts.npz -o OUT.npz",
        "prepare counts.npz OUT",
        "prepare counts.npz -o OUT",
    ],
)
def test_no_command_overwrites_a_file_unless_forced(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One rule for everything that a command writes, under a given name or beside its data."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).poisson(2.0, (12, 6))
    write_counts(CountTable(X, None, list("abcdef")), "counts.npz")
    assert outcome(capsys, "fit", "counts.npz", "-r", 2, "-o", "model.klnmf")[0] == 0
    given = next((word for word in words.split() if word.startswith("OUT")), None)
    name = given or words.split()[1].replace("counts.npz", "counts.klnmf")
    name = name if given else name.replace("model.klnmf", "model.html")
    if words.startswith("prepare"):
        assert outcome(capsys, "prepare", "counts.npz", name)[0] == 0
    else:
        Path(name).write_text("mine")
    before = Path(name).stat().st_ino
    code, _, err = outcome(capsys, *words.split())
    assert (code, err) == (
        1,
        f"klnmf: error: {name} exists already; add --force to overwrite it.\n",
    )
    assert Path(name).stat().st_ino == before
    code, _, err = outcome(capsys, *words.split(), "--force")
    assert code == 0, err
    assert Path(name).stat().st_ino != before
