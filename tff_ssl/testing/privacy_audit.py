"""A lower bound of epsilon, measured: does noise do what an accountant says?

Run a private mechanism many times on each of two neighbouring cohorts, which
differ in one client, the canary. Turn each output into a score, such as its
projection on the difference of the two canaries' values. Somebody who guesses
the cohort from the score is right too often where there is too little noise.

For any test of an (epsilon, delta)-differentially private mechanism, with false
positive rate F and true positive rate T (Kairouz, Oh and Viswanath, arXiv
1311.0776, Theorem 2.1):

    T <= exp(epsilon) F + delta    and    1 - F <= exp(epsilon) (1 - T) + delta

So T and F bound epsilon from below. Both are measured, and stand here with
their exact confidence limits (Clopper and Pearson; as in Jagielski, Ullman and
Oprea, arXiv 2006.07709). A bound above the claimed epsilon refutes the claim; a
bound below it proves nothing.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from tff_ssl import checks


def epsilon_lower_bound(
  scores_without: Sequence[float],
  scores_with: Sequence[float],
  *,
  threshold: float,
  delta: float,
  confidence: float = 0.95,
) -> float:
  """Returns what epsilon is at least, given outputs on two neighbours.

  Args:
    scores_without: Of runs on the one cohort, `float [n]`; the runs are
      independent.
    scores_with: Of runs on the other, `float [m]`; they tend to be higher.
    threshold: The guess is "with" where a score exceeds it. Choose it before
      the runs. For noise of deviation s and scores around -a and a, the
      likelihood ratio at epsilon gives epsilon s^2 / (2 a).
    delta: Of the claim, in [0, 1].
    confidence: Probability that the bound holds, in (0, 1).

  Returns:
    The bound, at least 0.

  Raises:
    ValueError: If there are no scores, some are not finite, or an argument is
      out of range.
  """
  checks.fractions(delta=delta, confidence=confidence)
  false_positives, true_positives = (
    _interval(name, scores, threshold, confidence)
    for name, scores in (
      ('scores_without', scores_without),
      ('scores_with', scores_with),
    )
  )
  # Each limit fails with half of what `confidence` leaves.
  most_false, least_true = false_positives.high, true_positives.low
  return max(
    _log_ratio(least_true - delta, most_false),
    _log_ratio(1 - most_false - delta, 1 - least_true),
    0.0,
  )


def _interval(name, scores, threshold, confidence):
  """Returns the confidence interval of the rate of scores above a threshold."""
  scores = np.asarray(scores, np.float64)
  if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
    raise ValueError(
      f'{name} must be a list of finite numbers, but is {scores!r}: give one '
      'score for each run.'
    )
  positives = int(np.count_nonzero(scores > threshold))
  return stats.binomtest(positives, scores.size).proportion_ci(
    confidence, method='exact'
  )


def _log_ratio(numerator: float, denominator: float) -> float:
  return math.log(numerator / denominator) if numerator > 0 else -math.inf
