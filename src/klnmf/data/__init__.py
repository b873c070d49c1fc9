"""X as solvers see it: checked, by rows and by columns, in memory or on disk."""
