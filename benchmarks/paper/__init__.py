"""The evaluation of the SRCD paper (Nguyen and Ho), repeated: ``python -m benchmarks.paper``."""
