"""
Topics of a corpus
==================

The 1189 chapters of the King James Bible, as counts of words, are split into 20 topics. The corpus
comes with the package, so that nothing is downloaded.
"""

# %%
# Fit
# ---
#
# ``data`` is a sparse matrix, chapters × words. One call finds the topics (``components_``,
# topics × words) and how much of each topic there is in each chapter (W, chapters × topics).

from klnmf import KLNMF
from klnmf.datasets import load_bible
from klnmf.topics import format_topics

bible = load_bible()
model = KLNMF(n_components=20, random_state=0)
W = model.fit_transform(bible.data)
print(f"{model.n_iter_} iterations, converged: {model.converged_}")
print(f"KL divergence {model.divergence_:,.0f}, KKT residual {model.kkt_residual_:.1e}")

# %%
# Words
# -----
#
# The table shows the share of each topic in the whole text, and its leading words. Ranked by weight,
# frequent words lead many topics. ``by="frex"`` prefers words that are frequent in one topic and
# rare in the others.

print(format_topics(model.components_, bible.feature_names, n_top=7, by="frex", W=W))

# %%
# The ten largest topics, now by weight. The length of a bar is the share of the topic that the word
# holds, on one scale for all.

import numpy as np

from klnmf.plots import plot_top_features
from klnmf.topics import component_shares

largest = np.argsort(-component_shares(model.components_, W))[:10]
axes = plot_top_features(model.components_, bible.feature_names, W=W, select=largest)

# %%
# Chapters
# --------
#
# Divided by its sum, a chapter's row of W says which topics the chapter is made of. Here they are
# by section of the Bible: a chapter is a bar, one topic a colour.

from klnmf.plots import plot_structure

sections = bible.target_names[bible.target]
ax = plot_structure(W, model.components_, sections, bible.feature_names)

# %%
# The mean proportions of the topics in each section say the same in numbers.

from klnmf.plots import plot_components_by_label

ax = plot_components_by_label(W, model.components_, sections, bible.feature_names)

# %%
# Topics among each other
# -----------------------
#
# Topics with similar words are near each other, and the area is the share of the topic.

from klnmf.plots import plot_intertopic_map

ax = plot_intertopic_map(model.components_, W)

# %%
# The course of the fit
# ---------------------
#
# The objective never rises. The fit stops when the KKT residual, which is 0 at a stationary point,
# is at most ``tol``.

import matplotlib.pyplot as plt

from klnmf.plots import plot_convergence, plot_kkt_residual

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
plot_convergence(model.history_, left, against="iteration")
plot_kkt_residual(model.history_, right, against="iteration", tol=model.tol)
# sphinx_gallery_thumbnail_number = 2
plt.show()
