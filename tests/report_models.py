"""Models for the tests of the report, made by hand so that nothing has to be fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from klnmf import KLNMF
from klnmf.report import write_report

# Would run if any of it were read as HTML: each way out of an attribute, a text and a script.
HOSTILE = '</script><img src=x onerror="window.attacked=1">\'`&{{7*7}}\u2028\u2029<!--<script>'


def model_of(components: Any, **attributes: Any) -> KLNMF:
    """A fitted model with these components."""
    n_components = components.shape[0]
    model = KLNMF(n_components=n_components, random_state=0)
    model.components_ = components
    model.n_components_ = n_components
    model.n_iter_ = 40
    model.divergence_ = 1234.5
    model.optimality_gap_ = 2e-4
    model.kkt_residual_ = 5e-4
    model.converged_ = True
    model.history_ = [
        {
            "iteration": t + 1,
            "seconds": 0.05 * (t + 1),
            "divergence": 1234.5 + 2.0**-t,
            "objective": 1234.5 + 2.0**-t,
            "optimality_gap": 10.0 ** (-t / 10),
            "kkt_residual": 10.0 ** (-t / 10),
            "zeros_W": 0.5,
            "zeros_H": 0.5,
        }
        for t in range(40)
    ]
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def random_factors(
    n_samples: int, n_features: int, n_components: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """W and components with many zeros, in which every sample and topic is used."""
    generator = np.random.default_rng(seed)
    W = generator.gamma(0.3, size=(n_samples, n_components))
    W[generator.random(W.shape) < 0.6] = 0.0
    W[np.arange(n_samples), np.arange(n_samples) % n_components] += 1.0
    components = generator.gamma(0.2, size=(n_components, n_features))
    components[generator.random(components.shape) < 0.6] = 0.0
    components[np.arange(n_components), np.arange(n_components)] += 3.0
    return W, components


def written_example(path: Path, **arguments: Any) -> Path:
    """A report with hostile names everywhere a name can stand, and some of everything."""
    W, components = random_factors(90, 80, 6)
    counts = sparse.csr_array(np.random.default_rng(1).poisson(0.4, size=(90, 80)))
    words = [f"word{j}" for j in range(80)]
    words[0] = HOSTILE
    names = [f"sample {i}" for i in range(90)]
    names[0] = names[6] = HOSTILE
    labels = ["north", "south", HOSTILE] * 30
    given = {
        "feature_names": words,
        "sample_names": names,
        "labels": labels,
        "documents": [f"{HOSTILE} text of {name}" for name in names],
        "component_names": [HOSTILE, *(f"name {k}" for k in range(1, 6))],
        "metadata": {
            "year": np.arange(90) // 10 + 1990,
            HOSTILE: ["only", "a", "few"] * 30,
            "place": [HOSTILE, "here"] * 45,
        },
        "title": HOSTILE,
        "parameters": {"input": HOSTILE, HOSTILE: HOSTILE},
    }
    return write_report(path, model_of(components), W, counts, **(given | arguments))
