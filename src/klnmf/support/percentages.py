"""Shares in words."""

import math


def percentage(share: float) -> str:
    """Return a share as a percentage with two digits, or "unknown" for NaN.

    >>> percentage(0.00034), percentage(0.996), percentage(1.0), percentage(float("nan"))
    ('0.034 %', '100 %', '100 %', 'unknown')
    """
    if math.isnan(share):
        return "unknown"
    percent = 100 * share
    return f"{percent:.0f} %" if 99.5 <= percent < 1000 else f"{percent:.2g} %"
