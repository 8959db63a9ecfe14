"""FedPL where it must meet FedAvg, and the contract in its second phase."""

import collections

import federations
import numpy as np
import pytest

from tff_ssl import algorithms, optimizers, testing

FEATURES, CLASSES, SETS = 5, 3, 4
SPECS = {
  name: federations.data_spec(
    (FEATURES,), true_labels=True, in_context=True, priors_shape=shape
  )
  for name, shape in (('sets', (SETS, CLASSES)), ('labels', None))
}
BUILD = federations.builder(
  'fedpl',
  lambda norm: federations.model(FEATURES, CLASSES, norm, hidden=(4,)),
  client_optimizer=optimizers.build_nesterov_sgd(0.1),
  batch_size=4,
  seed=5,
)


def client(index, labelled, size=14):
  """The same examples in sets, or with the label of their set's argmax."""
  rng = np.random.default_rng(index)
  priors = rng.dirichlet(np.ones(CLASSES), SETS).astype(np.float32)
  sets = rng.integers(0, SETS, size).astype(np.int32)
  labels = priors.argmax(axis=1)[sets].astype(np.int32)
  shares = np.float32(np.bincount(sets, minlength=SETS) / size)
  more = {} if labelled else {'class_priors': priors, 'set_shares': shares}
  examples = collections.OrderedDict(
    x=rng.normal(size=(size, FEATURES)).astype(np.float32),
    y=labels if labelled else sets,
    true_y=labels,
  )
  return federations.in_context(examples, index, **more)


def train(rounds, name='fedpl', form='sets', **arguments):
  """Returns the weights after each round, and the metrics of the last one."""
  process = BUILD(name, data_spec=SPECS[form], **arguments)
  state = process.initialize()
  clients = [client(i, form == 'labels') for i in (0, 1)]
  weights = []
  for _ in range(rounds):
    state, metrics = process.next(state, clients)
    weights.append(process.get_model_weights(state).trainable)
  return weights, metrics['client_work']['train']


@pytest.mark.dear
def test_the_first_rounds_are_fedavg_on_the_labels_of_the_sets(tff_context):
  pseudo, metrics = train(2, warmup_rounds=2, l1_weight=0)
  supervised, expected = train(
    2, 'fedavg', 'labels', local_epochs=1, client_weighting='uniform'
  )
  np.testing.assert_equal(pseudo, supervised)
  assert metrics['loss'] == expected['loss']
  assert metrics['accuracy'] == expected['accuracy']
  assert metrics['pseudo_label_accuracy'] == metrics['mask_rate'] == 1


@pytest.mark.parts
def test_nothing_moves_after_them_where_nobody_is_confident(tff_context):
  (first, _, third), metrics = train(
    3, warmup_rounds=1, threshold=1.01, l1_weight=0
  )
  # Nor does weight decay: this optimizer has none.
  np.testing.assert_equal(first, third)
  assert metrics['mask_rate'] == metrics['loss'] == 0


@pytest.mark.parts
@pytest.mark.parametrize('threshold', [0.0, 1.01])
def test_batches_without_a_mix_are_trained_or_skipped(threshold, tff_context):
  arguments = {'warmup_rounds': 1, 'threshold': threshold, 'l1_weight': 1e-3}
  (trained, _), (skipped, metrics) = (
    train(3, unmixed_batches=what, **arguments)
    for what in ('trained', 'skipped')
  )
  # Neither the penalty nor momentum moves them.
  np.testing.assert_equal(trained[0], skipped[2])
  for a, c in zip(trained[0], trained[2], strict=True):
    assert not np.array_equal(a, c)
  assert metrics['mask_rate'] == (threshold == 0)
  if threshold > 1:
    # The penalty moves weights by itself.
    norms = [sum(np.abs(w).sum() for w in weights) for weights in trained]
    assert norms[2] < norms[1] < norms[0]


@pytest.fixture(scope='module')
def mixing():
  """One problem in the second phase for all checks that share it."""
  # Low, so that an untrained model gives pseudo-labels.
  return testing.TinyProblem(
    algorithms.PROCESSES['fedpl'],
    arguments={'warmup_rounds': 0, 'threshold': 0.2},
  )


@pytest.mark.contract
@pytest.mark.parametrize(
  'name',
  [
    'map_reduce_form_equals_next',
    'deterministic',
    'empty_clients_change_nothing',
    'non_finite_clients_are_left_out',
    'client_order_does_not_matter',
    'copies_count_as_one',
    'zero_learning_rate_moves_nothing',
    'any_minibatch_remainder',
    'traces_once',
    'norms_and_aggregators_compose',
  ],
)
def test_contract_of_the_second_phase(name, mixing, tff_context):
  testing.run_check(name, mixing)
