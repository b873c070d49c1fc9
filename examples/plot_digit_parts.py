"""
Parts of digits
===============

Images can be read as counts: the 1797 digits of scikit-learn have 8 × 8 pixels with values from 0
to 16. No entry of the factors is negative, so a digit is a sum of parts.
"""

# %%
# The parts
# ---------
#
# Each component is an image.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from klnmf import KLNMF

digits = load_digits()
model = KLNMF(n_components=20, random_state=0)
W = model.fit_transform(digits.data)
figure, grid = plt.subplots(2, 10, figsize=(9, 2), layout="constrained")
for ax, part in zip(grid.flat, model.components_, strict=True):
    ax.imshow(part.reshape(8, 8), cmap="gray_r", vmin=0)
    ax.set(xticks=[], yticks=[])

# %%
# They are small pieces of strokes. Most of their pixels, and many entries of W, are exactly 0. This
# needs no penalty.

zeros_of_parts, zeros_in_use = (model.components_ == 0).mean(), (W == 0).mean()
print(f"exact zeros: {zeros_of_parts:.0%} of components_, {zeros_in_use:.0%} of W")

# %%
# A digit as a sum
# ----------------
#
# Each line shows a digit, its six largest parts with their shares of the ink, and the sum of all
# its parts.

import numpy as np

shares = model.proportions(W)
sums = model.inverse_transform(W)

figure, grid = plt.subplots(4, 8, figsize=(9, 5), layout="constrained")
for line, i in zip(grid, [10, 3, 5, 18], strict=True):
    parts = np.argsort(-shares[i])[:6]
    images = [digits.data[i], *(W[i, parts, None] * model.components_[parts]), sums[i]]
    titles = [f"a {digits.target[i]}", *(f"{share:.0%}" for share in shares[i, parts]), "all parts"]
    for ax, image, title in zip(line, images, titles, strict=True):
        ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        ax.set_title(title, fontsize=9)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_color("0.8")

# %%
# New digits
# ----------
#
# ``transform`` finds the parts of images that were not in the fit, so the estimator can be a step
# of a pipeline. 20 numbers per digit are enough for a plain classifier.

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

train, test, train_labels, test_labels = train_test_split(
    digits.data, digits.target, random_state=0, stratify=digits.target
)
classifier = make_pipeline(
    KLNMF(n_components=20, random_state=0),
    Normalizer(),
    LogisticRegression(C=100.0, max_iter=1000),
)
classifier.fit(train, train_labels)
print(f"{classifier.score(test, test_labels):.1%} of the new digits are classified correctly")
# sphinx_gallery_thumbnail_number = 2
plt.show()
