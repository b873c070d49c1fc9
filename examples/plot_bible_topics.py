"""
Topics of a corpus
==================

The 1189 chapters of the King James Bible, as counts of words, are split into 12 topics. The corpus
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

bible = load_bible()
model = KLNMF(n_components=12, random_state=0)
W = model.fit_transform(bible.data)
print(f"{model.n_iter_} iterations, converged: {model.converged_}")
print(f"KL divergence {model.divergence_:,.0f}, KKT residual {model.kkt_residual_:.1e}")

# %%
# Words
# -----
#
# The table has the share of each topic in the whole text, and its leading words. ``by="frex"``
# prefers words that are frequent in one topic and rare in the others.

from klnmf.topics import format_topics

print(format_topics(model.components_, bible.feature_names, n_top=7, by="frex", W=W))

# %%
# By weight, which is the default, frequent words lead. The length of a bar is the share of the
# topic that the word holds, the number on the right the share of the topic in the text.

import matplotlib.pyplot as plt

from klnmf.plots import plot_top_features

figure, axes = plt.subplots(3, 4, figsize=(10, 6.4), layout="constrained")
plot_top_features(model.components_, bible.feature_names, W=W, axes=axes)

# %%
# Chapters
# --------
#
# Scaled to add up to 1, a chapter's row of W says which topics the chapter is made of. Here they
# are by section of the Bible: a chapter is a bar, a topic a colour.

from klnmf.plots import plot_structure

sections = bible.target_names[bible.target]
ax = plot_structure(W, model.components_, sections, bible.feature_names)

# %%
# The mean proportions of the topics in each section:

from klnmf.plots import plot_components_by_label

ax = plot_components_by_label(W, model.components_, sections, bible.feature_names)

# %%
# Topics among each other
# -----------------------
#
# Topics with similar words are near each other; the area is the share of the topic.

from klnmf.plots import plot_intertopic_map

ax = plot_intertopic_map(model.components_, W)

# %%
# The course of the fit
# ---------------------
#
# The objective never rises. The fit stops when the KKT residual, which is 0 at a stationary point,
# is at most ``tol``.

from klnmf.plots import plot_convergence, plot_kkt_residual

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
plot_convergence(model.history_, left, against="iteration")
plot_kkt_residual(model.history_, right, against="iteration", tol=model.tol)
# sphinx_gallery_thumbnail_number = 2
plt.show()
