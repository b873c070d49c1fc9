"""The back-end for the workers of a Dask cluster; nothing here imports Dask until it is used."""
