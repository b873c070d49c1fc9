"""A prepared matrix, read in pieces."""
