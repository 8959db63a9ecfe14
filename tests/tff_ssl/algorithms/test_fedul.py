"""FedUL: what it equals where sets are classes, its bases, its refusals."""

import costs
import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, largest_differences

from tff_ssl import algorithms, metrics, optimizers, plans, testing
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views

_FEATURES, _CLASSES, _SETS = 5, 3, 4
_SIZES = (9, 14, 6)
_PRIORS = np.array(
  [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0, 0, 0]], np.float32
)
_SHARES = np.array([0.5, 0.3, 0.2, 0], np.float32)


def _spec(priors_shape=(_SETS, _CLASSES)):
  return federations.data_spec(
    (_FEATURES,), in_context=True, priors_shape=priors_shape, num_clients=3
  )


def _examples(index):
  return federations.examples(index, _SIZES[index], (_FEATURES,), _CLASSES)


def _clients(priors=_PRIORS, shares=_SHARES, **more):
  """Clients whose `y` is in [0, 3); without priors, of FedAvg."""
  if priors is not None:
    more = {'class_priors': priors, 'set_shares': shares, **more}
  return [
    federations.in_context(_examples(index), index, **more)
    for index in range(len(_SIZES))
  ]


@pytest.fixture(scope='module')
def model():
  return federations.model(_FEATURES, _CLASSES, hidden=(4,))


@pytest.fixture(scope='module')
def build(tff_context, model):
  @costs.shared
  def build_process(
    name='fedul', over=None, priors_shape=(_SETS, _CLASSES), **changes
  ):
    arguments = {
      'views': views.PlainViews(),
      'data_spec': _spec(priors_shape),
      'client_optimizer': optimizers.build_nesterov_sgd(0.3),
      'batch_size': 4,
      'local_epochs': 1,
      'seed': 3,
    }
    if name == 'fedul':
      arguments['l1_weight'] = 0.0
    spec = algorithms.PROCESSES[name]
    if over is not None:
      spec = spec.over(over)
    return spec.build(model, **{**arguments, **changes})

  return build_process


def _one_round(process, clients):
  before, after, reported = federations.one_round(process, clients)
  return before, after, reported['client_work']


@pytest.fixture(scope='module')
def over_fedavg(build):
  """One round of FedUL over FedAvg: weights before and after, metrics."""
  return _one_round(build(), _clients())


@pytest.mark.dear
def test_pure_sets_of_one_size_give_supervised_fedavg(build):
  pure = _clients(
    np.eye(_CLASSES, dtype=np.float32),
    np.full(_CLASSES, 1 / _CLASSES, np.float32),
  )
  _, actual, sets = _one_round(build(priors_shape=(_CLASSES, _CLASSES)), pure)
  start, expected, labels = _one_round(
    build('fedavg', priors_shape=None, client_weighting='uniform'),
    _clients(priors=None),
  )
  # The same draws, and sums in another order.
  assert_close(actual, expected, atol=1e-6)
  assert min(largest_differences(expected, start)) > 0.01
  for key, name in (('loss', 'loss'), ('accuracy', 'set_accuracy')):
    assert sets['train'][name] == pytest.approx(labels['train'][key], rel=1e-5)


@pytest.mark.parts
def test_classes_are_unknown_without_true_labels(over_fedavg):
  _, _, reported = over_fedavg
  names = ['loss', 'accuracy', 'set_accuracy']
  assert list(reported['train'])[: len(names)] == names
  assert np.isnan(reported['train']['accuracy'])
  assert reported['clients']['participating'] == len(_SIZES)


@pytest.mark.parts
def test_fedprox_without_a_pull_is_fedavg_and_a_strong_one_holds(
  build, over_fedavg
):
  start, expected, _ = over_fedavg
  _, loose, _ = _one_round(
    build(base_process='fedprox', proximal_strength=0.0), _clients()
  )
  _, held, _ = _one_round(
    build(base_process='fedprox', proximal_strength=1.0), _clients()
  )
  np.testing.assert_equal(loose, expected)
  moved = [
    np.sqrt(sum(np.sum((w - s) ** 2) for w, s in zip(to, start, strict=True)))
    for to in (held, expected)
  ]
  assert 0 < moved[0] < moved[1]


