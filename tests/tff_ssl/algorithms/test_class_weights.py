"""Weights of classes reach each loss on true labels, and no other process."""

import costs
import pytest

from tff_ssl.algorithms import PROCESSES
from tff_ssl.objectives import losses
from tff_ssl.testing import tiny_problems

pytestmark = pytest.mark.usefixtures('tff_context')

_WEIGHTS = tuple(0.5 + i for i in range(10))
_TAKES = 'class_weights'
# One of each builder and objective.
_BUILT = (
  *('grouping_robust', 'grouping_supervised', 'grouping_client_labels'),
  *('semifl', 'fedavg', 'fednova', 'scaffold'),
  *('fedlabel', 'fedavg_uda', 'sspt', 'ssjo'),
)


@pytest.mark.parametrize('name', costs.rest_in('parts', _BUILT, dear=True))
def test_each_loss_on_labels_is_weighted(name, monkeypatch):
  seen = []
  supervised = losses.supervised

  def record(labels, logits, class_weights=None):
    seen.append(class_weights)
    return supervised(labels, logits, class_weights)

  monkeypatch.setattr(losses, 'supervised', record)
  problem = tiny_problems.TinyProblem(PROCESSES[name], {_TAKES: _WEIGHTS})
  assert problem.process is not None
  # That of SemiFL's pseudo-labels is another loss.
  expected = {_WEIGHTS, None} if name == 'semifl' else {_WEIGHTS}
  assert set(seen) == expected


def test_processes_that_train_on_labels_take_them():
  without = {
    name for name, spec in PROCESSES.items() if _TAKES not in spec.setting_names
  }
  # Sets without labels, and methods whose losses are those of their code.
  assert without == {
    *('fedul', 'fedpl', 'fedllp', 'fedllp_vat'),
    *('fedmatch', 'fedmatch_server', 'fedtrinet'),
  }
