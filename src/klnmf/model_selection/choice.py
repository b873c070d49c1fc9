"""Which rank the held-out deviances speak for, and when to stop looking.

The samples are what varies from study to study. So the standard error of a difference between two
ranks comes from the differences of the single samples, each averaged over the splits: splits of one
matrix again and again would agree with each other better than two studies do. Where the splits
disagree more than the samples explain, because fits ended in different optima, that is added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# A path over the ranks is given up when this many ranks in a row are worse than the best one by
# more than so many standard errors.
RISEN_RANKS = 3
RISEN_ERRORS = 2.0


@dataclass(frozen=True)
class Comparison:
    """Every rank against the one of lowest deviance; all arrays have one entry for each rank."""

    deviance: FloatArray  # mean over samples and splits
    difference: FloatArray  # deviance − lowest deviance
    standard_error: FloatArray  # of the difference; 0 for the lowest itself
    lowest: int  # position of the lowest deviance
    chosen: int  # position of the choice

    @property
    def has_clearly_risen(self) -> bool:
        """Whether the last ranks are all worse than an earlier one, beyond doubt."""
        last = slice(-RISEN_RANKS, None)
        return bool(
            len(self.difference) - self.lowest > RISEN_RANKS
            and np.all(self.difference[last] > RISEN_ERRORS * self.standard_error[last])
        )


def compared(of_samples: FloatArray, of_splits: FloatArray) -> Comparison:
    """Compare ranks by the one-standard-error rule.

    The choice is the smallest rank whose deviance is not above the lowest one by more than a
    standard error of that difference.

    Parameters
    ----------
    of_samples : ndarray of shape (n_ranks, n_samples)
        Held-out deviance of each sample, averaged over the splits.
    of_splits : ndarray of shape (n_ranks, n_splits)
        Held-out deviance of each split, averaged over the samples.

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
    """Squared standard error of the means over the rows; 0 where a row is one number."""
    n = values.shape[1]
    if n < 2:
        return np.zeros(len(values))
    return np.asarray(values.var(axis=1, ddof=1) / n)
