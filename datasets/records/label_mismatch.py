"""Measures how far a client's labelled data are from its unlabelled data.

This is class-distribution mismatch (Fig. 3 of FedLabel, Cho et al., "Local or
Global: Selective Knowledge Assimilation for Federated Learning with Limited
Labels"). A few labels, even if drawn uniformly at random, have other class
shares than the unlabelled examples. The paper shows the shares and names no
distance. This module has two common ones.
"""

import dataclasses

import numpy as np

from datasets.records.statistics import checked_counts, class_counts

# The number of examples that smoothing adds, spread over all classes.
_PSEUDO_EXAMPLES = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Mismatch:
  """The mismatch of labelled and unlabelled examples at each client.

  With the counts n_c (labelled) and m_c (unlabelled) of d classes, the shares
  are p_c = n_c / sum(n) and q_c = m_c / sum(m). Both distances are NaN for a
  client without labelled or without unlabelled examples.

  Attributes:
    labelled: `int64 [K, d]`, examples of each class with a label.
    unlabelled: `int64 [K, d]`, those whose label is hidden.
    kl: `float64 [K]`, KL(p || q') in nats, with q'_c = (m_c + 1 / d) /
      (sum(m) + 1). One example, spread evenly over the classes, is added to the
      unlabelled ones. So a class without unlabelled examples does not give
      infinity. p is not smoothed, because labels are few. If p equals q, KL is
      small, and it is 0 only if all classes are equally frequent.
    total_variation: `float64 [K]`, half the sum of |p_c - q_c|, in [0, 1].
  """

  labelled: np.ndarray
  unlabelled: np.ndarray
  kl: np.ndarray
  total_variation: np.ndarray

  def describe(self) -> dict[str, float]:
    """Returns the mean and the maximum of both distances over the clients.

    Returns:
      `label_mismatch_kl_mean`, `..._kl_max`, `label_mismatch_tv_mean` and
      `..._tv_max`, without clients whose distances are NaN; an empty dict if
      all are NaN.
    """
    figures = {}
    for name, values in (('kl', self.kl), ('tv', self.total_variation)):
      defined = values[~np.isnan(values)]
      if defined.size:
        figures[f'label_mismatch_{name}_mean'] = float(defined.mean())
        figures[f'label_mismatch_{name}_max'] = float(defined.max())
    return figures


def of_counts(labelled: np.ndarray, unlabelled: np.ndarray) -> Mismatch:
  """Compares class counts.

  Args:
    labelled: `[K, d]`, examples of each class at each client, with a label.
    unlabelled: `[K, d]`, those without.

  Returns:
    The `Mismatch`.

  Raises:
    ValueError: If an argument is no matrix of finite values >= 0, or the shapes
      differ.
  """
  labelled, unlabelled = checked_counts(labelled), checked_counts(unlabelled)
  if labelled.shape != unlabelled.shape:
    raise ValueError(
      f'labelled is {list(labelled.shape)} and unlabelled '
      f'{list(unlabelled.shape)}: give both [clients, classes].'
    )
  defined = labelled.any(axis=1) & unlabelled.any(axis=1)
  p = _shares(labelled[defined])
  q = _shares(unlabelled[defined])
  smoothed = _shares(unlabelled[defined] + _PSEUDO_EXAMPLES / labelled.shape[1])
  # 0 log 0 is 0.
  ratios = np.divide(p, smoothed, out=np.ones_like(p), where=p > 0)
  kl, total_variation = np.full((2, len(labelled)), np.nan)
  kl[defined] = np.sum(p * np.log(ratios), axis=1)
  total_variation[defined] = np.abs(p - q).sum(axis=1) / 2
  return Mismatch(labelled, unlabelled, kl, total_variation)


def of_examples(
  labels: np.ndarray,
  client_index: np.ndarray,
  is_labelled: np.ndarray,
  num_clients: int,
  num_classes: int,
) -> Mismatch:
  """Compares labelled with unlabelled examples.

  Args:
    labels: Integers `[N]` in `[0, num_classes)`, the true classes, or -1 for
      examples of unknown class, which are not counted.
    client_index: Integers `[N]` in `[0, num_clients)`, the holder of each
      example.
    is_labelled: `bool [N]`, whether the client knows the label.
    num_clients: K.
    num_classes: d.

  Returns:
    The `Mismatch`.

  Raises:
    ValueError: As `statistics.class_counts`.
  """
  return of_counts(
    *(
      class_counts(
        labels[chosen], client_index[chosen], num_clients, num_classes
      )
      for chosen in (is_labelled, ~is_labelled)
    )
  )


def _shares(counts: np.ndarray) -> np.ndarray:
  return counts / counts.sum(axis=1, keepdims=True)
