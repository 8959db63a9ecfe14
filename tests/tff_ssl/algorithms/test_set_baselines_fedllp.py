"""FedLLP where it must meet FedAvg, and FedLLP-VAT where it meets FedLLP."""

import collections

import federations
import numpy as np
import pytest
from comparing import assert_close, assert_same, largest_differences

from tff_ssl import objectives, optimizers
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views

FEATURES, CLASSES, SETS = 5, 3, 9
SPEC = federations.data_spec(
  (FEATURES,), in_context=True, priors_shape=(SETS, CLASSES)
)
PLAIN = views.PlainViews()


def model_with(norm='none', classes=CLASSES):
  return federations.model(FEATURES, classes, norm, hidden=(4,))


def client(index, sizes):
  """A client whose sets have these sizes, and random priors."""
  rng = np.random.default_rng(index)
  priors = np.zeros((SETS, CLASSES), np.float32)
  priors[: len(sizes)] = rng.dirichlet(np.ones(CLASSES), len(sizes))
  shares = np.zeros(SETS, np.float32)
  shares[: len(sizes)] = np.array(sizes) / np.sum(sizes)
  sets = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
  x = rng.normal(size=(len(sets), FEATURES)).astype(np.float32)
  return in_context(index, x, sets, class_priors=priors, set_shares=shares)


def in_context(index, x, y, **more):
  examples = collections.OrderedDict(x=x, y=y.astype(np.int32))
  return federations.in_context(examples, index, **more)


BUILD = federations.builder(
  'fedllp',
  model_with,
  data_spec=SPEC,
  client_optimizer=optimizers.build_nesterov_sgd(0.1),
  seed=5,
)


def train(clients, *, name='fedllp', norm='none', **arguments):
  process = BUILD(name, norm, **arguments)
  state = process.initialize()
  for _ in range(2):
    state, metrics = process.next(state, clients)
  return process.get_model_weights(state), metrics


@pytest.mark.dear
def test_sets_of_one_example_and_sure_priors_are_supervised_fedavg(tff_context):
  labels = [np.random.default_rng(i).integers(0, CLASSES, SETS) for i in (0, 1)]
  x = np.random.default_rng(2).normal(size=(2, SETS, FEATURES))
  x = x.astype(np.float32)
  in_sets = [
    in_context(
      i,
      x[i],
      np.arange(SETS),
      class_priors=np.eye(CLASSES, dtype=np.float32)[labels[i]],
      set_shares=np.full(SETS, 1 / SETS, np.float32),
    )
    for i in (0, 1)
  ]
  labelled = [in_context(i, x[i], labels[i]) for i in (0, 1)]
  proportions, metrics = train(in_sets, l1_weight=0)
  supervised, expected = train(
    labelled,
    name='fedavg',
    data_spec=federations.data_spec((FEATURES,), in_context=True),
    batch_size=1,
    local_epochs=1,
  )
  assert_close(proportions, supervised, rtol=1e-5, atol=1e-6)
  losses = [m['client_work']['train']['loss'] for m in (metrics, expected)]
  assert losses[0] == pytest.approx(losses[1], rel=1e-5)


CLIENTS = [client(0, [4, 1, 7]), client(1, [3, 5, 2, 6])]


def vat(weight, ramp='none'):
  return objectives.VirtualAdversarialProportions(PLAIN, weight, 0.5, ramp)


@pytest.mark.parts
@pytest.mark.parametrize('norm', ['none', 'batch'])
def test_vat_of_no_weight_is_fedllp_exactly(norm, tff_context):
  alone, _ = train(CLIENTS, norm=norm)
  without, with_it = (
    train(CLIENTS, norm=norm, client_objective=vat(weight))
    for weight in (0.0, 1.0)
  )
  assert_same(alone.trainable, without[0].trainable)
  assert not np.array_equal(with_it[0].trainable[0], alone.trainable[0])
  divergence = with_it[1]['client_work']['train']['vat_divergence']
  assert 0 < divergence < 10


@pytest.mark.parts
def test_the_published_ramp_turns_vat_nearly_off(tff_context):
  alone, ramped, full = (
    train(CLIENTS, client_objective=objective)[0].trainable[0]
    for objective in (vat(0.0), vat(1.0, 'published_code'), vat(1.0))
  )
  distances = [np.abs(weights - alone).max() for weights in (ramped, full)]
  assert 0 < distances[0] < 0.05 * distances[1]


@pytest.mark.parts
def test_a_set_that_nobody_has_leaves_its_client_out(tff_context):
  stray = client(2, [2, 2])
  stray['examples'] = stray['examples'].map(
    lambda batch: collections.OrderedDict(batch, y=batch['y'] * 6)
  )
  alone, _ = train(CLIENTS)
  beside, metrics = train([*CLIENTS, stray])
  assert metrics['client_work']['clients']['non_finite'] == 1
  assert_close(alone, beside, rtol=1e-5, atol=1e-7)


@pytest.mark.parts
def test_adam_and_one_epoch_by_default(tff_context):
  process = PROCESSES['fedllp'].build(model_with(), data_spec=SPEC, views=PLAIN)
  state = process.initialize()
  hparams = process.get_hparams(state)['client_work']
  assert hparams['learning_rate'] == pytest.approx(1e-4)
  assert 'beta_1' in hparams
  start, end, _ = federations.one_round(process, [client(3, [5])])
  # The first step of Adam is the rate, whatever the gradient's size.
  largest = max(largest_differences(start, end))
  assert largest == pytest.approx(1e-4, rel=1e-2)


def test_a_model_of_other_classes_is_refused():
  with pytest.raises(ValueError, match=r'priors_shape=\(9, 3\).* 4 outputs'):
    PROCESSES['fedllp'].build(
      model_with(classes=4), data_spec=SPEC, views=PLAIN
    )
