"""What a client sends, and which clients are left out and counted."""

import collections

import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.plans import Wiring
from tff_ssl.templates import client_task, client_work, memories

ModelWeights = tff.learning.models.ModelWeights

_WEIGHTS_TYPE = tff.types.to_type(
  ModelWeights([(np.float32, [2])], [(np.float32, [])])
)


def _local_update(task):
  """The delta is w + rate * (sum of x + round); seed, client go to metrics."""
  total = tf.reduce_sum(task.examples['x'], 0)
  rate = task.hparams['learning_rate']
  delta = ModelWeights(
    [task.weights.trainable[0] + rate * (total + tf.cast(task.round, 'float'))],
    [task.weights.non_trainable[0]],
  )
  size = tf.cast(tf.shape(task.examples['y'])[0], tf.float32)
  who = tf.cast(task.client + task.seed, tf.float32)
  metrics = collections.OrderedDict(
    mean=tf.stack([total[0], size]), who=(who, 1.0)
  )
  # A weight of infinity where a label is 99.
  weight = tf.where(
    tf.reduce_any(tf.equal(task.examples['y'], 99)), np.inf, size
  )
  result = client_task.TrainingResult(None, (), metrics)
  update = client_task.LocalUpdate(delta, weight, result, task.group > 5)
  return update, task.group


def _build(local_update=_local_update, in_context=True, memories=(), **wired):
  return client_work.build_client_work(
    local_update,
    tff.tensorflow.computation(lambda: ModelWeights([tf.zeros(2)], [0.0])),
    data_spec=federations.data_spec((2,), in_context=in_context),
    initial_hparams=lambda: collections.OrderedDict(
      learning_rate=tf.constant(0.5)
    ),
    wiring=Wiring(**wired),
    memories=memories,
  )


@pytest.fixture(scope='module')
def process(tff_context):
  return _build()


def _client(x, label=0, client=0, group=0):
  x = np.asarray(x, np.float32).reshape([-1, 2])
  examples = collections.OrderedDict(x=x, y=np.full(len(x), label, np.int32))
  return federations.in_context(examples, client, group)


def _sent(num_clients, round_num=10, seed=100):
  weights = ModelWeights([np.array([1.0, 2.0], np.float32)], [np.float32(7)])
  message = collections.OrderedDict(
    weights=weights, round=np.int32(round_num), seed=np.int32(seed)
  )
  return [message] * num_clients


def _next(process, clients, state=None):
  state = process.initialize() if state is None else state
  return process.next(state, _sent(len(clients)), clients)


def test_the_task_holds_what_the_server_and_the_client_know(process):
  output = _next(
    process,
    [_client([[1, 2], [3, 4]], client=3, group=1), _client([5, 6], client=4)],
  )
  first, second = output.result
  # (1, 2) + .5 * ((4, 6) + 10) and (1, 2) + .5 * ((5, 6) + 10).
  np.testing.assert_allclose(first.update['value'].trainable[0], [8, 10])
  np.testing.assert_allclose(second.update['value'].trainable[0], [8.5, 10])
  assert first.update['value'].non_trainable[0] == 7
  assert [c.update['group'] for c in output.result] == [1, 0]
  assert [c.update_weight for c in output.result] == [2, 1]
  train = output.measurements['train']
  assert train['mean'] == pytest.approx((4 + 5) / 3)
  assert train['who'] == pytest.approx((103 + 104) / 2)
  assert output.measurements['clients'] == {
    'participating': 2,
    'empty': 0,
    'non_finite': 0,
    'invalid': 0,
  }


def test_hyperparameters_reach_the_client(process):
  state = process.initialize()
  hparams = process.get_hparams(state)
  assert dict(hparams) == {'learning_rate': 0.5}
  hparams['learning_rate'] = np.float32(0)
  state = process.set_hparams(state, hparams)
  output = _next(process, [_client([[1, 2], [3, 4]])], state)
  np.testing.assert_array_equal(
    output.result[0].update['value'].trainable[0], [1, 2]
  )
  assert process.get_hparams(output.state)['learning_rate'] == 0


def test_subtract_is_new_minus_start():
  new = ModelWeights([tf.constant([3.0, 5.0])], [tf.constant(2.0)])
  start = ModelWeights([tf.constant([1.0, 10.0])], [tf.constant(0.5)])
  delta = client_task.subtract(new, start)
  np.testing.assert_array_equal(delta.trainable[0], [2, -5])
  assert float(delta.non_trainable[0]) == 1.5


