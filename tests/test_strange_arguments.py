"""Objects of the wrong kind, for every argument of every public function: an error that says so.

Messages never format an object that was not checked: SciPy's ``__str__`` of a sparse array whose
parts do not fit together reads memory that is not its own.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import klnmf
from klnmf import KLNMF, MiniBatchKLNMF, PoissonCP, RunOptions, SparseTensor, TopicModel
from klnmf.estimators.arguments import ELSEWHERE, PLACES, VALUES
from klnmf.model_selection import consensus, select_rank
from klnmf.readers import CountTable
from klnmf.signatures import SBS96
from klnmf.topics import mean_shares
from klnmf.uncertainty import dispersion
from test_docs import DOCS, MODULES, public_names


class Formatted(BaseException):
    """Somebody asked a strange object for its text."""


class Silent:
    """An object whose text is nobody's business."""

    def __repr__(self) -> str:
        raise Formatted

    def __str__(self) -> str:
        raise Formatted

    def __format__(self, how: str) -> str:
        raise Formatted


class Liar(Silent, sp.csr_array):
    """A sparse array whose rows are not where it says they are."""


def liar() -> Liar:
    lies = Liar(np.eye(3))
    lies.indptr = np.array([0, 10**9, 1, 2])
    return lies


STRANGE = {"a liar": liar, "an object": Silent, "a number": lambda: 5, "a list": lambda: [0]}

# ---- one good call of each function --------------------------------------------------------------

NAMES = list("abcdefgh")
FRAME = pd.DataFrame(np.random.default_rng(0).poisson(3.0, (12, 8)), columns=NAMES)
X, LABELS = FRAME.to_numpy(), list("xyz") * 4
FITTED = KLNMF(2, random_state=0, n_threads=1)
W = FITTED.fit(FRAME).transform(FRAME)
TENSOR_MODEL = PoissonCP(2, random_state=0, n_threads=1).fit(X[:, :, np.newaxis] * [1, 2, 1])
H, HISTORY = FITTED.components_, FITTED.history_
QUICK: dict[str, Any] = {"random_state": 0, "run": RunOptions(progress=False)}


def adata() -> Any:
    """Cells with a fit."""
    cells = anndata.AnnData(X.astype(np.float32), var=pd.DataFrame(index=NAMES))
    cells.obs["batch"] = LABELS
    klnmf.tl.nmf(cells, 2)
    return cells


