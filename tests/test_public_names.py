"""The public names, written out: none comes or goes unless this page of names changes too."""

from __future__ import annotations

import importlib
import inspect

import pytest

from test_docs import MODULES

PUBLIC = {
    "klnmf": """
        DominantSamplesWarning EmptySamplesWarning KLNMF ManyComponentsWarning MiniBatchKLNMF
        NotCountsWarning PoissonCP RunOptions SparseTensor TextsWarning TopicModel
        TransposedWarning __version__ capped_weights load_model open_matrix prepare
    """,
    "klnmf.saved": """
        SavedFileError
    """,
    "klnmf.topics": """
        ComponentMatch MeanShares Probabilities ReferenceMatch coherence component_shares
        component_similarity format_components format_topics intertopic_coordinates
        match_components match_reference mean_shares name_components plsi_probabilities
        top_features
    """,
    "klnmf.plots": """
        plot_component_similarity plot_components plot_history plot_mean_shares
        plot_signatures plot_structure plot_top_features
    """,
    "klnmf.readers": """
        CountTable Documents FORMATS OnDiskMatrix ReadError open_matrix prepare read_counts
        read_documents read_tensor write_counts write_tensor
    """,
    "klnmf.report": """
        write_report
    """,
    "klnmf.datasets": """
        load_bible
    """,
    "klnmf.tl": """
        bootstrap consensus differential fitted_model name_programs nmf posterior project
        result select_rank top_genes
    """,
    "klnmf.named_features": """
        FeatureOverlap transform_by_name
    """,
    "klnmf.frames": """
        components_frame
    """,
    "klnmf.model_selection": """
        Consensus NullAgreement RankSelection consensus select_rank
    """,
    "klnmf.uncertainty": """
        Bootstrap DifferentialFeatures Dispersion Intervals Posterior bootstrap
        differential_features dispersion equal_fits posterior sparse_assignment
        split_counts
    """,
    "klnmf.evaluation": """
        HeldOutScores evaluate
    """,
    "klnmf.signatures": """
        ConvertedSignatures SBS96 change_opportunities samples_by_types
    """,
    "klnmf.simulate": """
        SimulatedCounts SimulatedTensor draw_counts simulate_counts simulate_tensor
    """,
    "klnmf.objective": """
        Penalties kkt_residual kl_divergence optimality_gap penalised_objective penalty
        poisson_deviance poisson_log_likelihood
    """,
    "klnmf.solvers": """
        DenseCyclicDescent ExtrapolatedMultiplicativeUpdates MultiplicativeUpdates
        PaperCoordinateDescent SOLVERS Solver SparseCoordinateDescent
    """,
    "klnmf.backends": """
        Backend ClusterLostError
    """,
}


def test_every_public_module_is_here() -> None:
    assert list(PUBLIC) == list(MODULES)


@pytest.mark.parametrize("module", PUBLIC)
def test_a_module_has_these_names_and_no_others(module: str) -> None:
    names = importlib.import_module(module).__all__
    assert sorted(names) == PUBLIC[module].split()


def test_no_function_has_a_seed_of_its_own() -> None:
    """``random_state`` is None by default: who wants the same result again says so, everywhere."""
    members = [
        getattr(importlib.import_module(module), name)
        for module, names in PUBLIC.items()
        for name in names.split()
    ]
    seeds = {
        f"{member.__module__}.{member.__name__}": parameters["random_state"].default
        for member in members
        if inspect.isfunction(member)
        or (inspect.isclass(member) and not issubclass(member, Exception))
        if "random_state" in (parameters := inspect.signature(member).parameters)
    }
    results = {"klnmf.model_selection.rank_selection.RankSelection"}  # the seed that was used
    assert len(seeds) > 10
    assert {name for name, seed in seeds.items() if seed is not None} == results
