"""Gradient diversity in NumPy."""

import numpy as np

# Norm and power of each variant.
NORMS = {
  'l2_squared': (2, 2),
  'l2_plain': (2, 1),
  'l1_squared': (1, 2),
  'l1_plain': (1, 1),
}


def ratio(vectors, norm=2, power=2):
  """sum_k ||g_k||^p / ||sum_k g_k||^p."""
  norms = np.linalg.norm(vectors, ord=norm, axis=1) ** power
  return norms.sum() / np.linalg.norm(vectors.sum(0), ord=norm) ** power
