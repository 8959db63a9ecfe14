"""The parts of the FedLabel benchmark are those of FedLabel."""

import json

import pytest

from benchmarks import fedlabel, measurement, rounds
from datasets import client_store, store_readers
from tff_ssl.simulation import client_reader, client_sampling
from tff_ssl.templates import client_data

TINY = fedlabel.FedLabel(
  model='small_cnn', clients=2, examples=10, steps=3, batch_size=4
)
NAMES = {'fedlabel', 'supervised', 'unlabelled'}


def test_both_parts_together_have_the_passes_of_fedlabel(tmp_path, tff_context):
  store = fedlabel.build_store(TINY, str(tmp_path))
  data_spec = client_data.ClientDataSpec(
    store_readers.element_spec(store), in_context=True
  )
  keys = client_sampling.sample_keys(
    num_clients=2, clients_per_round=2, num_groups=1, seed=0, round_num=0
  )
  passes = {}
  for name, build in fedlabel.builders(TINY).items():
    process = client_reader.compose_with_reader(
      build(data_spec), store_readers.client_reader(store)
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
    part = client_store.read_numpy(store, client)
    assert (len(part.y), (part.y >= 0).sum()) == (10, 2)


# Last: a benchmark stops all workers when it is done.
def test_json_holds_every_field(monkeypatch, capsys):
  monkeypatch.setattr(fedlabel, 'WORKLOAD', TINY)
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 0)
  rounds.main(['--json', '--only=fedlabel', '--repetitions=1'])
  results = json.loads(capsys.readouterr().out)

  assert set(results) == {'machine', 'fedlabel'}
  values = results['fedlabel']
  assert set(values['median_ms']) == NAMES
  ms = {name: values[f'{name}_ms'] for name in NAMES}
  assert min(ms.values()) > 0
  expected = ms['fedlabel'] / (ms['supervised'] + ms['unlabelled'])
  assert values['fedlabel_over_parts'] == pytest.approx(
    expected, rel=0.01, abs=1e-3
  )
  sizes = ('model', 'clients', 'examples', 'steps', 'batch_size', 'mask_ratio')
  assert [values[size] for size in sizes] == ['small_cnn', 2, 10, 3, 4, 0.8]
