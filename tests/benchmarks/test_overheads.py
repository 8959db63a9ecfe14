"""What options cost is measured as it is said."""

import json

import psutil
import pytest

from benchmarks import candidates, measurement, overheads, rounds, workloads


@pytest.mark.runs
def test_kernels_are_there_and_are_not(monkeypatch, capsys):
  tiny = workloads.Steps(clients=2, steps=2, batch_size=4)
  monkeypatch.setattr(overheads.SECTIONS['kernels'], 'workload', tiny)
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 0)
  variables = []
  build = candidates.rounds_over_store

  def build_and_look(*arguments, **options):
    before = set(psutil.Process().children(recursive=True))
    built = build(*arguments, **options)
    (worker,) = set(psutil.Process().children(recursive=True)) - before
    variables.append(worker.environ()['TF_ENABLE_ONEDNN_OPTS'])
    return built

  monkeypatch.setattr(candidates, 'rounds_over_store', build_and_look)
  rounds.main(['--json', '--only=kernels', '--repetitions=1'])
  values = json.loads(capsys.readouterr().out)['kernels']
  assert variables == ['1', '0', '1', '0']
  for model in ('small_cnn', 'emnist_cnn'):
    assert values[f'{model}_ratio'] == pytest.approx(
      values[f'{model}_onednn_ms'] / values[f'{model}_without_ms'], rel=0.01
    )
