"""The benchmark of the remedy compares what it says."""

import json

import pytest

from benchmarks import measurement, robust, rounds, workloads


@pytest.mark.runs
def test_json_holds_every_field(monkeypatch, capsys):
  tiny = workloads.Steps(clients=2, steps=2, batch_size=4)
  monkeypatch.setattr(robust, 'WORKLOAD', tiny)
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 0)
  rounds.main(['--json', '--only=robust', '--repetitions=1'])
  values = json.loads(capsys.readouterr().out)['robust']
  assert set(values['median_ms']) == {'crl', 'robust'}
  assert values['robust_over_crl'] == pytest.approx(
    values['robust_ms'] / values['crl_ms'], rel=0.01
  )
  assert [values[name] for name in ('clients', 'steps', 'batch_size')] == [
    *(2, 2, 4)
  ]
