"""Runs that count the pseudo-labels of each class."""

import pandas as pd
import pytest

from experiments import run

_RUN = (
  *('run', '--process=grouping', '--dataset=digits', '--model=dense'),
  *('--num_clients=6', '--clients_per_round=4', '--server_examples=100'),
  *('--server_warmup_rounds=0', '--threshold=0.3'),
  *('--rounds_per_evaluation=2', '--pseudo_label_examples=500'),
)


@pytest.mark.runs
def test_a_run_counts_them_and_goes_on_counting(tmp_path):
  folder = tmp_path / 'run'
  flags = (*_RUN, f'--cache_dir={tmp_path}', f'--run_dir={folder}')
  assert run.main([*flags, '--total_rounds=2']) == 0
  first = (folder / 'pseudo_labels.csv').read_bytes()
  assert run.main([*flags, '--total_rounds=4']) == 0
  assert (folder / 'pseudo_labels.csv').read_bytes().startswith(first)
  table = pd.read_csv(folder / 'pseudo_labels.csv')
  by_round = table.groupby('round')
  assert by_round['examples'].sum().to_dict() == {2: 500, 4: 500}
  # Each pseudo-label is of an example of some class, and names one.
  assert (by_round['labelled'].sum() == by_round['named'].sum()).all()
  assert (table['right'] <= table[['labelled', 'named']].min(axis=1)).all()
  assert table['right'].sum() > 0
  metrics = pd.read_csv(folder / 'metrics.csv', index_col='round')
  named = (table['named'] > 0).groupby(table['round']).sum()
  assert metrics['pseudo_label_classes'].dropna().to_dict() == named.to_dict()


@pytest.mark.parametrize(
  ('process', 'reason'),
  [
    (('fedlabel', '--experts=truth'), '--experts=truth makes no pseudo-labels'),
    (('fedtrinet',), 'no threshold decides about the pseudo-labels'),
    (('fedpl',), '--pseudo_labels=sets takes them from the priors of sets'),
  ],
)
def test_what_makes_none_by_confidence_is_refused(
  tmp_path, capsys, process, reason
):
  name, *more = process
  flags = ('--dataset=digits', '--pseudo_label_examples=10', *more)
  folder = f'--run_dir={tmp_path / "run"}'
  assert run.main(['run', f'--process={name}', *flags, folder]) == 2
  error = capsys.readouterr().err
  assert '--pseudo_label_examples=10' in error and reason in error
