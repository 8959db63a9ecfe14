"""FedAvg and its kin against TensorFlow Federated's own processes."""

import costs
import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, largest_differences

from tff_ssl.models import dense

_FEATURES, _CLASSES = 5, 3
_RATE = 0.4
_SGD = tff.learning.optimizers.build_sgdm(_RATE)
_SIZES = (2, 9, 5)
_STRENGTH = 0.7
# Larger than any client: every epoch is one step on all examples, so that the
# order in which they are shuffled does not matter.
_BATCH = 16


def _client(index):
  return federations.examples(index, _SIZES[index], (_FEATURES,), _CLASSES)


def _clients(epochs=1):
  """Sequences for either process; TFF's takes the epochs from the data."""
  return [
    tf.data.Dataset.from_tensor_slices(_client(i)).batch(_BATCH).repeat(epochs)
    for i in range(len(_SIZES))
  ]


def _initial_weights():
  rng = np.random.default_rng(11)
  shapes = [[_FEATURES, 4], [4], [4, _CLASSES], [_CLASSES]]
  return tff.learning.models.ModelWeights(
    [rng.normal(size=shape).astype(np.float32) for shape in shapes], []
  )


def _private_mean(noise_multiplier, clip):
  return tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier, clients_per_round=float(len(_SIZES)), clip=clip
  )


def _tree_mean(noise_multiplier, clip):
  """DP-FTRL's, which must know the type of all weights."""
  specs = [
    tf.TensorSpec(weight.shape) for weight in _initial_weights().trainable
  ]
  return tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation(
    noise_multiplier,
    clients_per_round=float(len(_SIZES)),
    l2_norm_clip=clip,
    record_specs=tff.learning.models.ModelWeights(specs, []),
  )


def _one_round(process, clients):
  state = process.set_model_weights(process.initialize(), _initial_weights())
  output = process.next(state, clients)
  return process.get_model_weights(output.state).trainable, output.metrics


@pytest.fixture(scope='module')
def references(tff_context):
  """Rounds of TFF's processes.

  They come first: Keras models that TFF makes in its graphs spoil those of the
  same class that were made before.
  """

  def model_fn():
    return tff.learning.models.from_keras_model(
      dense.dense((_FEATURES,), _CLASSES, hidden=(4,)),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=next(iter(_clients())).element_spec,
    )

  def build_reference(builder, **arguments):
    return builder(
      model_fn,
      client_optimizer_fn=_SGD,
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
      **arguments,
    )

  algorithms = tff.learning.algorithms
  weighted = build_reference(algorithms.build_weighted_fed_avg)
  uniform = build_reference(
    algorithms.build_weighted_fed_avg,
    client_weighting=tff.learning.ClientWeighting.UNIFORM,
  )
  proximal = build_reference(
    algorithms.build_weighted_fed_prox, proximal_strength=_STRENGTH
  )
  return {
    'weighted': _one_round(weighted, _clients()),
    'weighted, 2 epochs': _one_round(weighted, _clients(epochs=2)),
    'uniform, 2 epochs': _one_round(uniform, _clients(epochs=2)),
    'proximal, 2 epochs': _one_round(proximal, _clients(epochs=2)),
  }


@pytest.fixture(scope='module')
def build(tff_context, references):
  return federations.builder(
    'fedavg',
    lambda norm: federations.model(_FEATURES, _CLASSES, norm, hidden=(4,)),
    data_spec=federations.data_spec((_FEATURES,)),
    client_optimizer=_SGD,
    batch_size=_BATCH,
  )


_UNIFORM = {'local_epochs': 2, 'client_weighting': 'uniform'}


@pytest.mark.parametrize(
  'settings, reference',
  costs.rest_in(
    'parts',
    [
      ({'local_epochs': 2}, 'weighted, 2 epochs'),
      ({'local_epochs': 1}, 'weighted'),
      (_UNIFORM, 'uniform, 2 epochs'),
      # Neither noise nor, at this norm, clipping.
      *(
        ({**_UNIFORM, 'model_aggregator': mean(0.0, 1e3)}, 'uniform, 2 epochs')
        for mean in (_private_mean, _tree_mean)
      ),
    ],
    dear=True,
  ),
  ids=['2 epochs', 'examples', 'uniform', 'private', 'tree'],
)
def test_equals_tffs_own_process(build, references, settings, reference):
  _assert_equals(
    _one_round(build(**settings), _clients()), references[reference]
  )


@pytest.mark.parts
def test_secure_sums_equal_plain_ones(build, references):
  """Up to their quantisation. No sum is in the clear."""
  process = build(
    local_epochs=1,
    model_aggregator=tff.learning.secure_aggregator(
      zeroing=False, clipping=False
    ),
    metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize,
  )
  _assert_equals(_one_round(process, _clients()), references['weighted'])
  tff.test.assert_not_contains_unsecure_aggregation(process.next)


