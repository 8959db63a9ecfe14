"""Whole runs of processes with a proxy task, and its figures."""

import pytest
import run_folders

pytestmark = pytest.mark.runs

SMALL = (
  '--dataset=digits',
  '--num_clients=6',
  '--clients_per_round=6',
  '--learning_rate=0.01',
  '--rounds_per_evaluation=1',
)


def first_half(table):
  """The first round with a test accuracy of one half, in plain Python."""
  rows = zip(table['round'], table['accuracy'], strict=True)
  return next((n for n, accuracy in rows if accuracy >= 0.5), None)


def test_joint_training_improves_the_proxy_task(tmp_path, cache, tff_context):
  arguments = ('--process=ssjo', cache, '--total_rounds=4')
  summary = run_folders.train(tmp_path, *SMALL, *arguments)
  table = run_folders.metrics_of(tmp_path)
  losses = table['test_proxy_loss']
  # Falling, from below that of a decoder that knows nothing: ln 2.
  assert losses.is_monotonic_decreasing and losses.is_unique
  assert 0.2 < losses.iloc[-1] < losses.iloc[0] < 0.69
  assert summary['test_proxy_loss'] == losses.iloc[-1]
  assert summary['rounds_to_half'] == first_half(table) is not None


def test_a_resumed_run_has_the_same_rows(tmp_path, cache, tff_context):
  arguments = (*SMALL, '--process=sspt', '--pretraining_rounds=2', cache)
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  run_folders.train(whole, *arguments, '--total_rounds=4')
  summary = run_folders.train(parts, *arguments, '--total_rounds=3')
  assert summary['rounds_to_half'] == first_half(run_folders.metrics_of(parts))
  run_folders.train(parts, *arguments, '--total_rounds=4')
  run_folders.assert_same_metrics(parts, whole)
  assert run_folders.metrics_of(whole)['test_proxy_loss'].notna().all()


def test_rotations_have_a_loss(tmp_path, cache, tff_context):
  arguments = ('--process=ssjo', '--proxy_task=rotation', cache)
  summary = run_folders.train(tmp_path, *SMALL, *arguments, '--total_rounds=1')
  (loss,) = run_folders.metrics_of(tmp_path)['test_proxy_loss']
  assert 0 < summary['test_proxy_loss'] == loss < 3
