"""The benchmark of clients' own models compares what it says."""

import json

import pytest

from benchmarks import measurement, own_models, rounds, workloads


@pytest.mark.runs
def test_json_holds_every_field(monkeypatch, capsys):
  tiny = workloads.Steps(clients=2, steps=2, batch_size=4)
  monkeypatch.setattr(own_models, 'WORKLOAD', tiny)
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 0)
  rounds.main(['--json', '--only=own_models', '--repetitions=1'])
  values = json.loads(capsys.readouterr().out)['own_models']
  assert set(values['median_ms']) == {'fedavg', 'easgd', 'overlap_sgd'}
  for name in ('easgd', 'overlap_sgd'):
    assert values[f'{name}_over_fedavg'] == pytest.approx(
      values[f'{name}_ms'] / values['fedavg_ms'], rel=0.01
    )
  assert [values[name] for name in ('clients', 'steps', 'batch_size')] == [
    *(2, 2, 4)
  ]
