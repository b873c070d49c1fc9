"""Where a fit begins."""
