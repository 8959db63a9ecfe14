"""Differences between groups of runs and a baseline, paired by seed.

Two runs with the same seed share split, partition and participating clients. So
much of the variation between seeds cancels in their difference.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.config import usage
from experiments.reporting import run_groups, summary_tables
from experiments.reporting.run_groups import Group
from experiments.tables import seeds


def of_groups(groups: Sequence[Group], baseline: str) -> pd.DataFrame:
  """Returns the differences to a baseline, a row per other group.

  Groups with another measure or other data than the baseline are left out.

  Columns: `name`; `ahead`, the mean of group minus baseline over the `n` seeds
  for which both have a value; `std`, the standard deviation of these
  differences (n - 1); `low` and `high`, the 95% interval of their mean by
  Student's t with n - 1 degrees of freedom. `std`, `low` and `high` are empty
  for one seed.

  Args:
    groups: From `run_groups`.
    baseline: Name of one of them.

  Raises:
    UsageError: If no group has that name.
  """
  by_name = {group.name: group for group in groups}
  usage.check_name('against', baseline, by_name)
  base = by_name[baseline]
  theirs = _by_seed(base)
  rows = []
  for group in groups:
    if group is base or not _are_comparable(group, base):
      continue
    ours = _by_seed(group)
    common = sorted(ours.keys() & theirs.keys())
    if common:
      differences = np.array([ours[seed] - theirs[seed] for seed in common])
      rows.append({'name': group.name, **_spread(differences)})
  columns = ['name', 'ahead', 'std', 'n', 'low', 'high']
  return pd.DataFrame(rows, columns=columns).round(4)


def as_text(groups: Sequence[Group], baseline: str) -> str:
  """Returns the differences for people: a caption, and a table below it.

  Args:
    groups: As in `of_groups`.
    baseline: As in `of_groups`.

  Raises:
    UsageError: As `of_groups`.
  """
  table = of_groups(groups, baseline)
  if table.empty:
    return f'No other row has data, measure and a seed of {baseline}.'
  return (
    f'Minus {baseline}, paired by seed, with the 95% interval of the mean by '
    f"Student's t:\n\n{summary_tables.as_markdown(table)}"
  )


def _are_comparable(group, base) -> bool:
  return str(group.reading.measure) == str(base.reading.measure) and (
    run_groups.same_data(group.summaries[0], base.summaries[0])
  )


def _by_seed(group) -> dict[int, float]:
  return {
    summary['seed']: value
    for summary, value in zip(group.summaries, group.values(), strict=True)
    if value is not None
  }


def _spread(differences) -> dict[str, float]:
  count, mean = differences.size, float(differences.mean())
  spread = {'ahead': mean, 'n': count}
  if count > 1:
    half = seeds.half_interval(differences)
    spread |= {
      'std': float(differences.std(ddof=1)),
      'low': mean - half,
      'high': mean + half,
    }
  return spread
