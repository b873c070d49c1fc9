"""
Parts of digits
===============

Images are counts too: the 1797 digits of scikit-learn have 8 × 8 pixels with values from 0 to 16.
Since neither factor has negative entries, a digit can only be a sum of parts, and the components
turn out as strokes.
"""

# %%
# The parts
# ---------

from sklearn.datasets import load_digits

from klnmf import KLNMF
from klnmf.plots import plot_components_as_images

digits = load_digits()
model = KLNMF(n_components=20, random_state=0)
W = model.fit_transform(digits.data)
axes = plot_components_as_images(model.components_, (8, 8))

# %%
# Both factors have many zeros that are exact, without any penalty: a part covers few pixels, and a
# digit uses few parts.

print(f"zeros: {(model.components_ == 0).mean():.0%} of the pixels of the parts")
print(f"       {(W == 0).mean():.0%} of W; a digit uses {(W > 0).sum(axis=1).mean():.1f} parts")

# %%
# A digit as a sum
# ----------------
#
# From left to right: a digit, its largest parts with the share of its ink that each explains, and
# the sum of all parts. All images of a line are on one scale.

import matplotlib.pyplot as plt
import numpy as np

from klnmf.topics import plsi_probabilities

shares = plsi_probabilities(W, model.components_).component_given_sample
estimates = model.inverse_transform(W)
n_shown = 6
figure, grid = plt.subplots(4, n_shown + 2, figsize=(9, 5), layout="constrained")
for line, sample in zip(grid, [10, 3, 5, 18], strict=True):
    parts = np.argsort(-shares[sample])[:n_shown]
    images = [digits.data[sample], *(W[sample, k] * model.components_[k] for k in parts)]
    titles = [f"a {digits.target[sample]}", *(f"{shares[sample, k]:.0%}" for k in parts)]
    for ax, image, title in zip(
        line, [*images, estimates[sample]], [*titles, "all parts"], strict=True
    ):
        ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        ax.set_title(title, fontsize=9)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_color("0.8")

# %%
# Which parts a digit is made of
# ------------------------------
#
# The labels were not used in the fit. Most parts belong to a few digits.

from klnmf.plots import plot_components_by_label

ax = plot_components_by_label(W, model.components_, digits.target)

# %%
# New digits
# ----------
#
# ``transform`` finds the parts of images that were not seen in the fit. It makes the estimator a step
# of a pipeline: 20 numbers a digit are enough for a plain classifier.

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

train, test, train_labels, test_labels = train_test_split(
    digits.data, digits.target, random_state=0, stratify=digits.target
)
classifier = make_pipeline(
    KLNMF(n_components=20, random_state=0),
    Normalizer(norm="l2"),
    LogisticRegression(C=100.0, max_iter=1000),
)
classifier.fit(train, train_labels)
print(f"{classifier.score(test, test_labels):.1%} of the unseen digits are told rightly")
plt.show()
