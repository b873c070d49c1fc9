"""Mutated files of every kind that klnmf reads, each tried in a child process with limits."""
