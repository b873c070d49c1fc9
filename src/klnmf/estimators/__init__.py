"""The scikit-learn estimators; `klnmf.KLNMF` and `klnmf.MiniBatchKLNMF` are the way to get them."""
