"""What is given before a fit: weights, exposures, missing cells, fixed and zero entries."""
