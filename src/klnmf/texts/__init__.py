"""Texts: read as documents with names and metadata, and counted as words."""