FACTORS: dict[str, Any] = {"W": W, "components": H}
OBJECTIVE: dict[str, Any] = {"X": X, "W": W, "H": H}
# The arguments are made anew for each call: functions change an AnnData.
CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    "klnmf.capped_weights": lambda: {"X": X},
    "klnmf.load_model": lambda: {"path": "nowhere"},
    "klnmf.readers.prepare": lambda: {"data": sp.csr_array(X), "path": "on disk"},
    "klnmf.readers.open_matrix": lambda: {"path": "nowhere"},
    "klnmf.topics.coherence": lambda: {"components": H, "X": X},
    "klnmf.topics.component_shares": lambda: {"components": H},
    "klnmf.topics.component_similarity": lambda: {"components": H},
    "klnmf.topics.format_components": lambda: {"model": TENSOR_MODEL},
    "klnmf.topics.format_topics": lambda: {"components": H},
    "klnmf.topics.intertopic_coordinates": lambda: {"components": H},
    "klnmf.topics.match_components": lambda: {"components": H, "other": H},
    "klnmf.topics.match_reference": lambda: {"components": H, "reference": H},
    "klnmf.topics.mean_shares": lambda: FACTORS | {"groups": LABELS},
    "klnmf.topics.name_components": lambda: {"components": H, "feature_names": NAMES},
    "klnmf.topics.plsi_probabilities": lambda: FACTORS,
    "klnmf.topics.top_features": lambda: {"components": H},
    "klnmf.plots.plot_component_similarity": lambda: {"components": H},
    "klnmf.plots.plot_components": lambda: {"model": TENSOR_MODEL},
    "klnmf.plots.plot_history": lambda: {"history": HISTORY},
    "klnmf.plots.plot_mean_shares": lambda: {"means": mean_shares(W, H, LABELS)},
    "klnmf.plots.plot_signatures": lambda: {"components": np.ones((2, 96)) / 96},
    "klnmf.plots.plot_structure": lambda: FACTORS,
    "klnmf.plots.plot_top_features": lambda: {"components": H},
    "klnmf.readers.CountTable": lambda: {"X": X},
    "klnmf.readers.read_counts": lambda: {"path": "nowhere.csv"},
    "klnmf.readers.read_documents": lambda: {"path": "nowhere.csv"},
    "klnmf.readers.read_tensor": lambda: {"path": "nowhere.tns"},
    "klnmf.readers.write_tensor": lambda: {
        "path": "x.npz",
        "tensor": SparseTensor([[0, 1], [1, 0]]),
    },
    "klnmf.readers.write_counts": lambda: {"table": CountTable(X), "path": "counts.npz"},
    "klnmf.report.write_report": lambda: {"path": "r.html", "model": FITTED, "W": W},
    "klnmf.tl.bootstrap": lambda: {"adata": adata(), "n_runs": 3},
    "klnmf.tl.consensus": lambda: {"adata": adata(), "n_components": 2, "n_runs": 3},
    "klnmf.tl.differential": lambda: {"adata": adata()},
    "klnmf.tl.fitted_model": lambda: {"adata": adata()},
    "klnmf.tl.name_programs": lambda: {"adata": adata(), "names": ["a", "b"]},
    "klnmf.tl.nmf": lambda: {"adata": adata(), "n_components": 2},
    "klnmf.tl.posterior": lambda: {"adata": adata(), "n_sweeps": 30},
    "klnmf.tl.project": lambda: {"adata": adata(), "reference": FITTED, "key_added": "p"},
    "klnmf.tl.result": lambda: {"adata": adata(), "key": "nmf"},
    "klnmf.tl.select_rank": lambda: {"adata": adata(), "ranks": [1, 2]},
    "klnmf.tl.top_genes": lambda: {"adata": adata()},
    "klnmf.named_features.transform_by_name": lambda: {"model": FITTED, "X": FRAME},
    "klnmf.frames.components_frame": lambda: {"model": FITTED},
    "klnmf.model_selection.consensus": lambda: {"X": X, "n_components": 2, "n_runs": 3, **QUICK},
    "klnmf.model_selection.select_rank": lambda: {"X": X, "ranks": [1, 2], **QUICK},
    "klnmf.uncertainty.bootstrap": lambda: {"model": FITTED, "X": FRAME, "n_runs": 3, **QUICK},
    "klnmf.uncertainty.differential_features": lambda: {"model": FITTED, "X": FRAME},
    "klnmf.uncertainty.dispersion": lambda: {"model": FITTED, "X": FRAME},
    "klnmf.uncertainty.equal_fits": lambda: FACTORS,
    "klnmf.uncertainty.posterior": lambda: {"model": FITTED, "X": FRAME, "n_sweeps": 30, **QUICK},
    "klnmf.uncertainty.sparse_assignment": lambda: {"model": FITTED, "X": FRAME},
    "klnmf.uncertainty.split_counts": lambda: {"X": X, "dispersion": dispersion(FITTED, FRAME)},
    "klnmf.evaluation.evaluate": lambda: {"model": FITTED, "X": FRAME},
    "klnmf.signatures.change_opportunities": lambda: {
        **{"components": [[1.0]], "types": ["A[C>T]G"]}
    },
    "klnmf.signatures.samples_by_types": lambda: {
        "table": pd.DataFrame([[1.0] * 96], columns=SBS96)
    },
    "klnmf.simulate.draw_counts": lambda: FACTORS,
    "klnmf.simulate.simulate_counts": lambda: {
        **{"n_samples": 9, "n_features": 5, "n_components": 2}
    },
    "klnmf.simulate.simulate_tensor": lambda: {"shape": (9, 5, 3), "n_components": 2},
    "klnmf.objective.Penalties": dict,
    "klnmf.objective.kkt_residual": lambda: OBJECTIVE,
    "klnmf.objective.kl_divergence": lambda: OBJECTIVE,
    "klnmf.objective.optimality_gap": lambda: OBJECTIVE,
    "klnmf.objective.penalised_objective": lambda: OBJECTIVE,
    "klnmf.objective.penalty": lambda: {"W": W, "H": H},
    "klnmf.objective.poisson_deviance": lambda: OBJECTIVE,
    "klnmf.objective.poisson_log_likelihood": lambda: OBJECTIVE,
}
NOT_HERE = {
    "klnmf.open_matrix",  # the same as in klnmf.readers
    "klnmf.prepare",
    "klnmf.datasets.load_bible",  # no arguments
}


def test_every_public_function_is_here() -> None:
    functions = {
        name
        for module in MODULES
        for name in public_names(module)
        if inspect.isfunction(getattr(importlib.import_module(module), name.split(".")[-1]))
    }
    assert functions <= CALLS.keys() | NOT_HERE


