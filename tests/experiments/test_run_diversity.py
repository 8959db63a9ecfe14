"""Whole runs whose gradient diversity is that of each round's participants."""

import numpy as np
import pandas as pd
import pytest
import run_folders

from experiments.config import flags, settings
from experiments.preparing import building
from tff_ssl import metrics
from tff_ssl.simulation import client_reader, client_sampling

pytestmark = pytest.mark.runs

ARGUMENTS = (
  '--process=grouping',
  # Clients change groups, and start from the model of their last one.
  '--start_model=slot',
  *run_folders.SMALL,
  '--server_examples=50',
  '--server_warmup_rounds=0',
  '--threshold=0.5',
  '--batch_size=10',
  '--gradient_diversity_of=participants',
  '--rounds_per_gradient_diversity=2',
  '--total_rounds=4',
)


@pytest.fixture(scope='module')
def measured(cache, tmp_path_factory, tff_context):
  """A run: its folder, and the columns of gradient diversity by round."""
  folder = tmp_path_factory.mktemp('measured') / 'run'
  run_folders.train(folder, *ARGUMENTS, cache)
  return folder, diversity_of(folder)


@pytest.fixture(scope='module')
def opened(cache, tff_context):
  """The same run, not trained."""
  made = settings.make(flags.parse(['run', *ARGUMENTS, cache]))
  return building.Run.open(made)


def diversity_of(folder):
  table = run_folders.metrics_of(folder).set_index('round')
  return table.filter(like='diversity/')


def flat(state):
  """Returns the trainable weights of a state as one vector."""
  trainable = state.global_model_weights.trainable
  return np.concatenate([np.ravel(np.float64(part)) for part in trainable])


def measure_by_hand(opened, state, rounds_done, keys):
  """Returns the metric without what a run has around it."""
  process = opened.over_data
  measure = client_reader.compose_computation_with_reader(
    metrics.build_process_diversity(process), building.build_reader(opened.data)
  )
  found = measure(
    metrics.measured_state(process, state, round_num=rounds_done, seed=0), keys
  )
  return {name: float(value) for name, value in found.items()}


def test_a_round_is_measured_on_what_its_participants_receive(measured, opened):
  _, table = measured
  state = opened.process.initialize()
  for rounds_done in range(2):
    keys = client_sampling.sample_keys(
      num_clients=6,
      clients_per_round=4,
      num_groups=2,
      seed=0,
      round_num=rounds_done,
      redeal=True,
    )
    received = state
    state = opened.process.next(state, keys).state
  expected = measure_by_hand(opened, received, 1, keys)
  # 16 variants, two of the authors' code, and the number of clients.
  assert len(expected) == 19
  assert table.loc[2].to_dict() == pytest.approx(expected, rel=1e-5)


def test_a_round_without_participants_has_none_to_measure(opened):
  """As after a rewind, when the clients pause."""
  found = measure_by_hand(opened, opened.process.initialize(), 0, [])
  assert found['diversity/num_clients'] == 0
  # One participant, the server, has the diversity 1, and nobody has none.
  shown = {name: value for name, value in found.items() if value > 0}
  assert shown == dict.fromkeys(shown, pytest.approx(1))
  assert len(shown) == 8
  assert all(name.endswith('_with_server') for name in shown)


def test_rounds_between_are_not_measured(measured):
  _, table = measured
  assert table.notna().all(axis=1).tolist() == [False, True, False, True]
  assert table['diversity/num_clients'].dropna().tolist() == [4, 4]


def test_a_run_that_was_cut_has_the_same_numbers(measured, cache, copy_cut_off):
  folder, table = measured
  cut = copy_cut_off(folder)
  run_folders.train(cut, *ARGUMENTS, cache)
  pd.testing.assert_frame_equal(diversity_of(cut), table)


def test_updates_are_those_of_the_round_itself(cache, tff_context):
  """Eq. 15 of changes that rounds of a single participant make."""
  made = settings.make(
    flags.parse(
      [
        *('run', '--process=fedavg', '--dataset=digits', '--model=dense'),
        *('--num_clients=3', '--clients_per_round=3', '--batch_size=10', cache),
      ]
    )
  )
  fedavg = building.Run.open(made)
  keys = client_sampling.sample_keys(
    num_clients=3, clients_per_round=3, num_groups=1, seed=0, round_num=1
  )
  received = fedavg.process.next(fedavg.process.initialize(), keys).state
  before = flat(received)
  changes = np.stack(
    [flat(fedavg.process.next(received, [key]).state) - before for key in keys]
  )
  ratio = (changes**2).sum() / (changes.sum(0) ** 2).sum()
  found = measure_by_hand(fedavg, received, 1, keys)
  assert found['diversity/update_l2_squared'] == pytest.approx(ratio, rel=1e-4)
  # Those of the next round are others.
  later = measure_by_hand(fedavg, received, 2, keys)
  assert later['diversity/update_l2_squared'] != pytest.approx(ratio, rel=1e-3)