def _assert_equals(round_, reference):
  """Asserts that weights moved to where the reference's are, and its loss."""
  (actual, metrics), (expected, reference_metrics) = round_, reference
  assert_close(actual, expected, atol=1e-5)
  # And it moved.
  start = _initial_weights().trainable
  assert min(largest_differences(expected, start)) > 1e-3
  assert metrics['client_work']['train']['loss'] == pytest.approx(
    reference_metrics['client_work']['train']['loss'], abs=1e-5
  )
  assert metrics['client_work']['clients']['participating'] == len(_SIZES)


@pytest.mark.dear
def test_fed_prox_against_tffs_fed_avg_and_fed_prox(build, references):
  """Two full-batch steps of a client give, with mu and learning rate r,

  ```
  w2 = w1 - r (g(w1) + mu (w1 - w)),    w1 = w - r g(w)
  ```

  which is FedAvg's second step minus r mu (w1 - w); averages are linear in it.
  TFF 0.87 adds mu (w - w1) to the gradient, the wrong sign against Eq. 2 of the
  FedProx paper: its result is ours, mirrored at FedAvg's.
  """
  actual, _ = _one_round(
    build(local_epochs=2, proximal_strength=_STRENGTH), _clients()
  )
  for ours, start, one_step, two_steps, tffs in zip(
    actual,
    _initial_weights().trainable,
    references['weighted'][0],
    references['weighted, 2 epochs'][0],
    references['proximal, 2 epochs'][0],
    strict=True,
  ):
    pull = _RATE * _STRENGTH * (one_step - start)
    assert np.abs(pull).max() > 1e-3
    np.testing.assert_allclose(ours, two_steps - pull, atol=1e-5)
    np.testing.assert_allclose(tffs, two_steps + pull, atol=1e-5)


@pytest.mark.dear
def test_fedadam_is_adam_on_fedavgs_changes(build):
  beta_1, beta_2, tau, rate = 0.9, 0.99, 1e-3, 0.05
  adam = build('fedadam', server_learning_rate=rate, local_epochs=2)
  average = build(local_epochs=2)
  state, reference = adam.initialize(), average.initialize()
  moments = [(0.0, 0.0)] * 4
  for step in range(1, 4):
    start = adam.get_model_weights(state)
    clients = _clients()[step % 2 :]
    reference = average.next(
      average.set_model_weights(reference, start), clients
    ).state
    state = adam.next(state, clients).state
    ends = average.get_model_weights(reference).trainable
    actual = adam.get_model_weights(state).trainable
    for leaf, (w, end) in enumerate(zip(start.trainable, ends, strict=True)):
      change = np.float64(end) - w
      m, v = moments[leaf]
      m = beta_1 * m + (1 - beta_1) * change
      v = beta_2 * v + (1 - beta_2) * change**2
      moments[leaf] = m, v
      # TFF's correction for the start, which multiplies the rate.
      corrected = rate * np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
      expected = w + corrected * m / (np.sqrt(v) + tau)
      np.testing.assert_allclose(actual[leaf], expected, atol=1e-5)


def test_the_references_differ_from_each_other(references):
  """The equalities above would be empty if they did not."""
  kernels = [weights[0] for weights, _ in references.values()]
  for i, one in enumerate(kernels):
    for other in kernels[i + 1 :]:
      assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize(
  'changes, name',
  [
    ({'local_steps': 2, 'local_epochs': 2}, 'steps=2 and epochs=2'),
    ({'match_local_steps': True}, 'match_local_steps=True.*give epochs'),
    ({'epoch_batches': 'continuous'}, "'continuous' have no effect"),
    ({'labelled_batch_size': 4}, 'labelled_batch_size=4 has no effect'),
  ],
)
def test_arguments_that_do_not_fit_are_named(build, changes, name):
  with pytest.raises(ValueError, match=name):
    build(**changes)


@pytest.mark.parts
def test_noise_on_moving_statistics_is_refused(build):
  with pytest.raises(ValueError, match='model_aggregator adds noise .*moving'):
    build(
      norm='batch',
      client_weighting='uniform',
      model_aggregator=tff.learning.dp_aggregator(0.1, 100.0),
    )


def test_default_client_optimizer_is_the_papers(build):
  process = build(client_optimizer=None)
  hparams = process.get_hparams(process.initialize())['client_work']
  # Table A.1 of the paper; the learning rate is its EMNIST value.
  assert hparams['learning_rate'] == pytest.approx(0.03)
  assert hparams['momentum'] == pytest.approx(0.9)
  assert hparams['weight_decay'] == pytest.approx(1e-4)
