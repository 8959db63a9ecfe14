"""Initial weights, stacks, and the four parts as one process."""

import collections

import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import stacks
from tff_ssl.plans import Wiring
from tff_ssl.templates import (
  client_task,
  client_work,
  composition,
  finalizers,
)

ModelWeights = tff.learning.models.ModelWeights


def test_initial_weights_are_the_models_for_the_seed(tff_context):
  model = federations.model(3, 2)
  weights = composition.initial_weights(model, 4)
  stack = composition.stacked(weights, 2)()
  for actual, expected, tiled in zip(
    weights().trainable,
    model.initial_weights(4).trainable,
    stack.trainable,
    strict=True,
  ):
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(tiled, [expected, expected])
  other = model.initial_weights(5).trainable[0]
  assert (weights().trainable[0] != other).any()


class _Model:
  """Two groups' worth of one scalar weight."""

  @staticmethod
  def initial_weights(seed):
    return ModelWeights([np.array([seed, 3], np.float32)], [])


def _global_weights(state):
  return state.global_model_weights.trainable[0]


class TestCompose:
  """Clients answer with 1000 seed + 100 round + x + their weight."""

  _SEED = 2

  def _local_update(self, task):
    x = tf.reduce_sum(task.examples['x'])
    said = 1000 * task.seed + 100 * task.round
    delta = tf.cast(said, tf.float32) + x + task.weights.trainable[0]
    update = client_task.LocalUpdate(
      ModelWeights([delta], []),
      tf.constant(1.0),
      client_task.TrainingResult(
        None, (), collections.OrderedDict(loss=tf.stack([x, 1.0]))
      ),
    )
    return update, None

  @pytest.fixture(scope='class')
  def process(self, tff_context):
    wiring = Wiring(seed=self._SEED)
    work = client_work.build_client_work(
      self._local_update,
      composition.initial_weights(_Model, 1),
      data_spec=federations.data_spec((1,)),
      initial_hparams=lambda: collections.OrderedDict(rate=tf.constant(0.5)),
      wiring=wiring,
    )
    return composition.compose(
      work,
      create_aggregator=tff.aggregators.MeanFactory().create,
      build_finalizer=finalizers.build_apply_mean_delta,
      wiring=wiring,
      view=composition.ModelView(
        lambda w: tf.nest.map_structure(tf.reduce_mean, w),
        lambda w, _: stacks.tile(w, 2),
      ),
    )

  def _clients(self, *values):
    return [
      tf.data.Dataset.from_tensors(
        collections.OrderedDict(
          x=np.array([[value]], np.float32), y=np.zeros(1, np.int32)
        )
      )
      for value in values
    ]

  def test_weights_round_and_seed_reach_the_clients(self, process):
    state = process.initialize()
    np.testing.assert_array_equal(_global_weights(state), [1, 3])
    state, metrics = process.next(state, self._clients(10, 20))
    # w + mean(2000 + x + w), then the same with 100 more.
    first = np.array([1, 3]) * 2 + 2015
    np.testing.assert_array_equal(_global_weights(state), first)
    assert metrics['client_work']['train']['loss'] == 15
    state, _ = process.next(state, self._clients(0))
    np.testing.assert_array_equal(_global_weights(state), first * 2 + 2100)
    assert state.distributor == {'round': 2, 'seed': self._SEED}

  def test_model_weights_of_another_structure(self, process):
    state = process.initialize()
    assert process.get_model_weights(state).trainable[0] == 2
    state, _ = process.next(state, self._clients(0))
    changed = process.set_model_weights(
      state, ModelWeights([np.float32(8)], [])
    )
    np.testing.assert_array_equal(_global_weights(changed), [8, 8])
    assert changed.distributor['round'] == 1
    assert process.get_model_weights(changed).trainable[0] == 8
    by_name = process.set_model_weights(
      state=state, weights=ModelWeights([np.float32(8)], [])
    )
    np.testing.assert_array_equal(_global_weights(by_name), [8, 8])
    # Within a computation, too.
    state_type, weights_type = (
      process.set_model_weights.type_signature.parameter
    )

    @tff.tensorflow.computation(state_type, weights_type)
    def put(state, weights):
      return process.set_model_weights(state, weights)

    within = put(state, ModelWeights([np.float32(8)], []))
    np.testing.assert_array_equal(_global_weights(within), [8, 8])

  @pytest.mark.parametrize(
    ('weights', 'given'),
    [
      ([np.zeros(3, np.float32)], r"\['float32\(3,\)'\]"),
      ([np.float64(8)], r"\['float64\(\)'\]"),
      ([[1.0, 2.0]], r"\['float64\(\)', 'float64\(\)'\]"),
      ([np.float32(8)] * 2, r"\['float32\(\)', 'float32\(\)'\]"),
    ],
  )
  def test_weights_that_do_not_fit_are_refused(self, process, weights, given):
    with pytest.raises(
      ValueError,
      match=rf'The trainable weights are {given}, but this model has '
      r"\['float32\(\)'\] there: take them from a model of the same",
    ):
      process.set_model_weights(process.initialize(), ModelWeights(weights, []))
