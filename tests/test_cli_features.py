"""Commands and the names of features: repeated ones, other types, few in common, absent words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_files import SAMPLES, WORDS, write_counts_file
from commands import EVERY_WORD, outcome
from klnmf import KLNMF, load_model
from klnmf.readers import CountTable, read_counts, write_counts
from tenx_files import ANTIBODIES, GENES, REPEATED, write_folder, write_h5


@pytest.fixture(autouse=True)
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def values(out: str) -> Any:
    """W as CSV on stdout, without the names."""
    return np.array([line.split(",")[1:] for line in out.splitlines()[1:]], dtype=float)


# ---- 10x data ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # three cells are few
@pytest.mark.parametrize("kind", ["folder", "a.h5"])
def test_data_with_repeated_names_can_be_fitted_and_used(kind: str, capsys: Any) -> None:
    if kind == "folder":
        write_folder(Path(kind), version=3, names=REPEATED)
    else:
        write_h5(Path(kind), names=REPEATED)
    code, _, err = outcome(capsys, "fit", kind, "-r", 2, "-o", "m.klnmf")
    assert code == 0
    assert "1 repeated feature names were made unique (a second 'MATR3' is now 'MATR3-2')" in err
    assert load_model("m.klnmf").feature_names.tolist() == ["MATR3", "sea", "MATR3-2", "MATR3-1"]
    code, out, err = outcome(capsys, "transform", "m.klnmf", kind, "-o", "-")
    assert code == 0
    assert "4 of 4 features of the model found" in err
    assert values(out) == pytest.approx(load_model("m.klnmf").W.toarray(), rel=1e-4, abs=1e-6)
    assert outcome(capsys, "report", "m.klnmf", kind, "-o", "r.html")[0] == 0
    assert outcome(capsys, "evaluate", "m.klnmf", kind)[0] == 0
    code, _, err = outcome(capsys, "prepare", kind, "prepared")
    assert "1 repeated feature names were made unique" in err
    assert outcome(capsys, "transform", "m.klnmf", "prepared", "-o", "-")[0] == 0
    assert "unique" not in outcome(capsys, "convert", kind, "quiet.npz", "-q")[2]


@pytest.mark.filterwarnings("ignore")  # three cells are few
def test_types_of_features(capsys: Any) -> None:
    write_h5(Path("a.h5"), types=(GENES, GENES, ANTIBODIES, GENES))
    code, _, err = outcome(capsys, "convert", "a.h5", "genes.npz")
    assert code == 0
    line = "a.h5: left out 1 feature of type 'Antibody Capture'; to use them too, add"
    assert f"{line} --feature-type all\n" in err
    assert "3 samples × 3 features" in err
    words = ["a.h5", "-r", 2, "-o", "m.klnmf", "--feature-type", "all", "--feature-names", "id"]
    code, _, err = outcome(capsys, "fit", *words)
    assert code == 0
    assert "left out" not in err
    assert load_model("m.klnmf").feature_names.tolist() == ["ENSG0", "ENSG1", "ENSG2", "ENSG3"]
    # New data are read as those of the model were.
    code, _, err = outcome(capsys, "transform", "m.klnmf", "a.h5", "-o", "W.csv")
    assert code == 0
    assert "4 of 4 features of the model found" in err
    code, _, err = outcome(capsys, "convert", "a.h5", "x.npz", "--feature-type", "Peaks")
    assert code == 1
    assert "no feature is of the type 'Peaks'; there are: Antibody Capture, Gene Expression" in err


# ---- new data ------------------------------------------------------------------------------------


@pytest.fixture(name="model")
def model_file(tmp_path: Path, capsys: Any) -> Path:
    write_counts_file(tmp_path)
    assert outcome(capsys, "fit", "counts.npz", "-r", 3, "-o", "model.klnmf")[0] == 0
    return Path("model.klnmf")


@pytest.mark.parametrize("words", ["transform -o W.csv", "evaluate", "report -o r.html"])
def test_few_common_features_are_refused(words: str, model: Path, capsys: Any) -> None:
    X = read_counts("counts.npz").X
    names = [*WORDS[:3], *(f"ENSG{j}" for j in range(37))]
    write_counts(CountTable(X, [f"new{i}" for i in range(60)], names), Path("new.npz"))
    command, *output = words.split()
    given = [command, model, "new.npz", *output]
    code, _, err = outcome(capsys, *given)
    assert code == 1
    assert "Only 3 of 40 features of the model found (7.5 %)" in err
    assert "'word3'" in err
    assert "'ENSG0'" in err
    assert "--min-overlap 0." in err
    code, _, err = outcome(capsys, *given, "--min-overlap", 2)
    assert code == 1
    assert "--min-overlap must be" in err
    assert outcome(capsys, *given, "--min-overlap", 0)[0] == 0


def test_absent_features_by_option(model: Path, capsys: Any) -> None:
    X = read_counts("counts.npz").X
    write_counts(CountTable(X[:, :20], SAMPLES, WORDS[:20]), Path("part.npz"))
    words = ["transform", model, "part.npz", "-o", "-"]
    code, measured, err = outcome(capsys, *words)
    assert code == 0
    assert "20 missing" in err
    assert "--absent-features" not in err
    code, complete, err = outcome(capsys, *words, "--absent-features", "zero")
    assert "20 of 40 features of the model occur" in err
    zeros = X.toarray()
    zeros[:, 20:] = 0
    expected = load_model(model).model.transform(zeros).toarray()
    assert values(complete) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert values(measured).sum() > 1.2 * values(complete).sum()


def test_a_model_of_texts_asks_about_matrices(capsys: Any) -> None:
    for name, text in (("a", "sea ship"), ("b", "sea ship sail"), ("c", "corn field plough")):
        Path("texts").mkdir(exist_ok=True)
        Path("texts", f"{name}.txt").write_text(" ".join([text] * 4))
    assert outcome(capsys, "fit", "texts", *EVERY_WORD, "-r", 2, "-o", "m.klnmf")[0] == 0
    assert load_model("m.klnmf").metadata["open_features"] is True
    assert outcome(capsys, "convert", "texts", "all.npz")[0] == 0
    table = read_counts("all.npz")
    write_counts(CountTable(table.X[:2, :4], None, table.column_names[:4]), Path("few.npz"))
    code, _, err = outcome(capsys, "transform", "m.klnmf", "few.npz", "-o", "-")
    assert code == 0
    assert "If they simply do not occur, add --absent-features zero" in err
    # Of a prepared folder it is known.
    assert outcome(capsys, "prepare", "texts", "prepared", *EVERY_WORD)[0] == 0
    alone = outcome(capsys, "transform", "m.klnmf", "prepared", "-o", "-")[1]
    assert values(alone) == pytest.approx(
        values(outcome(capsys, "transform", "m.klnmf", "texts", "-o", "-")[1]), rel=1e-4, abs=1e-6
    )


def test_samples_without_a_known_word_are_named(tmp_path: Path, capsys: Any) -> None:
    for folder, texts in {
        "old": ["sea ship sea", "corn field corn", "sea ship", "field corn"],
        "new": ["the sea", "nothing known here"],
    }.items():
        (tmp_path / folder).mkdir()
        for number, text in enumerate(texts):
            (tmp_path / folder / f"{number}.txt").write_text(text)
    model = tmp_path / "model.klnmf"
    outcome(capsys, "fit", tmp_path / "old", *EVERY_WORD, "-r", 2, "-o", model, "-q")
    code, _, err = outcome(capsys, "transform", model, tmp_path / "new", "-o", tmp_path / "W.csv")
    assert code == 0
    assert (
        "klnmf: warning: 1 of 2 documents has no words that the model knows: row 1 ('1.txt'). It "
        "gets no topic." in err
    )


# ---- weights and exposures -----------------------------------------------------------------------


def test_a_fit_takes_weights_and_exposures(tmp_path: Path, capsys: Any) -> None:
    X = read_counts(write_counts_file(tmp_path)).X
    w, v = np.linspace(0.5, 2, X.shape[0]), np.linspace(1, 3, X.shape[1])
    np.savetxt("w.txt", w)
    np.savetxt("v.txt", v)
    known = ("--sample-weight", "w.txt", "--feature-weight", "v.txt", "--exposure", "w.txt")
    assert outcome(capsys, "fit", "counts.npz", "-r", "2", "-o", "m.klnmf", *known)[0] == 0
    model = KLNMF(2, feature_weight=v, random_state=0).fit(X, sample_weight=w, exposure=w)
    fitted = load_model("m.klnmf")
    assert fitted.constraint_names_ == model.constraint_names_
    np.testing.assert_array_equal(fitted.components_.toarray(), model.components_)
