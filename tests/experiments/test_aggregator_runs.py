"""Runs with each aggregator, of a process without groups."""

import pandas as pd
import pytest

from experiments import run
from experiments.parts.aggregators import AGGREGATORS


@pytest.mark.parametrize('name', sorted(set(AGGREGATORS) - {'mean'}))
def test_a_run_without_groups(name, tmp_path, tff_context):
  """What aggregators measure, or do not, must fit into metrics.csv."""
  noise = ('--noise_multiplier=0.5',) if name.endswith('dp') else ()
  bound = ('--clip_norm=1',) if name == 'secure_dp' else ()
  arguments = (
    '--process=fedavg',
    '--dataset=digits',
    '--model=dense',
    '--local_steps=1',
    '--total_rounds=1',
    f'--aggregator={name}',
    f'--run_dir={tmp_path / "run"}',
    f'--cache_dir={tmp_path / "cache"}',
    *noise,
    *bound,
  )
  assert run.main(['run', *arguments]) == 0
  table = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  assert list(table['clients_participating']) == [10]
