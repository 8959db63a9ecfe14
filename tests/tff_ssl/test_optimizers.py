import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close

from tff_ssl import optimizers

_SHAPES = [(3, 2), (4,), ()]


def _specs():
  return [tf.TensorSpec(shape, tf.float32) for shape in _SHAPES]


def _start():
  rng = np.random.default_rng(0)
  return [rng.normal(size=shape).astype(np.float32) for shape in _SHAPES]


def _gradients(step):
  rng = np.random.default_rng(100 + step)
  return [rng.normal(size=shape).astype(np.float32) for shape in _SHAPES]


def _run(optimizer, steps=6, gradients_at=_gradients):
  weights = [tf.constant(w) for w in _start()]
  state = optimizer.initialize(_specs())
  for step in range(steps):
    gradients = [
      None if g is None else tf.constant(g) for g in gradients_at(step)
    ]
    state, weights = optimizer.next(state, weights, gradients)
  return state, weights


def _assert_close(actual, expected):
  assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('nesterov', [True, False])
@pytest.mark.parametrize('decay', [0.0, 0.05])
@pytest.mark.parametrize('momentum', [0.0, 0.9])
def test_equals_the_formulas(momentum, decay, nesterov):
  optimizer = optimizers.build_nesterov_sgd(0.1, momentum, nesterov, decay)
  _, weights = _run(optimizer)
  expected = [w.astype(np.float64) for w in _start()]
  velocity = [None] * len(expected)
  for step in range(6):
    for i, gradient in enumerate(_gradients(step)):
      g = gradient + decay * expected[i]
      # The first step sets the velocity to the gradient.
      velocity[i] = g if step == 0 else momentum * velocity[i] + g
      g = g + momentum * velocity[i] if nesterov else velocity[i]
      expected[i] = expected[i] - 0.1 * g
  _assert_close(weights, expected)


def test_two_steps_by_hand():
  # w=1, g=1, lr=.1, m=.5, wd=.2. Step 1: g=1.2, v=1.2, step 1.2+.6=1.8, w=.82.
  # Step 2: g=1+.164=1.164, v=.6+1.164=1.764, step 1.164+.882=2.046, w=.6154.
  optimizer = optimizers.build_nesterov_sgd(0.1, 0.5, weight_decay=0.2)
  state = optimizer.initialize(tf.TensorSpec([], tf.float32))
  weight = tf.constant(1.0)
  state, weight = optimizer.next(state, weight, tf.constant(1.0))
  assert float(weight) == pytest.approx(0.82)
  state, weight = optimizer.next(state, weight, tf.constant(1.0))
  assert float(weight) == pytest.approx(0.6154)
  assert float(state['velocity']) == pytest.approx(1.764)


def test_equals_tff_without_nesterov_and_keras_with_it():
  _, ours = _run(optimizers.build_nesterov_sgd(0.1, 0.9, nesterov=False))
  _, theirs = _run(tff.learning.optimizers.build_sgdm(0.1, 0.9))
  _assert_close(ours, theirs)
  _, ours = _run(optimizers.build_nesterov_sgd(0.1, 0.9))
  keras = tf.keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
  variables = [tf.Variable(w) for w in _start()]
  for step in range(6):
    keras.apply_gradients(zip(_gradients(step), variables, strict=True))
  _assert_close(ours, variables)


def test_state_and_hparams():
  optimizer = optimizers.build_nesterov_sgd(0.1, 0.9, weight_decay=0.01)
  state = optimizer.initialize(_specs())
  assert isinstance(state, collections.OrderedDict)
  expected = {'learning_rate': 0.1, 'momentum': 0.9, 'weight_decay': 0.01}
  assert dict(optimizer.get_hparams(state)) == expected
  state, weights = _run(optimizer, steps=1)
  new = collections.OrderedDict(expected, learning_rate=0.0)
  changed = optimizer.set_hparams(state, new)
  assert optimizer.get_hparams(changed) == new
  tf.nest.assert_same_structure(changed, state)
  gradients = [tf.constant(g) for g in _gradients(1)]
  _, moved = optimizer.next(changed, weights, gradients)
  _assert_close(moved, weights)


def test_without_momentum_there_is_no_velocity():
  optimizer = optimizers.build_nesterov_sgd(0.1, momentum=0.0)
  state = optimizer.initialize(_specs())
  assert dict(state) == {'learning_rate': 0.1}
  with pytest.raises(ValueError, match=r"\['momentum'\]"):
    optimizer.set_hparams(state, {'momentum': 0.5})


def test_missing_gradient_leaves_the_weight():
  optimizer = optimizers.build_nesterov_sgd(0.1, weight_decay=0.1)
  weights = {'a': tf.constant(1.0), 'b': tf.constant([2.0])}
  state = optimizer.initialize(
    tf.nest.map_structure(tf.TensorSpec.from_tensor, weights)
  )
  state, moved = optimizer.next(
    state, weights, {'a': None, 'b': tf.constant([1.0])}
  )
  assert float(moved['a']) == 1.0
  # g = 1 + .1*2 = 1.2, step 1.2 * 1.9 = 2.28, w = 2 - .228.
  np.testing.assert_allclose(moved['b'], [1.772], rtol=1e-6)
  assert float(state['velocity']['a']) == 0.0


