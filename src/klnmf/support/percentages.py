"""Shares in words."""


def percentage(share: float) -> str:
    """Return a share as a percentage with two digits.

    >>> percentage(0.00034), percentage(1.0)
    ('0.034 %', '100 %')
    """
    return f"{100 * share:.2g} %" if not 1 <= share < 10 else f"{100 * share:.0f} %"
