"""All cases, in the order of the page."""

from tests.tff_parity import (
  aggregators,
  fed_avg,
  fed_prox,
  processes,
  programs,
  schedules,
  tutorials,
)

GROUPS = {
  'fed_avg': fed_avg.GROUP,
  'fed_prox': fed_prox.GROUP,
  'schedules': schedules.GROUP,
  'aggregators': aggregators.GROUP,
  'processes': processes.GROUP,
  'programs': programs.GROUP,
  'tutorials': tutorials.GROUP,
}
CASES = {
  f'{name}.{case.name}': case
  for name, group in GROUPS.items()
  for case in group
}
