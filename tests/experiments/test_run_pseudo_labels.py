"""Runs that count the pseudo-labels of each class."""

import pandas as pd
import pytest
import run_folders

_RUN = (
  *('--process=grouping', *run_folders.SMALL, '--server_examples=100'),
  *('--server_warmup_rounds=0', '--threshold=0.3'),
  *('--rounds_per_evaluation=2', '--pseudo_label_examples=500'),
)


@pytest.mark.runs
def test_a_run_counts_them_and_goes_on_counting(tmp_path, cache):
  run_folders.train(tmp_path, *_RUN, cache, '--total_rounds=2')
  first = (tmp_path / 'pseudo_labels.csv').read_bytes()
  run_folders.train(tmp_path, *_RUN, cache, '--total_rounds=4')
  assert (tmp_path / 'pseudo_labels.csv').read_bytes().startswith(first)
  table = pd.read_csv(tmp_path / 'pseudo_labels.csv')
  by_round = table.groupby('round')
  assert by_round['examples'].sum().to_dict() == {2: 500, 4: 500}
  # Each pseudo-label is of an example of some class, and names one.
  assert (by_round['labelled'].sum() == by_round['named'].sum()).all()
  assert (table['right'] <= table[['labelled', 'named']].min(axis=1)).all()
  assert table['right'].sum() > 0
  metrics = run_folders.metrics_of(tmp_path).set_index('round')
  named = (table['named'] > 0).groupby(table['round']).sum()
  assert metrics['pseudo_label_classes'].dropna().to_dict() == named.to_dict()
