"""
Topics of a corpus
==================

Find 12 topics in the 1189 chapters of the King James Bible. The corpus comes with the package, so
nothing is downloaded.
"""

# %%
# Fit
# ---
#
# ``data`` is a sparse matrix of counts, chapters × words. One call finds the topics
# (``components_``, topics × words) and the amount of each topic in each chapter (W, chapters ×
# topics).

from klnmf import KLNMF
from klnmf.datasets import load_bible

bible = load_bible()
model = KLNMF(n_components=12, random_state=0)
W = model.fit_transform(bible.data)
print(f"{model.n_iter_} iterations, converged: {model.converged_}")
print(f"KL divergence {model.divergence_:,.0f}, optimality gap {model.optimality_gap_:.3%}")

# %%
# Words
# -----
#
# The table shows the share of each topic in the whole text, and its leading words: those that
# are frequent in the topic and rare in the others.

from klnmf.topics import format_topics

print(format_topics(model.components_, bible.feature_names, n_top=7, W=W))

# %%
# By weight, the default, frequent words come first. The length of a bar is the share of the word in
# the topic; the number on the right is the share of the topic in the text.

import matplotlib.pyplot as plt

from klnmf.plots import plot_top_features

figure, axes = plt.subplots(3, 4, figsize=(10, 6.4), layout="constrained")
plot_top_features(model.components_, bible.feature_names, W=W, axes=axes)

# %%
# Chapters
# --------
#
# A row of W, scaled to sum to 1, gives the proportions of the topics in a chapter. Here each
# chapter is a bar and each topic a colour; chapters are grouped by section of the Bible.

from klnmf.plots import plot_structure

sections = bible.target_names[bible.target]
ax = plot_structure(W, model.components_, sections, bible.feature_names)

# %%
# The mean proportions of the topics in each section:

from klnmf.plots import plot_mean_shares
from klnmf.topics import mean_shares

ax = plot_mean_shares(mean_shares(W, model.components_, sections))

# %%
# Which topics are similar
# ------------------------
#
# Topics with similar words are next to each other.

from klnmf.plots import plot_component_similarity

ax = plot_component_similarity(model.components_, feature_names=bible.feature_names)

# %%
# Convergence
# -----------
#
# The objective never rises. The fit stops when the optimality gap, which bounds what another W or
# another H could gain, is at most ``tol`` of the objective.

from klnmf.plots import plot_history

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
plot_history(model, "objective", against="iteration", ax=left)
plot_history(model, "optimality_gap", against="iteration", tol=model.tol, ax=right)
# sphinx_gallery_thumbnail_number = 2
plt.show()
