"""The benchmark of aggregators compares what it says."""

import json

import pytest

from benchmarks import aggregation, measurement, rounds, workloads


@pytest.mark.runs
def test_json_holds_every_field(monkeypatch, capsys):
  tiny = workloads.Steps(clients=2, steps=2, batch_size=4)
  two = {
    name: aggregation.AGGREGATORS[name]
    for name in ('mean', 'coordinate_median')
  }
  monkeypatch.setattr(aggregation, 'AGGREGATORS', two)
  monkeypatch.setattr(aggregation, 'WORKLOAD', tiny)
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 0)
  rounds.main(['--json', '--only=aggregation', '--repetitions=1'])
  values = json.loads(capsys.readouterr().out)['aggregation']
  assert set(values['median_ms']) == set(two)
  for name in two:
    # One repetition is both the best and the median.
    assert values[f'{name}_ms'] == values['median_ms'][name] > 0
  assert values['coordinate_median_over_mean'] == pytest.approx(
    values['coordinate_median_ms'] / values['mean_ms'], rel=0.01
  )
  assert [values[name] for name in ('clients', 'steps', 'batch_size')] == [
    *(2, 2, 4)
  ]
