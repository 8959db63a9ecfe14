"""Flags of FedUL and of Adam at clients."""

import pytest
import tensorflow as tf

from experiments.config import flags, settings
from experiments.parts import optimizers
from tff_ssl import algorithms
from tff_ssl.objectives import surrogate_sets


def make(**given):
  return settings.make({'process': 'fedul', 'dataset': 'digits', **given})


def refusal(**given):
  with pytest.raises(flags.UsageError) as caught:
    make(**given)
  return str(caught.value)


def test_defaults_are_the_papers_but_on_digits():
  """Appendix D.2: Adam with rate 1e-4, batches of 128, one local epoch."""
  names = ('client_optimizer', 'learning_rate', 'batch_size', 'local_epochs')
  for dataset, expected in (
    ('mnist', ['adam', 1e-4, 128, 1]),
    ('digits', ['adam', 1e-3, 20, 1]),
  ):
    made = make(dataset=dataset)
    assert [getattr(made, name) for name in names] == expected
    assert made.momentum is None and made.weight_decay == 0
    assert made.l1_weight == 1e-5
    assert made.proximal_strength is None and made.test_prior is None


def test_sgd_brings_its_flags_back():
  made = make(client_optimizer='sgd', momentum=0.5)
  assert (made.momentum, made.weight_decay) == (0.5, 1e-4)
  other = settings.make({'process': 'fedavg', 'dataset': 'digits'})
  assert other.client_optimizer == 'sgd' and other.l1_weight is None


@pytest.mark.parametrize(
  ('given', 'text'),
  [
    ({'momentum': 0.9}, '--momentum=0.9 has no effect'),
    ({'nesterov': True}, '--nesterov=true has no effect'),
    ({'proximal_strength': 0.1}, '--proximal_strength=0.1 has no effect'),
    (
      {'control_update': 'from_steps', 'base_process': 'fedadam'},
      '--control_update=from_steps has no effect: only '
      '--base_process=scaffold uses',
    ),
    (
      {'server_learning_rate': 0.1},
      '--server_learning_rate=0.1 has no effect: only '
      '--base_process=fedadam or ',
    ),
    ({'base_process': 'fedsgd'}, '--base_process=fedsgd is unknown'),
    (
      {'test_prior': 'uniform'},
      '--test_prior=uniform: test_prior=uniform must',
    ),
    ({'test_prior': '0.5,0.6'}, 'sums to 1.1'),
    (
      {'test_prior': '0.5,0.5', 'surrogate_loss': 'published_code'},
      '--test_prior=0.5,0.5 has no effect',
    ),
    ({'l1_weight': -1.0}, '--l1_weight=-1.0 must be a number >= 0'),
  ],
)
def test_refusals(given, text):
  assert text in refusal(**given)


def test_fedprox_takes_its_strength():
  assert make(base_process='fedprox').proximal_strength == 0.01
  assert make(base_process='fednova').proximal_strength == 0.0
  for base in ('fedprox', 'fednova'):
    given = {'base_process': base, 'proximal_strength': 0.5}
    assert make(**given).proximal_strength == 0.5


def test_settings_of_the_base_process():
  adam, scaffold = make(base_process='fedadam'), make(base_process='scaffold')
  assert (adam.server_learning_rate, adam.control_update) == (0.01, None)
  assert scaffold.server_learning_rate == 1.0
  assert scaffold.control_update == 'from_steps'
  given = {'server_learning_rate': 0.5, 'control_update': 'full_gradient'}
  made = make(base_process='scaffold', **given)
  assert given.items() <= made.used.items()


@pytest.mark.parametrize(
  ('base', 'momentum'), [('fednova', 0.9), ('scaffold', 0.0)]
)
def test_bases_that_count_steps_take_sgd(base, momentum):
  made = make(base_process=base, dataset='mnist')
  assert (made.client_optimizer, made.learning_rate) == ('sgd', 0.03)
  assert (made.momentum, made.client_weighting) == (momentum, 'uniform')
  assert (made.batch_size, made.local_epochs) == (128, 1)
  assert made.partition == 'u_sets'
  spec = algorithms.find('fedul', base)
  keeps_state = base == 'scaffold'
  assert spec.keeps_client_state == spec.counts_clients == keeps_state
  assert spec.has_gradient_diversity != keeps_state
  assert spec.counts_sgd_steps
  more = {'control_update', 'server_learning_rate'} if keeps_state else set()
  assert {*more} == {'control_update', 'server_learning_rate'} & set(made.used)


def test_a_prior_is_numbers_between_commas():
  assert surrogate_sets.parse_prior('0.25, 0.75') == (0.25, 0.75)


@pytest.mark.parametrize(
  'given, named',
  [
    ({'base_process': 'scaffold'}, '--base_process=scaffold'),
    ({'base_process': 'fednova'}, '--base_process=fednova'),
    ({'process': 'fednova'}, '--process=fednova'),
  ],
)
def test_adam_s_steps_cannot_be_counted(given, named):
  message = refusal(client_optimizer='adam', **given)
  assert message.startswith(
    f'--client_optimizer=adam does not go with {named}, '
  )
  assert 'choose --client_optimizer=sgd' in message
  if given.get('base_process') == 'scaffold':
    full = {'control_update': 'full_gradient', **given}
    assert make(client_optimizer='adam', **full).client_optimizer == 'adam'


@pytest.mark.parametrize(
  'dataset, more, number',
  [
    ('mnist', {}, '10'),
    ('emnist_balanced', {}, '47'),
    ('cifar100', {}, '100'),
    ('organamnist', {}, '11'),
    ('emnist', {}, '10'),
    ('emnist', {'emnist_only_digits': False}, '62'),
    ('emnist_balanced', {'sets_per_client': '50'}, '50'),
  ],
)
def test_as_many_sets_as_classes(dataset, more, number):
  assert make(dataset=dataset, **more).sets_per_client == number


@pytest.mark.parametrize('name', ['sgd', 'adam'])
def test_the_optimizer_is_the_one_of_the_flag(name):
  optimizer = optimizers.build(make(client_optimizer=name), 0.02, None)
  state = optimizer.initialize(tf.TensorSpec([2], tf.float32))
  hparams = optimizer.get_hparams(state)
  assert hparams['learning_rate'] == 0.02
  assert ('beta_1' in hparams) == (name == 'adam')


@pytest.mark.parametrize('given, moved', [({}, 0), ({'weight_decay': 5e-4}, 1)])
def test_adam_takes_an_l2_penalty_where_it_is_given(given, moved):
  optimizer = optimizers.build(
    make(client_optimizer='adam', **given), 0.02, None
  )
  state = optimizer.initialize(tf.TensorSpec([1], tf.float32))
  # Without a penalty a gradient of 0 moves nothing; Adam's first step is of
  # the size of its learning rate, whatever the gradient's.
  _, weights = optimizer.next(state, tf.ones([1]), tf.zeros([1]))
  assert float(weights[0]) == pytest.approx(1 - moved * 0.02, abs=1e-3)
