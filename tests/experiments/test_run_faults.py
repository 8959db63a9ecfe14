"""Whole runs in which clients drop out, are slow, or are corrupt."""

import json
import types

import numpy as np
import pandas as pd
import pytest

from experiments import run
from experiments.running import diversity

FLAGS = (
  '--dataset=digits',
  '--model=dense',
  '--num_clients=8',
  '--clients_per_round=4',
  '--batch_size=20',
  '--local_steps=2',
)
GROUPING = ('--process=grouping', '--server_warmup_rounds=1', '--num_groups=2')


def main(folder, *arguments):
  return run.main(['run', *FLAGS, *arguments, f'--run_dir={folder}'])


def summary_of(folder):
  return json.loads((folder / 'summary.json').read_text())


@pytest.mark.runs
def test_a_resumed_run_meets_the_same_faults(
  cache, tmp_path, tff_context, copy_cut_off
):
  arguments = (
    *(*GROUPING, cache, '--total_rounds=6', '--seed=1'),
    *('--drop_out=0.4', '--straggler=0.5', '--corrupt=nan'),
    '--corrupt_share=0.25',
  )
  assert main(tmp_path / 'whole', *arguments) == 0
  cut = copy_cut_off(tmp_path / 'whole')
  assert main(cut, *arguments) == 0
  whole = summary_of(tmp_path / 'whole')
  assert summary_of(cut)['weights_sha256'] == whole['weights_sha256']
  table = pd.read_csv(tmp_path / 'whole' / 'metrics.csv').fillna(0)
  resumed = pd.read_csv(cut / 'metrics.csv').fillna(0)
  columns = [
    column
    for column in table
    if column not in ('seconds', 'python_mib', 'worker_mib')
  ]
  pd.testing.assert_frame_equal(table[columns], resumed[columns])
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
      parts=types.SimpleNamespace(
        num_groups=2, data_spec=types.SimpleNamespace(has_faults=True)
      )
    ),
    seed=1,
    is_due=lambda number: True,
    measure=lambda number, state, keys: measured.append(np.stack(keys)) or {},
  )
  of_fixed = diversity.OfFixedClients(
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
  cache, tmp_path, tff_context, capsys, arguments, words
):
  code = main(
    tmp_path / 'run', '--process=fedavg', cache, '--total_rounds=3', *arguments
  )
  assert code == 1
  (line,) = capsys.readouterr().err.strip().splitlines()
  assert line.startswith('error: ') and words in line


@pytest.mark.runs
def test_a_resumed_run_knows_who_rests(
  cache, tmp_path, tff_context, copy_cut_off
):
  arguments = (
    *('--process=fedavg', cache, '--total_rounds=5', '--clients_per_round=2'),
    *('--client_sampling=daytime', '--rounds_per_day=3', '--min_separation=4'),
  )
  assert main(tmp_path / 'whole', *arguments) == 0
  cut = copy_cut_off(tmp_path / 'whole')
  (cut / 'participation.csv').unlink()
  assert main(cut, *arguments) == 0
  whole = summary_of(tmp_path / 'whole')
  assert summary_of(cut)['weights_sha256'] == whole['weights_sha256']
  table = pd.read_csv(tmp_path / 'whole' / 'participation.csv')
  pd.testing.assert_frame_equal(table, pd.read_csv(cut / 'participation.csv'))
  # Eight clients in pairs: after four rounds all had their turn, and the fifth
  # round is that of the pair of the first one.
  assert sorted(table['invited']) == [1] * 6 + [2] * 2
  assert sorted(table['last_round']) == [2, 2, 3, 3, 4, 4, 5, 5]
  assert set(table['last_round'][table['invited'] == 2]) == {5}


@pytest.mark.runs
def test_poisson_rounds_may_have_nobody(cache, tmp_path, tff_context):
  arguments = ('--process=fedavg', cache, '--total_rounds=6', '--seed=1')
  assert (
    main(
      tmp_path / 'run',
      *arguments,
      *('--client_sampling=poisson', '--clients_per_round=1'),
    )
    == 0
  )
  table = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  sizes = table['clients_participating']
  assert sizes.min() == 0 and sizes.max() > 1
  took_part = pd.read_csv(tmp_path / 'run' / 'participation.csv')
  assert took_part['invited'].sum() == sizes.sum()


@pytest.mark.parametrize(
  'arguments, words',
  [
    (('--process=grouping', '--corrupt=flipped_labels'), 'see no label'),
    (
      ('--process=grouping', '--client_sampling=poisson', '--num_groups=2'),
      'equal parts of a fixed number',
    ),
    (
      ('--process=fedavg', '--client_sampling=poisson', '--min_separation=2'),
      'each round by itself',
    ),
    (
      (
        *('--process=fedavg', '--client_sampling=poisson'),
        '--client_momentum=slot',
      ),
      'as many slots as clients',
    ),
    (
      (
        *('--process=grouping', '--num_groups=2', '--start_model=slot'),
        '--min_separation=2',
      ),
      'group of the round before',
    ),
    (
      ('--process=fedavg', '--min_separation=3', '--num_clients=8'),
      'this partition has 8',
    ),
    (('--process=fedavg', '--rounds_per_day=3'), '--client_sampling=daytime'),
    (('--process=fedavg', '--corrupt_share=0.2'), 'leaves all clients sound'),
    (('--process=server_only', '--drop_out=0.1'), 'server_only does not use'),
    (('--process=fedavg', '--drop_out=1.5'), '--drop_out=1.5 must be'),
    (('--process=fedavg', '--corrupt=rude'), '--corrupt=rude'),
  ],
)
def test_refusals(capsys, arguments, words):
  assert run.main(['run', '--dataset=digits', *arguments]) == 2
  assert words in capsys.readouterr().err
