"""Whole runs in which clients drop out, are slow, or are corrupt."""

import types

import numpy as np
import pandas as pd
import pytest
import run_folders

from experiments import run
from experiments.measuring import diversity

FLAGS = (
  '--dataset=digits',
  '--model=dense',
  '--num_clients=8',
  '--clients_per_round=4',
  '--batch_size=20',
  '--local_steps=2',
)
GROUPING = ('--process=grouping', '--server_warmup_rounds=1', '--num_groups=2')


@pytest.mark.runs
def test_a_resumed_run_meets_the_same_faults(cache, train_and_resume):
  _, whole, _ = train_and_resume(
    *(*FLAGS, *GROUPING, cache, '--total_rounds=6', '--seed=1'),
    *('--drop_out=0.4', '--straggler=0.5', '--corrupt=nan'),
    '--corrupt_share=0.25',
  )
  table = run_folders.metrics_of(whole).fillna(0)
  # In warm-up rounds clients send zeros, and that completes them.
  assert table['clients_participating'][0] == 0
  later = table[1:]
  assert (
    later['clients_participating'] + later['clients_dropped']
  ).tolist() == (4 - later['clients_corrupt']).tolist()
  assert (later['clients_non_finite'] == later['clients_corrupt']).all()
  assert table['clients_non_finite'][0] == 0 < table['clients_corrupt'][0]
  assert (table['clients_dropped'] + table['clients_non_finite'] <= 2).all()
  for column in ('dropped', 'stragglers', 'corrupt'):
    assert table[f'clients_{column}'].sum() > 0
  assert table['attempts'].max() > 1


def test_fixed_clients_that_are_measured_are_sound():
  measured = []
  meter = types.SimpleNamespace(
    process=types.SimpleNamespace(
      measurable=types.SimpleNamespace(
        num_groups=2, data_spec=types.SimpleNamespace(has_faults=True)
      )
    ),
    seed=1,
    is_due=lambda number: True,
    measure=lambda number, state, keys: measured.append(np.stack(keys)) or {},
  )
  of_fixed = diversity.of_fixed_clients(
    meter, num_clients=6, clients_measured=4, redeal=False
  )
  assert of_fixed(types.SimpleNamespace(number=1, state=None)) == {}
  (keys,) = measured
  assert keys.shape == (4, 6) and keys[:, 4:].tolist() == [[0, 100]] * 4


@pytest.mark.runs
@pytest.mark.parametrize(
  'arguments, words',
  [
    (('--drop_out=1',), 'Round 1 was given up 5 times: of 4 clients'),
    (('--corrupt=nan', '--corrupt_share=1'), 'clients_non_finite in metrics'),
  ],
)
def test_a_run_without_any_sound_client_ends(
  cache, tmp_path, tff_context, error_of, arguments, words
):
  folder = f'--run_dir={tmp_path / "run"}'
  short = ('--process=fedavg', cache, '--total_rounds=3', *arguments)
  assert words in error_of(run.main, *FLAGS, *short, folder, code=1)


@pytest.mark.runs
def test_a_resumed_run_knows_who_rests(cache, train_and_resume):
  _, whole, cut = train_and_resume(
    *FLAGS,
    *('--process=fedavg', cache, '--total_rounds=5', '--clients_per_round=2'),
    '--min_separation=4',
  )
  table = pd.read_csv(whole / 'participation.csv')
  pd.testing.assert_frame_equal(table, pd.read_csv(cut / 'participation.csv'))
  # Eight clients in pairs: after four rounds all had their turn, and the fifth
  # round is that of the pair of the first one.
  assert sorted(table['invited']) == [1] * 6 + [2] * 2
  assert sorted(table['last_round']) == [2, 2, 3, 3, 4, 4, 5, 5]
  assert set(table['last_round'][table['invited'] == 2]) == {5}


@pytest.mark.runs
def test_poisson_rounds_may_have_nobody(cache, tmp_path, tff_context):
  run_folders.train(
    tmp_path,
    *(*FLAGS, '--process=fedavg', cache, '--total_rounds=6', '--seed=1'),
    *('--client_sampling=poisson', '--clients_per_round=1'),
  )
  sizes = run_folders.metrics_of(tmp_path)['clients_participating']
  assert sizes.min() == 0 and sizes.max() > 1
  took_part = pd.read_csv(tmp_path / 'participation.csv')
  assert took_part['invited'].sum() == sizes.sum()


def test_more_rest_than_there_are_is_refused(error_of):
  rests = ('--process=fedavg', '--min_separation=3', '--num_clients=8')
  error = error_of(run.main, '--dataset=digits', *rests)
  assert 'this partition has 8' in error
