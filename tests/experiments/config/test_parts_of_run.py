"""What the parts of a run say of it."""

import pytest

from experiments.config import parts_of_run, settings


@pytest.mark.parametrize(
  'given, phases',
  [
    ({'process': 'grouping'}, [('server warm-up', 10)]),
    ({'process': 'grouping', 'server_warmup_rounds': 0}, []),
    (
      {'process': 'sspt', 'pretraining_rounds': 3, 'total_rounds': 5},
      [('pre-training', 3)],
    ),
    ({'process': 'fedavg'}, []),
  ],
)
def test_phases_are_those_that_the_run_has(given, phases):
  made = settings.make({'dataset': 'digits', **given})
  assert parts_of_run.phases_of(made.used) == phases