def test_float64_weights_and_other_structures():
  optimizer = optimizers.build_nesterov_sgd(0.1, weight_decay=0.1)
  state = optimizer.initialize(tf.TensorSpec([2], tf.float64))
  weight = tf.ones([2], tf.float64)
  _, moved = optimizer.next(state, weight, weight)
  assert moved.dtype == tf.float64
  state = optimizer.initialize([tf.TensorSpec([2])])
  with pytest.raises(ValueError, match='same'):
    optimizer.next(state, [tf.zeros([2])], [tf.zeros([3])])


@pytest.mark.parts
def test_passes_through_a_tff_builder(tff_context):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(8, 3)).astype(np.float32)
  y = rng.normal(size=(8, 1)).astype(np.float32)

  @tf.function
  def predict(weights, x, training):
    del training
    return tf.matmul(x, weights[0][0])

  model = tff.learning.models.FunctionalModel(
    initial_weights=((np.zeros([3, 1], np.float32),), ()),
    predict_on_batch_fn=predict,
    loss_fn=lambda output, label, sample_weight: tf.reduce_mean(
      (output - label) ** 2
    ),
    input_spec=(tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1])),
  )
  process = tff.learning.algorithms.build_weighted_fed_avg(
    model,
    client_optimizer_fn=optimizers.build_nesterov_sgd(0.05, weight_decay=0.1),
    server_optimizer_fn=optimizers.build_nesterov_sgd(1.0, momentum=0.0),
  )
  state = process.initialize()
  client = tf.data.Dataset.from_tensors((x, y)).repeat(3)
  state = process.next(state, [client]).state
  weight, velocity = np.zeros([3, 1]), np.zeros([3, 1])
  for _ in range(3):
    g = 2 / 8 * x.T @ (x @ weight - y) + 0.1 * weight
    velocity = 0.9 * velocity + g
    weight = weight - 0.05 * (g + 0.9 * velocity)
  np.testing.assert_allclose(
    process.get_model_weights(state).trainable[0], weight, atol=1e-5
  )


_NAN, _INF = float('nan'), float('inf')


@pytest.mark.parametrize(
  'make, arguments, message',
  [
    *(
      (optimizers.build_nesterov_sgd, arguments, next(iter(arguments)))
      for arguments in (
        {'learning_rate': -0.1},
        {'momentum': 1.0},
        {'momentum': -0.1},
        {'weight_decay': -1e-4},
        {'learning_rate': _NAN},
      )
    ),
    *(
      (make, {'server_learning_rate': rate}, 'server_learning_rate')
      for make in (optimizers.build_server_adam, optimizers.build_server_sgd)
      for rate in (-0.1, _NAN)
    ),
    (
      optimizers.cosine,
      {'total_steps': 10, 'warmup_steps': 10},
      'warmup_steps is 10 and total_steps 10',
    ),
    (optimizers.cosine, {'total_steps': 10, 'floor': -1}, 'floor must be'),
    (optimizers.cosine, {'total_steps': 10, 'scale': 0}, 'scale must be'),
    *(
      (
        optimizers.exponential,
        {'decay': decay},
        f'decay is {decay}: give a number',
      )
      for decay in (0.0, -0.5, 1.01, _NAN)
    ),
    # Numbers of wrappers are positive.
    *(
      (functools.partial(wrap, optimizers.build_grouping_sgd()), given, message)
      for value in (0.0, -1.0, _NAN, _INF)
      for wrap, given, message in (
        (
          optimizers.clip_gradients,
          {'max_norm': value},
          f'max_norm must be .* > 0, but is {value}',
        ),
        (
          optimizers.add_weight_decay,
          {'weight_decay': value},
          f'weight_decay must be .* > 0, but is {value}',
        ),
      )
    ),
  ],
)
def test_bad_arguments_are_named(make, arguments, message):
  with pytest.raises(ValueError, match=message):
    make(**arguments)


_TOTAL = 100 * 1024