@pytest.mark.parametrize(
  'bad, counter',
  [
    ({'x': [np.nan, 0]}, 'non_finite'),
    ({'x': [0, np.inf]}, 'non_finite'),
    ({'x': [1, 1], 'label': 99}, 'non_finite'),  # an infinite weight
    ({'x': [1e20, 0]}, 'non_finite'),  # a finite delta of infinite norm
    ({'x': [1, 1], 'group': 6}, 'invalid'),
    ({'x': []}, 'empty'),
  ],
)
def test_a1_a3_left_out_clients_contribute_zeros_and_are_counted(
  process, bad, counter
):
  good = _client([[1, 2], [3, 4]], client=3, group=1)
  alone = _next(process, [good])
  output = _next(process, [_client(**bad), good])
  left_out, kept = output.result
  np.testing.assert_array_equal(left_out.update['value'].trainable[0], [0, 0])
  assert left_out.update['value'].non_trainable[0] == 0
  assert left_out.update_weight == 0
  np.testing.assert_array_equal(
    kept.update['value'].trainable[0],
    alone.result[0].update['value'].trainable[0],
  )
  assert output.measurements['train'] == alone.measurements['train']
  expected = {'participating': 1, 'empty': 0, 'non_finite': 0, 'invalid': 0}
  assert output.measurements['clients'] == {**expected, counter: 1}


def test_metrics_without_any_client_are_nan(process):
  output = _next(process, [_client([])])
  assert np.isnan(output.measurements['train']['mean'])
  assert output.measurements['clients']['participating'] == 0


def test_metrics_of_few_clients_are_not_shown(tff_context):
  process = _build(min_group_size=2)
  good, empty = _client([1, 2]), _client([])
  hidden = _next(process, [good, empty]).measurements
  assert all(np.isnan(value) for value in hidden['train'].values())
  assert hidden['clients']['participating'] == 1
  shown = _next(process, [good, empty, good]).measurements
  assert shown['train']['mean'] == 1


def test_without_a_tag_the_update_is_the_delta():
  def local_update(task):
    return _local_update(task)[0], None

  process = _build(local_update, in_context=False)
  result = process.next.type_signature.result.result.member
  # Lists come back from TFF as such: only the structure is compared.
  assert str(result.update) == str(_WEIGHTS_TYPE)
  plain = federations.data_spec((2,)).type
  assert process.next.type_signature.parameter[2].member == plain


def test_another_metrics_aggregator_is_used():
  given = []

  def aggregator(finalizers, metrics_type):
    given.append((finalizers, metrics_type))
    return tff.learning.metrics.sum_then_finalize(finalizers, metrics_type)

  _build(metrics_aggregator=aggregator)
  ((finalizers, metrics_type),) = given
  assert list(finalizers) == ['mean', 'who']
  assert float(finalizers['mean'](tf.constant([3.0, 4.0]))) == 0.75
  assert str(metrics_type) == '<mean=float32[2],who=float32[2]>'


@pytest.mark.parts
@pytest.mark.parametrize(
  'aggregator, expected',
  [
    (
      lambda finalizers: tff.learning.metrics.sum_then_finalize(finalizers),
      [8 / 3],
    ),
    (tff.learning.metrics.finalize_then_sample, [3 / 2, 5 / 1]),
    (tff.learning.metrics.secure_sum_then_finalize, [8 / 3]),
    (
      lambda finalizers, sample_size=1: (
        tff.learning.metrics.finalize_then_sample(
          finalizers, sample_size=sample_size
        )
      ),
      None,
    ),
  ],
  ids=['one argument', 'sample', 'secure', 'a second one of its own'],
)
def test_metrics_aggregators_of_tff(tff_context, aggregator, expected):
  """Clients have x[0] 1 and 2, and 5: 3 of two examples, and 5 of one."""
  process = _build(metrics_aggregator=aggregator)
  output = _next(process, [_client([[1, 2], [2, 4]]), _client([5, 6])])
  actual = np.atleast_1d(output.measurements['train']['mean'])
  if expected is None:  # One of the clients.
    assert len(actual) == 1 and actual[0] in (1.5, 5.0)
  else:
    assert sorted(actual) == pytest.approx(expected, rel=1e-3)


def test_what_cannot_be_built_is_refused():
  with pytest.raises(TypeError, match='metrics_aggregator .* but is 3'):
    _build(metrics_aggregator=3)
  # Memories must keep fields of their own.
  memory = memories.SharedMean(lambda: tf.constant(0.0), lambda *_: None)
  with pytest.raises(ValueError, match="SharedMean keeps 'shared'"):
    _build(memories=(memory, memory))


def test_counts_are_summed_securely_where_metrics_are():
  secure = _build(
    metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize
  )
  tff.test.assert_not_contains_unsecure_aggregation(secure.next)
  with pytest.raises(AssertionError, match='unsecure aggregations, found'):
    tff.test.assert_not_contains_unsecure_aggregation(_build().next)
