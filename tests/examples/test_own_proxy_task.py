import re

import pytest
import pythons

pytestmark = pytest.mark.notebooks


def test_proxy_loss_falls_and_accuracy_rises():
  finished = pythons.run('-m', 'examples.own_proxy_task', timeout=300)
  assert finished.returncode == 0, finished.stderr[-2000:]
  losses = [
    float(number)
    for number in re.findall(r'proxy_loss ([\d.]+)', finished.stdout)
  ]
  assert len(losses) == 15
  # Seen: .28 in the first round, .09 in the last.
  assert losses[-1] < losses[0] / 2
  before, after = (
    float(number)
    for number in re.findall(r'accuracy \w+: ([\d.]+)', finished.stdout)
  )
  # Seen: .77 after. Chance is .1.
  assert before < 0.3
  assert after > 0.6
