"""The benchmark of the transition layer compares what it says."""

import json

import numpy as np
import pytest

from benchmarks import fedul, measurement, rounds, workloads
from datasets.store import client_store

TINY = fedul.FedUL(clients=2, steps=2, batch_size=4, sets=12)


@pytest.mark.runs
def test_json_holds_every_field(monkeypatch, capsys):
  monkeypatch.setattr(fedul, 'WORKLOAD', TINY)
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 0)
  monkeypatch.setattr(fedul, '_CALLS', 1)
  rounds.main(['--json', '--only=fedul', '--repetitions=1'])
  results = json.loads(capsys.readouterr().out)

  assert set(results) == {'machine', 'fedul'}
  values = results['fedul']
  assert set(values['median_ms']) == {'supervised', 'fedul'}
  expected = values['fedul_ms'] / values['supervised_ms']
  assert values['fedul_over_supervised'] == pytest.approx(
    expected, rel=0.01, abs=1e-3
  )
  assert values['layer_over_step'] == pytest.approx(
    values['layer_ms'] / values['step_ms'], abs=0.01
  )
  sizes = ('clients', 'steps', 'batch_size', 'sets')
  assert [values[size] for size in sizes] == [2, 2, 4, 12]


def test_every_label_is_a_set_with_a_share(tmp_path):
  workload = fedul.WORKLOAD
  store = workloads.build_store(workload.clients, 100, str(tmp_path))
  constants = fedul._constants(workload, store.num_clients)
  assert constants['class_priors'].shape == (workload.clients, 40, 10)
  assert constants['set_shares'].shape == (workload.clients, 40)
  for table in constants.values():
    assert table.dtype == np.float32
    np.testing.assert_allclose(table.sum(axis=-1), 1, rtol=1e-5)
  for client in range(workload.clients):
    labels = client_store.read_numpy(store, client).y
    assert (constants['set_shares'][client, labels] > 0).all()