@pytest.mark.parametrize(
  'schedule, step, expected',
  [
    # The cosine of the EMNIST runs.
    (optimizers.cosine(_TOTAL), 0, 1.0),
    # 0.03 cos(7 pi / 16) = 0.00585
    (
      optimizers.cosine(_TOTAL),
      _TOTAL,
      pytest.approx(0.195, abs=1.6e-4),
    ),
    # Half way: cos(7 pi / 32) = 0.77301
    (optimizers.cosine(_TOTAL), _TOTAL // 2, pytest.approx(0.77301, abs=1e-5)),
  ],
)
def test_schedules(schedule, step, expected):
  factor = schedule(tf.constant(step))
  assert factor.dtype == tf.float32 and float(factor) == expected


def test_cosine_of_the_svhn_runs():
  # E = 40, 5 epochs of warm-up, c = 2.286. The first zero of the cosine is at
  # 5 + 35 / (2 * 2.286) = 12.66 epochs, the next at 5 + 35 * 3 / (2 * 2.286) =
  # 27.97: the rate is dead in between and rises again.
  schedule = optimizers.cosine(40 * 1024, 2.286, warmup_steps=5 * 1024)

  def at(epoch):
    return float(schedule(tf.constant(int(epoch * 1024))))

  assert at(2.5) == pytest.approx(0.5)
  assert at(5) == pytest.approx(1.0)
  assert at(12.6) > 1e-3
  assert at(12.7) == at(20) == at(27.9) == pytest.approx(1e-4)
  assert at(28.1) > 1e-3
  # cos(pi * 2.286 * 30 / 35) = cos(6.1557) = 0.99188
  assert at(35) == pytest.approx(np.cos(np.pi * 2.286 * 30 / 35), abs=1e-5)


def test_cosine_scale_stretches_the_clock():
  plain = optimizers.cosine(100, 0.5, warmup_steps=10)
  stretched = optimizers.cosine(100, 0.5, warmup_steps=10, scale=4)
  for step in (0, 5, 10, 50, 99):
    assert float(stretched(tf.constant(4 * step))) == pytest.approx(
      float(plain(tf.constant(step)))
    )


def test_exponential_multiplies_after_each_round():
  schedule = optimizers.exponential(0.9)
  factors = [float(schedule(tf.constant(r))) for r in range(4)]
  np.testing.assert_allclose(factors, [1, 0.9, 0.81, 0.729], rtol=1e-6)


# Optimizers around others.


@pytest.mark.parametrize(
  'optimizer',
  [
    optimizers.build_nesterov_sgd(0.1, 0.9, weight_decay=0.01),
    tff.learning.optimizers.build_sgdm(0.1, 0.9),
    tff.learning.optimizers.build_adagrad(0.1),
  ],
  ids=['nesterov', 'sgdm', 'adagrad'],
)
def test_a_resting_weight_knows_of_no_step_without_gradient(optimizer):
  """The first weight has gradients in even steps only."""

  def gradients_at(step):
    first, *others = _gradients(step)
    return [np.zeros_like(first) if step % 2 else first, *others]

  resting = optimizers.rest_without_gradient(optimizer)
  _, weights = _run(resting, gradients_at=gradients_at)
  _, alone = _run(optimizer, 3, lambda step: _gradients(2 * step))
  _, expected = _run(optimizer)
  _assert_close(weights, [alone[0], *expected[1:]])


@pytest.mark.parametrize('max_norm', [0.5, 100.0])
def test_clipping_scales_all_gradients_together(max_norm):
  def gradients_at(step):
    gradients = _gradients(step)
    norm = np.sqrt(sum(np.square(g).sum() for g in gradients))
    assert 0.5 < norm < 100
    return [np.float32(min(1, max_norm / norm) * g) for g in gradients]

  plain = optimizers.build_nesterov_sgd(0.1, 0.9, weight_decay=0.05)
  clipped = optimizers.clip_gradients(plain, max_norm)
  _, weights = _run(clipped, 3)
  _, expected = _run(plain, 3, gradients_at)
  _assert_close(weights, expected)


def _with_one_missing(step):
  first, _, last = _gradients(step)
  return [first, None, last]


@pytest.mark.parametrize('momentum', [0.0, 0.9])
def test_added_weight_decay_is_that_of_the_sgd_with_one(momentum):
  own = optimizers.build_nesterov_sgd(0.1, momentum, weight_decay=0.3)
  added = optimizers.add_weight_decay(
    optimizers.build_nesterov_sgd(0.1, momentum), 0.3
  )
  (_, expected), (_, weights) = (
    _run(optimizer, 3, _with_one_missing) for optimizer in (own, added)
  )
  _assert_close(weights, expected)
  np.testing.assert_array_equal(weights[1], _start()[1])


@pytest.mark.parametrize(
  'wrap',
  [
    optimizers.rest_without_gradient,
    lambda optimizer: optimizers.clip_gradients(optimizer, 1.0),
  ],
)
def test_hyperparameters_are_those_of_the_optimizer(wrap):
  optimizer = wrap(optimizers.build_nesterov_sgd(0.1, 0.9))
  state = optimizer.initialize(_specs())
  assert optimizer.get_hparams(state) == {'learning_rate': 0.1, 'momentum': 0.9}
  changed = optimizer.set_hparams(state, {'learning_rate': 0.5})
  assert optimizer.get_hparams(changed) == {
    'learning_rate': 0.5,
    'momentum': 0.9,
  }


def test_clipping_leaves_a_weight_without_gradient_alone():
  clipped = optimizers.clip_gradients(
    optimizers.build_nesterov_sgd(0.1, 0.9), 1.0
  )
  _, weights = _run(clipped, 1, _with_one_missing)
  np.testing.assert_array_equal(weights[1], _start()[1])
