"""
Mutational signatures: refit known ones, discover new ones
==========================================================

The mutations of a tumour fall into 96 types, and each process that causes mutations has a
*signature*: the shares of the types. Catalogues list dozens of them. For new tumours there are two
questions: how active is each known process, and is there an unknown one? Here the tumours are
simulated, so that the answers can be checked. Needs ``pip install "klnmf[plots]"``. The guide
:doc:`Signatures </guide/signatures>` starts from a file and ends with a paper.
"""

# %%
# Tumours
# -------
#
# Four processes are in the catalogue. A fifth is not, and is active in every third tumour. Counts
# are Poisson. Only part of each genome was sequenced: its *exposure*, where 1 is the whole genome.

import numpy as np

from klnmf import KLNMF
from klnmf.plots import plot_signatures
from klnmf.topics import match_reference

generator = np.random.default_rng(0)
signatures = generator.dirichlet(np.full(96, 0.2), size=5)
catalogue, new_signature = signatures[:4], signatures[4]

n_tumours = 240
activities = generator.gamma(0.7, 900, size=(n_tumours, 5))
activities[:, 4] *= np.arange(n_tumours) % 3 == 0
sequenced = generator.uniform(0.3, 1.0, size=n_tumours)
counts = generator.poisson(sequenced[:, None] * (activities @ signatures))
print(f"{counts.sum():,} mutations of 96 types in {n_tumours} tumours")

# %%
# Refit
# -----
#
# With all components fixed, the fit solves for W only: the activities of the known processes per
# whole genome. If a Poisson model is right, its deviance (twice the divergence) is about 1 per
# cell. Here it is far larger.

refit = KLNMF(4, fixed_components=catalogue, random_state=0)
known_activities = refit.fit_transform(counts, exposure=sequenced)
print(f"deviance per cell: {2 * refit.divergence_ / counts.size:.2f}")

# %%
# Discover
# --------
#
# One more component is learned next to the known four, which are kept exactly as given.

model = KLNMF(5, fixed_components=catalogue, random_state=0)
W = model.fit_transform(counts, exposure=sequenced)
print(f"deviance per cell: {2 * model.divergence_ / counts.size:.2f}")
print("catalogue kept:", np.array_equal(model.components_[:4], catalogue.astype(np.float32)))

match = match_reference(model.components_[4:], signatures)
print(f"cosine similarity with the planted signature: {match.similarity[0, 4]:.4f}")
print(f"with the nearest one of the catalogue: {match.similarity[0, :4].max():.2f}")

# %%
# The new signature, and the planted one:

pair = [model.components_[4], new_signature]
plot_signatures(pair, component_names=["found", "planted"])

# %%
# Activities
# ----------
#
# Without the new component, its mutations are attributed to known processes. With it, the
# activities (per whole genome, because the exposures are given) are closer to the planted ones.

for name, estimate in (("refit", known_activities), ("with a new one", W[:, :4])):
    error = np.abs(estimate - activities[:, :4]).sum() / activities[:, :4].sum()
    print(f"{name}: off by {100 * error:.0f} % of all activity")
found = W[:, 4] * model.components_[4].sum() > 50
planted = activities[:, 4] > 50
print(f"the new process is active in {planted.sum()} tumours; found in {found.sum()} of 240")