@pytest.mark.parts
@pytest.mark.parametrize(
  ('rate', 'more'),
  [
    (0.01, {'base_process': 'fedadam'}),
    # As the runner builds it, with a setting of the base process.
    (
      0.05,
      {
        'over': 'fedadam',
        'base_process': 'fedadam',
        'server_learning_rate': 0.05,
        'l1_weight': 0.0,
      },
    ),
  ],
)
def test_fedadam_takes_adams_first_step(rate, more, build, over_fedavg):
  start, after, _ = over_fedavg
  _, actual, _ = _one_round(build(**more), _clients())
  for weight, first, average in zip(actual, start, after, strict=True):
    # FedAvg adds the mean delta, which Adam takes for minus the gradient. Its
    # first step is rate * m / (sqrt(v) + epsilon), m = .1 delta and v = .01
    # delta^2, with the bias of both corrected outside: sqrt(.01) / .1 = 1.
    delta = average - first
    step = 0.1 * delta / (np.sqrt(0.01 * delta**2) + 1e-3)
    np.testing.assert_allclose(weight, first + rate * step, atol=1e-6)


@pytest.mark.parts
def test_fednova_with_equal_steps_is_fedavg(build):
  steps = {'local_steps': 3, 'local_epochs': None}
  _, expected, _ = _one_round(build(**steps), _clients())
  _, actual, _ = _one_round(build(base_process='fednova', **steps), _clients())
  assert_close(actual, expected, atol=1e-6)


@pytest.mark.parts
def test_scaffold_starts_as_fedavg_and_then_corrects(build, tmp_path):
  over = {
    'fedavg': {},
    'scaffold': {'client_state_dir': str(tmp_path)},
  }
  weights = {}
  for base, more in over.items():
    process = build(base_process=base, client_weighting='uniform', **more)
    state = process.initialize()
    for round_num in range(2):
      state = process.next(state, _clients()).state
      weights[base, round_num] = state.global_model_weights.trainable
  first, second = (
    largest_differences(weights['fedavg', r], weights['scaffold', r])
    for r in range(2)
  )
  assert max(first) < 1e-6 < 1e-4 < max(second)


@pytest.mark.parts
def test_l1_penalty_shrinks_weights(build, over_fedavg):
  _, without, _ = over_fedavg
  _, shrunk, _ = _one_round(build(l1_weight=0.1), _clients())
  norms = [sum(np.abs(w).sum() for w in each) for each in (without, shrunk)]
  assert norms[1] < 0.95 * norms[0]


@pytest.mark.parts
def test_the_client_optimizer_is_adam_anew_in_each_round(model):
  process = PROCESSES['fedul'].build(
    model, data_spec=_spec(), views=views.PlainViews()
  )
  state = process.initialize()
  assert state.client_work['hparams']['learning_rate'] == pytest.approx(1e-4)
  after = federations.after(process, _clients())
  # One pass in minibatches of 128 is one step of 1e-4 here: with other signs of
  # the clients less, never more.
  both = [process.get_model_weights(each).trainable for each in (state, after)]
  assert max(largest_differences(*both)) <= 1.001e-4
  for each in (state, after):
    assert list(each.client_work) == ['hparams']


@pytest.mark.parts
def test_a_client_whose_sets_contradict_its_shares_is_left_out(build):
  others = _clients()[:2]
  broken = _clients(shares=np.array([0.5, 0.5, 0, 0], np.float32))[2:]
  assert (_examples(2)['y'] == 2).any()
  process = build()
  _, expected, _ = _one_round(process, others)
  _, actual, reported = _one_round(process, others + broken)
  assert reported['clients']['non_finite'] == 1
  assert_close(actual, expected, atol=1e-7)


