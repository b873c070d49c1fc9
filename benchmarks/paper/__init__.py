"""Replication of the evaluation in the SRCD paper: ``python -m benchmarks.paper``."""
