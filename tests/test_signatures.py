"""Tables of mutation types are turned, and signatures are converted to other opportunities."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from commands import outcome
from klnmf import KLNMF, load_model
from klnmf.named_features import match_features, model_of_features
from klnmf.plots import plot_signatures
from klnmf.readers import read_counts
from klnmf.signatures import SBS96, change_opportunities, has_types_in_rows, samples_by_types
from klnmf.simulate import simulate_counts
from klnmf.topics import match_reference
from klnmf.uncertainty import sparse_assignment

COUNTS = np.random.default_rng(0).poisson(3.0, size=(4, 96))
TUMOURS = ["TCGA-1", "TCGA-2", "TCGA-3", "TCGA-4"]


def by_types(order: Any = SBS96) -> pd.DataFrame:
    """Types × samples, as SigProfiler writes it."""
    table = pd.DataFrame(COUNTS.T, index=list(SBS96), columns=TUMOURS)
    table.index.name = "MutationType"
    return table.loc[list(order)]


def test_the_types_are_96_in_the_order_of_published_plots() -> None:
    assert len(set(SBS96)) == 96
    assert SBS96[:2] == ("A[C>A]A", "A[C>A]C")
    assert (SBS96[16], SBS96[-1]) == ("A[C>G]A", "T[T>G]T")


@pytest.mark.parametrize("name", ["a.all", "a.txt", "a.tsv", "a.csv"])
def test_files_with_types_in_rows_are_turned(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / name
    by_types(SBS96[::-1]).to_csv(path, sep="," if name.endswith("csv") else "\t")
    with caplog.at_level(logging.WARNING, "klnmf.readers"):
        table = read_counts(path)
    assert "rows are mutation types" in caplog.text
    assert table.row_names.tolist() == TUMOURS
    assert table.column_names.tolist() == list(SBS96[::-1])
    np.testing.assert_array_equal(table.X.toarray(), COUNTS[:, ::-1])
    assert read_counts(path, transpose=True).row_names.tolist() == TUMOURS  # turned once, not twice


def test_a_table_of_signatures_is_turned(tmp_path: Path) -> None:
    # COSMIC's layout: the column Type and one of probabilities for each signature.
    shares = by_types() / by_types().sum()
    shares.index.name = "Type"
    shares.to_csv(tmp_path / "reference.txt", sep="\t")
    table = read_counts(tmp_path / "reference.txt")
    assert table.shape == (4, 96)
    np.testing.assert_allclose(table.X.sum(axis=1), 1.0)


def test_other_tables_are_left_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.tsv"
    by_types().T.to_csv(path, sep="\t")
    assert read_counts(path).shape == (4, 96)
    assert not caplog.text
    (tmp_path / "note.txt").write_text("a letter without any tab\n")
    with pytest.raises(ValueError, match="cannot be inferred"):
        read_counts(tmp_path / "note.txt")


@pytest.mark.parametrize(
    ("kind", "is_type"),
    [
        ("A[C>A]G", True),
        ("T:A[C>A]G", True),
        ("AA[C>A]GT", True),
        ("AC>TT", True),
        ("1:Del:C:0", True),
        ("3:Ins:R:2", True),
        ("A[C>C]G", False),
        ("A[G>A]G", False),
        ("AC", False),
    ],
)
def test_names_of_types(kind: str, is_type: bool) -> None:
    assert has_types_in_rows([kind], ["sample"]) == is_type
    assert not has_types_in_rows([kind, "total"], ["sample"])
    assert not has_types_in_rows([kind], [kind])
    assert not has_types_in_rows([], ["sample"])
    assert not has_types_in_rows(None, ["sample"])


def test_frames_are_turned_and_sorted(caplog: pytest.LogCaptureFixture) -> None:
    turned = samples_by_types(by_types(SBS96[::-1]))
    assert "the DataFrame" in caplog.text
    pd.testing.assert_frame_equal(turned, by_types().T)
    pd.testing.assert_frame_equal(samples_by_types(turned[turned.columns[::-1]]), turned)
    few = turned[list(SBS96[:5][::-1])]
    assert samples_by_types(few) is few


def respelled(how: str) -> list[str]:
    """The 96 types as others write them."""
    parts = [{"a": kind[0], "old": kind[2], "new": kind[4], "b": kind[-1]} for kind in SBS96]
    return [how.format(**part) for part in parts]


@pytest.mark.parametrize(
    "how",
    [
        "{a}{old}{b}>{a}{new}{b}",
        "{old}>{new}:{a}{old}{b}",
        "{a}{old}{b} {old}>{new}",
        "{old}{new} {a}.{b}",
    ],
)
def test_types_that_are_written_in_other_ways(how: str, tmp_path: Path) -> None:
    table = by_types().set_axis(respelled(how), axis=0)
    turned = samples_by_types(table.iloc[::-1])
    np.testing.assert_array_equal(turned, COUNTS)
    assert turned.columns.tolist() == list(SBS96)
    pd.testing.assert_frame_equal(samples_by_types(table.T), turned)
    table.to_csv(tmp_path / "a.csv")
    read = read_counts(tmp_path / "a.csv")
    assert read.row_names.tolist() == TUMOURS
    assert read.column_names.tolist() == respelled(how)
    known = by_types(SBS96[::-1])
    for names, reference in ((read.column_names, known), (SBS96, table), (read.column_names, read)):
        assert match_reference(read.X, reference, names).nearest.tolist() == [0, 1, 2, 3]
    lines = plot_signatures(read.X.toarray()[:1, ::-1], feature_names=respelled(how)[::-1])
    heights = [bar.get_height() for bar in np.ravel(lines)[0].patches[:96]]
    np.testing.assert_allclose(heights, COUNTS[0] / COUNTS[0].sum(), rtol=1e-6)


def test_types_in_columns_of_their_own(tmp_path: Path) -> None:
    plain = by_types().reset_index(drop=True)
    one = plain.assign(Type=SBS96)
    two = plain.assign(Type=respelled("{old}>{new}"), Trinucleotide=respelled("{a}{old}{b}"))
    three = two.assign(Somatic=SBS96)
    for frame in (one, two, three, two.set_index(["Type", "Trinucleotide"])):
        turned = samples_by_types(frame)
        np.testing.assert_array_equal(turned, COUNTS)
        assert turned.index.tolist() == TUMOURS
        assert turned.columns.tolist() == list(SBS96)
    with pytest.raises(ValueError, match=r"columns of texts: 'Type'.*pass X.set_index\('Type'\)"):
        KLNMF(2).fit(one)
    with pytest.raises(ValueError, match=r"texts: 'Type', 'Trin.*set_index\(\['Type', 'Trin"):
        KLNMF(2).fit(two)
    two[["Type", "Trinucleotide", *TUMOURS]].to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=r"line 2: two columns make up the mutation types.*pandas"):
        read_counts(tmp_path / "a.csv")


# ---- opportunities -------------------------------------------------------------------------------


def test_a_fit_to_an_exome_gives_the_signatures_of_the_genome() -> None:
    _, W, H = simulate_counts(300, 96, 3, counts_per_sample=4000, random_state=0)
    generator = np.random.default_rng(0)
    genome = generator.uniform(10.0, 1000.0, 96)
    exome = genome * generator.uniform(0.005, 0.05, 96)
    X = generator.poisson(W @ (H.T * exome / genome) * 50)
    model = KLNMF(3, random_state=0, tol=1e-6, dtype=np.float64)
    W_exome = model.fit_transform(X)
    found = change_opportunities(model.components_, SBS96, before=exome, after=genome)
    np.testing.assert_allclose(found.components.sum(axis=1), 1.0)
    # The same expected counts, written as W' (H' ∘ exome / genome).
    W_genome = W_exome * found.scale
    back = W_genome @ (found.components * exome / genome)
    np.testing.assert_allclose(back, W_exome @ model.components_, rtol=1e-10)
    # Of the planted signatures, and not of the exome's.
    shares = (H / H.sum(axis=0)).T
    for component in found.components:
        assert np.abs(shares - component).sum(axis=1).min() < 0.06
    # There and back.
    there = change_opportunities(found.components, SBS96, before=genome, after=exome)
    expected = model.components_ / model.components_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(there.components, expected, rtol=1e-10)


def test_opportunities_by_type_by_context_and_by_both_strands() -> None:
    types = ["A[C>T]G", "T[T>A]C"]
    by_array = change_opportunities([[0.5, 0.5]], types, after=[4.0, 1.0])
    for opportunities in (
        {"T[T>A]C": 1.0, "A[C>T]G": 4.0},
        {"ACG": 4.0, "TTC": 1.0},
        {"ACG": 3.0, "CGT": 1.0, "TTC": 0.25, "GAA": 0.75},
        pd.Series({"ACG": 4.0, "TTC": 1.0}),
    ):
        found = change_opportunities([[0.5, 0.5]], types, after=opportunities)
        np.testing.assert_allclose(found.components, by_array.components)
        np.testing.assert_allclose(found.components, [[0.8, 0.2]])


def test_wrong_opportunities_are_refused() -> None:
    with pytest.raises(ValueError, match=r"after has neither the type 'A\[C>T\]G'.*'ACG'"):
        change_opportunities([[1.0]], ["A[C>T]G"], after={"ACA": 1.0})
    with pytest.raises(ValueError, match="before must hold a number above 0 for each of the 1"):
        change_opportunities([[1.0]], ["A[C>T]G"], before=[0.0])
    with pytest.raises(ValueError, match="one column for each of the 2 types"):
        change_opportunities([[1.0]], ["A[C>T]G", "A[C>T]A"])
    empty = change_opportunities([[0.0]], ["A[C>T]G"])
    assert empty.components.tolist() == [[0.0]]


# ---- plot ----------------------------------------------------------------------------------------


def test_the_plot_has_the_types_in_their_places() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from klnmf.plots import plot_signatures
    from klnmf.plots.signatures import COLOURS

    shares = np.random.default_rng(0).dirichlet(np.full(96, 0.5), size=3)
    order = np.random.default_rng(1).permutation(96)
    names = [SBS96[j] for j in order]
    limits = SimpleNamespace(lower=shares[:, order] * 0.9, upper=shares[:, order] * 1.2)
    axes = plot_signatures(
        7 * shares[:, order],
        names,
        intervals=SimpleNamespace(components=limits),
        W=np.ones((4, 3)),
        component_names=["a", "b", "c"],
        select=[2, 0],
    )
    assert len(axes) == 2
    for ax, component in zip(axes, (2, 0), strict=True):
        bars = ax.patches[:96]
        np.testing.assert_allclose([bar.get_height() for bar in bars], shares[component])
        colours = [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in bars]
        assert colours == list(np.repeat(COLOURS, 16))
        lines = np.array(ax.collections[0].get_segments())
        np.testing.assert_allclose(lines[:, 1, 1], 1.2 * shares[component])
    assert [axes[0].texts[0].get_text(), axes[1].texts[0].get_text()] == ["c", "a"]
    assert "33.3% of mutations" in [text.get_text() for text in axes[0].texts]
    labels = [label.get_text() for label in axes[1].get_xticklabels()]
    assert labels[:2] == ["ACA", "ACC"]
    assert labels[-1] == "TTT"
    wide = SimpleNamespace(lower=np.zeros((2, 96)), upper=np.ones((2, 96)))
    with pytest.raises(ValueError, match="intervals are for 2 components"):
        plot_signatures(shares, intervals=wide)
    for wrong in (shares[:, :5], shares):
        with pytest.raises(ValueError, match="plot_top_features"):
            plot_signatures(wrong, [f"gene {j}" for j in range(wrong.shape[1])])
    plt.close("all")


# ---- command line --------------------------------------------------------------------------------


def test_from_a_matrix_of_sigprofiler_to_few_components_in_each_tumour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    signatures = generator.dirichlet(np.full(96, 0.2), size=4)
    W = generator.gamma(1.0, 100.0, size=(60, 4)) * (generator.random((60, 4)) < 0.5)
    W[:, 0] += 50.0
    counts = pd.DataFrame(generator.poisson(W @ signatures).T, index=list(SBS96))
    counts.columns = [f"tumour {i}" for i in range(60)]
    counts.index.name = "MutationType"
    counts.to_csv("cohort.SBS96.all", sep="\t")
    code, _, err = outcome(capsys, "fit", "cohort.SBS96.all", "-r", 4, "-o", "m.klnmf")
    assert code == 0
    assert "rows are mutation types" in err
    assert "60 samples × 96 features" in err
    numbers = []
    for options in ([], ["--few-components"]):
        out = f"W{len(options)}.csv"
        words = ["transform", "m.klnmf", "cohort.SBS96.all", "-o", out, "-q", *options]
        assert outcome(capsys, *words)[0] == 0
        table = pd.read_csv(out, index_col=0)
        assert table.index.tolist() == counts.columns.tolist()
        numbers.append((table > 0).to_numpy().sum(axis=1))
    expected = sparse_assignment(load_model("m.klnmf").model, read_counts("cohort.SBS96.all").X)
    np.testing.assert_array_equal(numbers[1], (expected > 0).sum(axis=1))
    assert numbers[1].mean() < numbers[0].mean() - 0.3
    # With weights, as in Python: the second half is noisier, and hardly counts.
    noise = np.where(np.arange(60) < 30, 1.0, generator.gamma(0.3, 1 / 0.3, size=(96, 60)))
    counts = (counts * noise).astype(int)
    counts.to_csv("noisy.SBS96.all", sep="\t")
    np.savetxt("w.txt", np.where(np.arange(60) < 30, 1.0, 0.01))
    weighted = ["--sample-weight", "w.txt"]
    assert outcome(capsys, "fit", "noisy.SBS96.all", "-r", 4, "-o", "n.klnmf", *weighted)[0] == 0
    words = ["transform", "n.klnmf", "noisy.SBS96.all", *weighted, "-o"]
    assert outcome(capsys, *words, "weighted.csv", "--few-components")[0] == 0
    model, X = load_model("n.klnmf").model, read_counts("noisy.SBS96.all").X
    plain = sparse_assignment(model, X).toarray()
    wanted = sparse_assignment(model, X, sample_weight=np.loadtxt("w.txt")).toarray()
    found = pd.read_csv("weighted.csv", index_col=0).to_numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(wanted - plain).max() > 1.0
    assert "--sample-weight is for --few-components" in outcome(capsys, *words, "W.csv")[2]
    # Matched by name, the counts of the fit are still known to be those: H was estimated from them.
    both = match_features(SBS96, SBS96)
    assert model_of_features(model, X, both)[0].data_checksum_ == model.data_checksum_