def refuse_or_work(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """An error of the expected kind, or none; not one that Python comes upon by chance."""
    try:
        function(**arguments)
    except (TypeError, ValueError, OSError):
        pass
    finally:
        plt.close("all")


@pytest.mark.filterwarnings("ignore::UserWarning")  # of little data, names that are missing, ...
@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", CALLS)
def test_strange_arguments_of_functions(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module, _, short = name.rpartition(".")
    function = getattr(importlib.import_module(module), short)
    for parameter, about in inspect.signature(function).parameters.items():
        if about.kind is not about.VAR_KEYWORD:
            refuse_or_work(function, CALLS[name]() | {parameter: STRANGE[kind]()})


@pytest.mark.parametrize("shape", [5, "ab", (Silent(), 3), (2, 3, 4), (-1, 3), None], ids=range(6))
def test_sparse_arrays_that_lie_about_their_shape(shape: Any) -> None:
    lies = Liar(np.eye(3))
    lies._shape = shape
    for function in (
        KLNMF(2).fit,
        FITTED.transform,
        lambda given: klnmf.topics.name_components(H, given),
        lambda given: klnmf.frames.components_frame(FITTED, given),
        lambda given: klnmf.uncertainty.sparse_assignment(given, X),
        lambda given: klnmf.named_features.transform_by_name(FITTED, X, given),
        lambda given: klnmf.objective.kl_divergence(X, W, given),
    ):
        with pytest.raises((TypeError, ValueError)):
            function(lies)


# ---- estimators ----------------------------------------------------------------------------------

ESTIMATORS: dict[str, tuple[type, dict[str, Any], dict[str, dict[str, Any]]]] = {
    "KLNMF": (
        KLNMF,
        {"n_components": 2, "n_threads": 1, "max_iter": 5},
        {
            "fit": {"X": X},
            "fit_transform": {"X": X},
            "transform": {"X": X},
            "inverse_transform": {"W": W},
            "score": {"X": X},
            "proportions": {"W": W},
            "save": {"path": "model.klnmf"},
        },
    ),
    "MiniBatchKLNMF": (
        MiniBatchKLNMF,
        {"n_components": 2, "n_threads": 1},
        {"fit": {"X": X}, "partial_fit": {"X": X}, "transform": {"X": X}},
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_strange_arguments_of_estimators(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    estimator, settings, methods = ESTIMATORS[name]
    for parameter in estimator().get_params():
        changed = estimator(**settings | {parameter: STRANGE[kind]()})
        refuse_or_work(changed.fit, {"X": X})
    for method, arguments in methods.items():
        for parameter in inspect.signature(getattr(estimator, method)).parameters:
            if parameter not in ("self", "y", "constraints"):
                fitted = estimator(**settings).fit(X)
                refuse_or_work(getattr(fitted, method), arguments | {parameter: STRANGE[kind]()})
    for parameter in inspect.signature(RunOptions).parameters:
        if name == "KLNMF":
            run = RunOptions(**{parameter: STRANGE[kind]()})
            refuse_or_work(KLNMF(**settings, run=run).fit, {"X": X})


# ---- what users of other libraries type ----------------------------------------------------------


def test_arguments_of_other_libraries_are_in_the_table_of_the_page() -> None:
    page = (DOCS / "coming_from.md").read_text(encoding="utf-8")
    rows = {f"`{name}`": advice for name, advice in ELSEWHERE.items()}
    for (name, value), advice in VALUES.items():
        rows[f"`{name}=None`" if value is None else f'`{name}="{value}"`'] = advice
    for given, advice in rows.items():
        assert f"| {given} | {advice} |" in page


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_of_arguments_in_other_libraries(name: str) -> None:
    advice = re.escape(ELSEWHERE[name].replace("`", ""))
    with pytest.raises(TypeError, match=f"KLNMF does not take the argument '{name}'. {advice}"):
        KLNMF(**{name: 1})
    with pytest.raises(TypeError, match=advice):
        klnmf.tl.nmf(None, **{name: 1})
    with pytest.raises(ValueError, match=advice):
        KLNMF().set_params(**{name: 1})


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_values_of_arguments_in_other_libraries(name: str, value: str | None) -> None:
    wanted = rf"The '{name}' parameter of KLNMF must be .* Got {value!r} instead\. "
    with pytest.raises(ValueError, match=wanted + re.escape(VALUES[name, value].replace("`", ""))):
        KLNMF(**{name: value}).fit(X)


@pytest.mark.parametrize(
    ("function", "meant"),
    [
        (KLNMF, "n_components"),
        (MiniBatchKLNMF, "n_components"),
        (TopicModel, "n_topics"),
        (klnmf.tl.nmf, "n_components"),
        (klnmf.tl.consensus, "n_components"),
        (klnmf.tl.select_rank, "ranks"),
        (consensus, "n_components"),
        (select_rank, "ranks"),
    ],
)
def test_other_words_for_the_number_of_components(function: Any, meant: str) -> None:
    others = {"r", "k", "rank", "n_components", "n_topics", "num_topics"} - {meant}
    for name in others:
        with pytest.raises(
            TypeError, match=rf"does not take the argument '{name}'\. Use {meant}\."
        ):
            function(**{name: 5})


def test_other_arguments() -> None:
    with pytest.raises(TypeError, match=r"argument 'n_comp'\. Did you mean 'n_components'\?"):
        KLNMF(n_comp=3)
    with pytest.raises(TypeError, match=r"top_genes does not take the argument 'r'\. By name it"):
        klnmf.tl.top_genes(None, r=5)
    of_runs = {name for name, place in PLACES.items() if "RunOptions" in place}
    assert of_runs == RunOptions().get_params().keys()
