"""What benchmarks/cnmf.py runs with the interpreter that has the package cnmf.

    python cnmf_worker.py COUNTS.h5ad OUT.npz RANK RUNS GENES LOSS THRESHOLD SEED

It imports nothing of klnmf. OUT.npz gets the chosen genes, the programs of each run and of the
consensus (on genes that are scaled to unit variance), the usages of the cells before and after
cnmf's last refit to TPM, and the seconds of processor time.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from cnmf import cNMF, load_df_from_npz


def main(counts: str, out: str, *numbers: str) -> None:
    """Prepare, factorise, combine, and take the consensus with and without the last refit."""
    rank, runs, genes = (int(number) for number in numbers[:3])
    loss, threshold, seed = numbers[3], float(numbers[4]), int(numbers[5])
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        run = cNMF(output_dir=folder, name="run")
        run.prepare(
            counts,
            components=[rank],
            n_iter=runs,
            seed=seed,
            beta_loss=loss,
            num_highvar_genes=genes,
        )
        started = time.process_time()
        run.factorize()
        found = {"run_seconds": time.process_time() - started}
        run.combine()
        place = (rank, str(threshold).replace(".", "_"))
        for name, refit in (("medians", False), ("usages", True)):
            started = time.process_time()
            options = {"density_threshold": threshold, "refit_usage": refit}
            run.consensus(rank, show_clustering=False, build_ref=False, **options)
            found["consensus_seconds"] = time.process_time() - started
            found[name] = load_df_from_npz(run.paths["consensus_usages"] % place).to_numpy()
        programs = load_df_from_npz(run.paths["consensus_spectra"] % place)
        found["programs"] = programs.to_numpy()
        found["genes"] = programs.columns.to_numpy().astype(str)
        found["runs"] = np.stack(
            [
                load_df_from_npz(run.paths["iter_spectra"] % (rank, i)).to_numpy()
                for i in range(runs)
            ]
        )
    np.savez(Path(out), **found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # on iteration limits and on pandas
    main(*sys.argv[1:])
