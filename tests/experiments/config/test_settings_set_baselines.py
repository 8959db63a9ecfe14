"""Flags of FedPL and FedLLP: defaults of the paper, refusals of the rest."""

import pytest

from experiments.config import settings
from experiments.config.usage import UsageError


@pytest.fixture(autouse=True)
def no_data_dir(monkeypatch):
  monkeypatch.delenv('TFF_SSL_DATA_DIR', raising=False)


def make(process, **given):
  return settings.make({'dataset': 'mnist', 'process': process, **given})


@pytest.mark.parametrize('process', ['fedpl', 'fedllp', 'fedllp_vat'])
def test_all_train_with_the_optimiser_of_the_paper(process):
  made = make(process)
  assert (made.client_optimizer, made.learning_rate) == ('adam', 1e-4)
  assert (made.local_epochs, made.local_steps) == (1, None)
  assert made.l1_weight == 1e-5


def test_fedpl_has_the_values_of_appendix_d2():
  made = make('fedpl')
  assert (made.threshold, made.mixup_weight) == (0.4, 0.3)
  assert (made.mixup_concentration, made.mix) == (0.75, 'inputs')
  assert (made.batch_size, made.warmup_rounds) == (128, 5)


def test_vat_has_the_values_for_mnist():
  made = make('fedllp_vat')
  assert (made.vat_weight, made.vat_radius) == (5e-4, 1e-2)
  assert made.vat_ramp == 'none'
  assert make('fedllp').vat_weight is None


@pytest.mark.parametrize(
  'process, given, words',
  [
    ('fedllp', {'vat_weight': 0.1}, 'the process fedllp does not use it'),
    ('fedllp', {'local_steps': 4}, 'the process fedllp does not use it'),
    ('fedllp', {'batch_size': 4}, 'the process fedllp does not use it'),
    ('fedpl', {'warmup_rounds': -1}, 'must be an integer >= 0'),
    ('fedpl', {'mixup_concentration': 0.0}, 'must be a number > 0'),
    ('fedpl', {'mixup_weight': 0.0, 'mix': 'logits'}, 'mixes nothing'),
    ('fedllp_vat', {'vat_radius': 0.0}, 'must be a number > 0'),
    ('fedllp_vat', {'vat_weight': 0.0, 'vat_radius': 1.0}, 'leaves it out'),
    ('fedllp_vat', {'vat_ramp': 'late'}, '--vat_ramp=late is unknown'),
  ],
)
def test_refusals_say_why(process, given, words):
  with pytest.raises(UsageError, match=words):
    make(process, **given)
