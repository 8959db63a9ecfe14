"""The parts of the FedLabel benchmark are those of FedLabel."""

import dataclasses
import json

import pytest
import stores

from benchmarks import candidates, fedlabel, measurement, rounds
from datasets.store import client_store
from tff_ssl.simulation import client_reader, client_sampling
from tff_ssl.templates import client_data

TINY = fedlabel.FedLabel(
  model='small_cnn', clients=2, examples=10, steps=3, batch_size=4
)


@pytest.mark.runs
def test_both_parts_together_have_the_passes_of_fedlabel(tmp_path, tff_context):
  store = fedlabel.build_store(TINY, str(tmp_path))
  data_spec = client_data.ClientDataSpec(
    client_store.element_spec(store), in_context=True
  )
  keys = client_sampling.sample_keys(
    num_clients=2, clients_per_round=2, num_groups=1, seed=0, round_num=0
  )
  passes = {}
  for name, build in fedlabel.builders(TINY).items():
    process = client_reader.compose_with_reader(
      build(data_spec), client_store.client_reader(store)
    )
    metrics = process.next(process.initialize(), keys).metrics
    train = metrics['client_work']['train']
    passes[name] = (train['forward_passes'], train['backward_passes'])
  # 3 steps of 4, and two more forward passes.
  assert passes == {
    'fedlabel': (12 + 36, 12 + 12),
    'supervised': (12, 12),
    'unlabelled': (36, 12),
  }


def test_a_fifth_of_the_labels_are_left(tmp_path):
  store = fedlabel.build_store(TINY, str(tmp_path))
  for client in range(2):
    part = stores.read(store, client)
    assert (len(part.y), (part.y >= 0).sum()) == (10, 2)


@pytest.mark.runs
def test_json_holds_every_field(monkeypatch, capsys):
  """With the rounds that run above, and times that are given."""
  seconds = {
    'fedlabel': [0.007, 0.005, 0.009],
    'supervised': [0.002, 0.004, 0.008],
    'unlabelled': [0.003, 0.002, 0.002],
  }
  rounds_of = {}

  def time_rounds(timed, repetitions):
    assert repetitions == 3
    rounds_of.update(timed)
    return seconds

  monkeypatch.setattr(fedlabel.SECTION, 'workload', TINY)
  monkeypatch.setattr(measurement, 'time_rounds', time_rounds)
  monkeypatch.setattr(
    candidates, 'rounds_over_store', lambda build, store, clients: clients
  )
  rounds.main(['--json', '--only=fedlabel', '--repetitions=3'])
  assert rounds_of == dict.fromkeys(seconds, TINY.clients)
  results = json.loads(capsys.readouterr().out)

  assert set(results) == {'machine', 'fedlabel'}
  # Milliseconds of one of two clients: the best, and the median.
  assert results['fedlabel'] == {
    **dataclasses.asdict(TINY),
    'fedlabel_ms': 2.5,
    'supervised_ms': 1.0,
    'unlabelled_ms': 1.0,
    'median_ms': {'fedlabel': 3.5, 'supervised': 2.0, 'unlabelled': 1.0},
    'fedlabel_over_parts': 1.25,
  }
