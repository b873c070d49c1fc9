"""The choice of a rank by the one-standard-error rule, and early stopping.

A new study has new samples. So the standard error of the difference between two ranks comes from
the differences of the individual samples, averaged over the splits: splits of one matrix agree
better with each other than two studies do. The variance between splits is added, because fits may
end in different optima.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# The search stops when this many ranks in a row are worse than the best one by more than this many
# standard errors.
RISEN_RANKS = 3
RISEN_ERRORS = 2.0


@dataclass(frozen=True)
class Comparison:
    """Each rank compared with the one of lowest deviance; arrays have one entry per rank."""

    deviance: FloatArray  # mean over samples and splits
    difference: FloatArray  # deviance − lowest deviance
    standard_error: FloatArray  # of the difference; 0 for the lowest itself
    lowest: int  # index of the lowest deviance
    chosen: int  # index of the chosen rank

    @property
    def has_clearly_risen(self) -> bool:
        """Whether the last ranks are all clearly worse than an earlier one."""
        last = slice(-RISEN_RANKS, None)
        return bool(
            len(self.difference) - self.lowest > RISEN_RANKS
            and np.all(self.difference[last] > RISEN_ERRORS * self.standard_error[last])
        )


def compared(of_samples: FloatArray, of_splits: FloatArray) -> Comparison:
    """Choose the smallest rank within one standard error of the lowest deviance.

    ``of_samples`` (n_ranks × n_samples) are held-out deviances averaged over the splits,
    ``of_splits`` (n_ranks × n_splits) are averaged over the samples.

    Examples
    --------
    >>> import numpy as np
    >>> of_samples = np.array([[5.0, 6.0, 7.0], [4.0, 4.2, 4.1], [4.1, 4.1, 4.05]])
    >>> compared(of_samples, of_samples.mean(axis=1, keepdims=True)).chosen
    1
    """
    deviance = of_samples.mean(axis=1)
    lowest = int(np.argmin(deviance))
    between_samples = _squared_error(of_samples - of_samples[lowest])
    between_splits = _squared_error(of_splits - of_splits[lowest])
    standard_error = np.sqrt(between_samples + between_splits)
    difference = deviance - deviance[lowest]
    chosen = int(np.flatnonzero(difference <= standard_error)[0])
    return Comparison(deviance, difference, standard_error, lowest, chosen)


def _squared_error(values: FloatArray) -> FloatArray:
    """Squared standard error of the row means; 0 if there is only one column."""
    n = values.shape[1]
    if n < 2:
        return np.zeros(len(values))
    return np.asarray(values.var(axis=1, ddof=1) / n)
