"""Mean and standard deviation of arrays that come one after the other and are not kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class RunningMoments:
    """Entry by entry over arrays of one shape, in the memory of two of them (Welford's sums).

    Examples
    --------
    >>> import numpy as np
    >>> moments = RunningMoments((2,))
    >>> for values in ([1.0, 5.0], [3.0, 5.0]):
    ...     moments.add(np.array(values))
    >>> moments.mean.tolist(), moments.standard_deviation.round(3).tolist()
    ([2.0, 5.0], [1.414, 0.0])
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.n = 0
        self.mean: FloatArray = np.zeros(shape)
        self._squares: FloatArray = np.zeros(shape)  # Σ (x − mean)²

    def add(self, values: npt.NDArray[np.floating]) -> None:
        """Count one more array in."""
        self.n += 1
        off = values - self.mean
        self.mean += off / self.n
        off *= values - self.mean
        self._squares += off

    @property
    def standard_deviation(self) -> FloatArray:
        """Of one array; NaN before there are two."""
        if self.n < 2:
            return np.full(self.mean.shape, np.nan)
        return np.sqrt(self._squares / (self.n - 1))
