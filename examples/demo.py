"""Topics of the King James Bible: fit, print, and save one picture.

Run with ``python examples/demo.py``; it takes the data from the package.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from klnmf import KLNMF
from klnmf.datasets import load_bible
from klnmf.topics import format_topics


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--components", type=int, default=20, help="number of topics")
    parser.add_argument("--output", type=Path, default=Path("klnmf-demo.png"), help="picture")
    parser.add_argument("--seed", type=int, default=0, help="seed of the start")
    return parser.parse_args()


def save_picture(path: Path, components: np.ndarray, words: np.ndarray) -> bool:
    """Save the topics as bar charts; without matplotlib say what to install instead."""
    try:
        import matplotlib
    except ImportError:
        print('No picture: install matplotlib with  pip install "klnmf[plots]".')
        return False
    from klnmf.plots import plot_top_features

    matplotlib.use("Agg")  # a file is all that is wanted, so no window and no display
    axes = plot_top_features(components, words)
    axes[0].figure.savefig(path, dpi=150)
    return True


def main() -> None:
    """Fit, print the topics and how well the fit went, save the picture."""
    options = parse_options()
    bible = load_bible()
    X = bible.data
    n_chapters, n_words = X.shape
    print(f"King James Bible: {n_chapters} chapters x {n_words} words, {X.nnz} nonzero counts")

    model = KLNMF(n_components=options.components, random_state=options.seed)
    start = time.perf_counter()
    W = model.fit_transform(X)
    seconds = time.perf_counter() - start

    print(f"\n{format_topics(model.components_, bible.feature_names, W=W)}\n")
    print(f"KL divergence         {model.divergence_:.2f}")
    print(f"optimality gap        {model.optimality_gap_:.2e}")
    state = "yes" if model.converged_ else "no: stopped at the iteration limit"
    print(f"converged             {state} ({model.n_iter_} iterations)")
    print(f"exact zeros           {np.mean(W == 0):.1%} of W", end=", ")
    print(f"{np.mean(model.components_ == 0):.1%} of components_")
    print(f"time                  {seconds:.2f} s")
    if save_picture(options.output, model.components_, bible.feature_names):
        print(f"picture               {options.output.resolve()}")


if __name__ == "__main__":
    main()
