"""The evaluation of the SRCD paper (Nguyen and Ho), done again: ``python -m benchmarks.paper``."""
