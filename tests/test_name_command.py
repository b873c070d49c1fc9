"""klnmf name: names that are added to a saved model, and where they are shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import EVERY_WORD, outcome
from klnmf import KLNMF, TopicModel, load_model
from klnmf.saved.container import read_container, write_container
from klnmf.simulate import simulate_counts
from klnmf.topics import format_topics


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of 20 samples and 6 features with 3 components, without names."""
    monkeypatch.chdir(tmp_path)
    X = simulate_counts(20, 6, 3, random_state=0).X
    nmf = KLNMF(3, max_iter=20, random_state=0, tol=1e-1)
    W = nmf.fit_transform(X)
    nmf.save("m.klnmf", W=W, metadata={"input": "x.npz"})
    return Path("m.klnmf")


def lines(name: str, names: list[str]) -> str:
    Path(name).write_text("".join(f"{each}\n" for each in names), encoding="utf-8")
    return name


def test_components_are_named_and_shown(model: Path, capsys: Any) -> None:
    before = load_model(model)
    code, _, err = outcome(
        capsys, "name", model, "--component", "1=The sea", "--component", "0=Farming"
    )
    assert (code, err) == (0, "named components: m.klnmf\n")
    saved = load_model(model)
    assert saved.metadata == {
        "input": "x.npz",
        "component_names": ["Farming", "The sea", "component 2"],
    }
    np.testing.assert_array_equal(saved.model.components_, before.model.components_)
    np.testing.assert_array_equal(saved.W, before.W)
    assert saved.klnmf_version == before.klnmf_version

    _, out, _ = outcome(capsys, "topics", model)
    assert out.splitlines()[0] == "component  share  name         top features"
    assert "  Farming      feature " in out
    _, out, _ = outcome(capsys, "topics", model, "--csv")
    assert out.splitlines()[:2] == [
        "component,name,share,rank,feature,lift",
        out.splitlines()[1],
    ]
    assert out.splitlines()[1].startswith("0,Farming,")
    _, out, _ = outcome(capsys, "topics", model, "--json")
    assert [topic["name"] for topic in json.loads(out)] == ["Farming", "The sea", "component 2"]
    np.savetxt("new.csv", np.ones((2, 6), int), fmt="%d", delimiter=",")
    words = ("transform", model, "new.csv", "--no-header", "--no-index", "-o", "-")
    _, out, _ = outcome(capsys, *words)
    assert out.splitlines()[0] == "sample,Farming,The sea,component 2"
    assert outcome(capsys, "report", model, "-o", "r.html")[0] == 0
    assert "The sea" in Path("r.html").read_text(encoding="utf-8")

    # Names that are there stay.
    assert outcome(capsys, "name", model, "--component", "2=Trade")[0] == 0
    assert load_model(model).metadata["component_names"] == ["Farming", "The sea", "Trade"]


def test_names_from_a_file_go_to_another_model(model: Path, capsys: Any) -> None:
    before = model.read_bytes()
    words = ["name", model, "-o", "named.klnmf"]
    words += ["--component-names", lines("k.txt", ["a", "b", "ü"])]
    code, _, err = outcome(capsys, *words)
    assert (code, err) == (0, "named components: named.klnmf\n")
    assert model.read_bytes() == before
    assert load_model("named.klnmf").metadata["component_names"] == ["a", "b", "ü"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "nothing to name: give --component NUMBER=NAME"),
        (("--component", "x"), 2, "must be like 3='The sea', got 'x'"),
        (("--component", "7=x"), 1, "there is no component 7: they are 0 to 2."),
        (("--component", "0=x", "--component", "1=x"), 1, "two components would have the name 'x'"),
        (("--component", "0=x", "--component", "0=y"), 1, "names a component twice"),
        (("--component-names", "two.txt"), 1, "expected 3 names for the components of m.klnmf"),
        (("--component-names", "none.txt"), 1, "There is no file 'none.txt'."),
        (("--component", "0=x", "-o", "m.txt"), 2, "a model is written as .klnmf"),
    ],
)
def test_wrong_names(
    model: Path, capsys: Any, words: tuple[str, ...], code: int, message: str
) -> None:
    lines("two.txt", ["a", "b"])
    before = model.read_bytes()
    try:
        found, _, err = outcome(capsys, "name", model, *words)
    except SystemExit as error:  # of argparse
        found, err = int(str(error.code)), capsys.readouterr().err
    assert (found, message in err) == (code, True)
    assert "Traceback" not in err
    assert model.read_bytes() == before


def test_topic_model_knows_the_names(model: Path, capsys: Any) -> None:
    Path("docs.jsonl").write_text('{"text": "sea ship sea"}\n{"text": "corn field"}\n')
    assert outcome(capsys, "fit", "docs.jsonl", *EVERY_WORD, "-r", 2, "-o", "t.klnmf")[0] == 0
    assert outcome(capsys, "name", "t.klnmf", "--component", "0=Water")[0] == 0
    assert TopicModel.load("t.klnmf").topic_names_[0] == "Water"


def test_names_in_a_table_of_topics() -> None:
    table = format_topics(np.eye(2), ["sea", "corn"], component_names=["a\nb", "x" * 99])
    assert table.splitlines()[0] == f"component  share  {'name':<30}  top features"
    assert f"  a b{' ' * 27}  sea" in table
    with pytest.raises(ValueError, match="component_names has 1 names for 2 components"):
        format_topics(np.eye(2), component_names=["a"])


def test_names_cannot_control_the_terminal() -> None:
    table = format_topics(np.eye(2), ["sea\x1b[2J", "corn"], component_names=["a\x1b[31m", "b\0"])
    assert table.isascii()
    assert table.replace("\n", "").isprintable()
    assert r"a\x1b[31m" in table
    assert r"sea\x1b[2J" in table


@pytest.mark.parametrize("form", ["--csv", "--json", "--top=3"])
def test_answers_cannot_control_the_terminal(
    model: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    found = read_container(model, "model")
    found.content["metadata"]["component_names"] = ["a\x9b2J\x1b[31m", "b", "c"]
    write_container(model, found)
    piped = outcome(capsys, "topics", model, form)[1]
    assert form == "--top=3" or "\x9b" in piped  # as it is, for programs
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    shown = outcome(capsys, "topics", model, form)[1]
    assert shown.replace("\n", "").isprintable()
    assert r"a\x9b2J" in shown


@pytest.mark.parametrize("form", ["--csv", "--json", "--top=3"])
def test_half_a_character_in_the_names_of_a_file(model: Path, capsys: Any, form: str) -> None:
    found = read_container(model, "model")
    found.content["metadata"]["component_names"] = ["\ud800x", "b", "c"]
    write_container(model, found)
    code, out, err = outcome(capsys, "topics", model, form)
    assert (code, err) == (0, "")
    assert "?x" in out.encode("utf-8").decode("utf-8")
