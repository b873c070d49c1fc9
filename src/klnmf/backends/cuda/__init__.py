"""The CUDA back-end: `backend.py` has the verbs, `kernels/` the CUDA sources."""