@pytest.mark.parts
def test_supervised_training_goes_on_from_the_classifier(build, model):
  """What FedUL learnt is a model like any other."""
  process = build()
  found = process.get_model_weights(federations.after(process, _clients()))
  on_labels = PROCESSES['fedavg'].build(
    model,
    data_spec=_spec(None),
    views=views.PlainViews(),
    client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
    local_epochs=1,
    batch_size=100,
  )
  start = on_labels.set_model_weights(on_labels.initialize(), found)
  tuned, losses = start, []
  for _ in range(3):
    tuned, output = on_labels.next(tuned, _clients(priors=None))
    losses.append(output['client_work']['train']['loss'])
  assert losses[0] > losses[1] > losses[2]
  # The first loss is that of FedUL's classifier.
  expected = [
    tf.nn.sparse_softmax_cross_entropy_with_logits(
      examples['y'],
      model.predict(
        found.trainable, found.non_trainable, examples['x'], training=False
      )[0],
    )
    for examples in map(_examples, range(len(_SIZES)))
  ]
  assert losses[0] == pytest.approx(np.mean(tf.concat(expected, 0)), rel=1e-4)


@pytest.mark.parts
def test_gradient_diversity_knows_the_priors(build, model):
  process = build()
  state = process.initialize()
  measured = metrics.build_process_diversity(process)(
    metrics.measured_state(process, state, round_num=0, seed=3), _clients()
  )
  weights = process.get_model_weights(state)
  norms = []
  for index in range(len(_SIZES)):
    examples = _examples(index)
    trainable = [tf.constant(w) for w in weights.trainable]
    with tf.GradientTape() as tape:
      tape.watch(trainable)
      logits, _ = model.predict(trainable, [], examples['x'], training=False)
      q = tf.nn.softmax(logits) @ _PRIORS.T * _SHARES
      q /= tf.reduce_sum(q, axis=1, keepdims=True)
      loss = -tf.reduce_mean(
        tf.math.log(tf.gather(q, examples['y'], batch_dims=1))
      )
    gradient = tape.gradient(loss, trainable)
    norms.append(np.concatenate([np.ravel(part) for part in gradient]))
  mean = np.mean(norms, axis=0)
  expected = np.mean([vector @ vector for vector in norms]) / (mean @ mean)
  assert expected > 1
  values = [float(value) for value in tf.nest.flatten(measured)]
  assert any(value == pytest.approx(expected, rel=1e-4) for value in values)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'priors_shape': (2, 3)}, r'priors_shape=\(2, 3\): 2 sets cannot tell 3'),
    (
      {'priors_shape': (9, 7)},
      r'model gives outputs of shape \(None, 3\).* num_classes=7',
    ),
    ({'test_prior': (0.5, 0.5)}, 'of 2 classes, but there are 3'),
    ({'proximal_strength': 0.1}, 'proximal_strength=0.1 has no effect'),
    (
      {'base_process': 'scaffold'},
      "base_process='scaffold' needs client_state_dir: give",
    ),
    (
      {
        'base_process': 'fednova',
        'client_optimizer': tff.learning.optimizers.build_adam(1e-4),
      },
      'client_optimizer.*FedNova',
    ),
    # What the base has no use for, and an argument of it, which is passed on.
    (
      {
        'base_process': 'fednova',
        'client_training': plans.TrainingPlan(client_momentum='mean'),
      },
      "client_momentum='mean' has no effect",
    ),
    (
      {'base_process': 'fednova', 'proximal_strength': -1.0},
      'proximal_strength must be',
    ),
  ],
)
def test_refusals(build, changes, message):
  with pytest.raises(ValueError, match=message):
    build(**changes)


@costs.shared
def problem_over(base):
  """One problem for all checks of a base: they share its built process."""
  return testing.TinyProblem(
    algorithms.PROCESSES['fedul'].over(base),
    arguments={
      'base_process': base,
      # That of FedProx, over which the contract suite has it.
      'proximal_strength': None,
      'client_optimizer': tff.learning.optimizers.build_sgdm(0.1),
    },
  )


@pytest.mark.contract
@pytest.mark.parametrize('base', ['fedavg', 'fedadam', 'fednova', 'scaffold'])
@pytest.mark.parametrize('name', testing.CHECKS)
def test_contract_over_other_bases(name, base, tff_context):
  testing.run_check(name, problem_over(base))
