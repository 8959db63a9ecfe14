"""Views of examples that consist of several inputs."""

import collections
import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from tff_ssl import protocols, randomness


@dataclasses.dataclass(frozen=True)
class InputViews:
  """Views of examples of several inputs, each with views of its own.

  For a model that takes a picture beside a row of numbers, say. The methods
  take a dict of tensors `[batch, ...]` by the names of `views`, and a seed: an
  `int32` or `int64` tensor of shape [2]. They return such a dict. Each input
  draws for itself: a seed for it derives from the seed and its place. Inputs of
  other names, or no dict, raise a `ValueError`.

  Attributes:
    views: For each input its views, such as `tff_ssl.ImageViews`, by the name
      that it has in `x`.
  """

  views: Mapping[str, protocols.Views]

  def plain(self, examples: Mapping[str, tf.Tensor]) -> protocols.Structure:
    """Returns the plain view of each input."""
    return self._each('plain', examples)

  def weak(
    self, examples: Mapping[str, tf.Tensor], seed: tf.Tensor
  ) -> protocols.Structure:
    """Returns the weak view of each input."""
    return self._each('weak', examples, seed)

  def strong(
    self, examples: Mapping[str, tf.Tensor], seed: tf.Tensor
  ) -> protocols.Structure:
    """Returns the strong view of each input."""
    return self._each('strong', examples, seed)

  def _each(self, view, examples, seed=None):
    if not isinstance(examples, Mapping) or set(examples) != set(self.views):
      given = list(examples) if isinstance(examples, Mapping) else 'no dict'
      raise ValueError(
        f'views are of the inputs {sorted(self.views)}, but examples are '
        f'{given}: give views for each, by its name in x.'
      )
    found = {}
    # In an order that does not depend on who made the dict.
    for place, name in enumerate(sorted(examples)):
      own = [] if seed is None else [randomness.fold_in(seed, place)]
      found[name] = getattr(self.views[name], view)(examples[name], *own)
    return collections.OrderedDict((name, found[name]) for name in examples)
