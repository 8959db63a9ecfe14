"""The benchmark of aggregators compares what it says."""

import json

import pytest

from benchmarks import aggregation, measurement, rounds, workloads


def test_json_holds_every_field(monkeypatch, capsys):
  tiny = workloads.Steps(clients=2, steps=2, batch_size=4)
  two = {name: aggregation.AGGREGATORS[name] for name in ('mean', 'median')}
  monkeypatch.setattr(aggregation, 'AGGREGATORS', two)
  monkeypatch.setattr(aggregation, 'WORKLOAD', tiny)
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 0)
  rounds.main(['--json', '--only=aggregation', '--repetitions=1'])
  values = json.loads(capsys.readouterr().out)['aggregation']
  assert set(values['median_ms']) == set(two)
  assert values['median_over_mean'] == pytest.approx(
    values['median_ms']['median'] / values['mean_ms'], rel=0.01
  )
  assert [values[name] for name in ('clients', 'steps', 'batch_size')] == [
    *(2, 2, 4)
  ]
