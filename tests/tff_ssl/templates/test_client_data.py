"""Types of client data, and how a sequence becomes tensors."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import client_data


def _spec(batched=True, true_labels=False, in_context=False, **changes):
  elements = client_data.image_element_spec(
    (2, 2, 1), batched=batched, true_labels=true_labels
  )
  elements.update(changes)
  return client_data.ClientDataSpec(elements, in_context)


def _arrays(num, seed=0):
  rng = np.random.default_rng(seed)
  return collections.OrderedDict(
    x=rng.integers(0, 256, (num, 2, 2, 1)).astype(np.uint8),
    y=rng.integers(-1, 10, num).astype(np.int32),
  )


def _dataset(arrays):
  return tf.data.Dataset.from_tensor_slices(arrays)


class TestSpec:
  def test_types(self):
    examples = tff.SequenceType(
      collections.OrderedDict(
        x=tff.TensorType(np.uint8, [None, 2, 2, 1]),
        y=tff.TensorType(np.int32, [None]),
      )
    )
    assert _spec().type == examples
    assert _spec(in_context=True).type == tff.types.to_type(
      collections.OrderedDict(
        examples=examples,
        context=tff.SequenceType(
          collections.OrderedDict(client=np.int32, group=np.int32)
        ),
      )
    )

  def test_true_labels_come_last(self):
    assert str(_spec(batched=False, true_labels=True).type) == (
      '<x=uint8[2,2,1],y=int32,true_y=int32>*'
    )

  @pytest.mark.parametrize('batched', [True, False])
  def test_shape_of_one_example(self, batched):
    spec = _spec(batched=batched)
    assert spec.batched == batched
    assert spec.input_spec == tf.TensorSpec([None, 2, 2, 1], tf.uint8)

  def test_keys_and_their_order(self):
    x, y = _spec().element_spec.values()
    for keys in (['y', 'x'], ['x'], ['x', 'label'], ['x', 'y', 'weight']):
      specs = collections.OrderedDict((k, x if k == 'x' else y) for k in keys)
      with pytest.raises(TypeError, match='keys x, y'):
        client_data.ClientDataSpec(specs)

  @pytest.mark.parametrize('key', ['y', 'true_y'])
  @pytest.mark.parametrize(
    'spec, message',
    [
      (tf.TensorSpec([None], tf.float32), 'float32: give labels as whole'),
      (tf.TensorSpec([None, 10], tf.int32), 'no one-hot vector'),
      ({'a': tf.TensorSpec([None], tf.int32)}, 'one tf.TensorSpec'),
    ],
  )
  def test_what_is_no_label(self, key, spec, message):
    with pytest.raises(TypeError, match=message) as error:
      _spec(true_labels=True, **{key: spec})
    assert key in str(error.value)

  @pytest.mark.parametrize('batch', [[None], []])
  def test_several_inputs(self, batch):
    x = {'a': tf.TensorSpec([*batch, 2]), 'b': tf.TensorSpec([*batch, 3])}
    spec = _spec(batched=bool(batch), x=x)
    assert spec.batched == bool(batch)
    assert spec.input_spec == {
      'a': tf.TensorSpec([None, 2]),
      'b': tf.TensorSpec([None, 3]),
    }

    class Model:
      weights_spec = ()
      input_spec = {'a': tf.TensorSpec([None, 2]), 'c': tf.TensorSpec([None])}

    with pytest.raises(TypeError, match=r'\{a: \(2,\), b: .* takes \{a: .*c'):
      spec.check_model(Model())

  @pytest.mark.parametrize(
    'changes, message',
    [
      ({'true_y': tf.TensorSpec([], tf.int32)}, 'batch all of them alike'),
      ({'x': tf.TensorSpec([5, 2, 2, 1], tf.uint8)}, 'batch all of them alike'),
      ({'x': tf.TensorSpec([], tf.uint8)}, 'batch all of them alike'),
      # Of several inputs.
      (
        {'x': {'a': tf.TensorSpec([None, 2]), 'b': tf.TensorSpec([5, 3])}},
        r'x \(None, 2\), x \(5, 3\), y',
      ),
    ],
  )
  def test_all_keys_are_batched_or_none(self, changes, message):
    with pytest.raises(TypeError, match=message):
      _spec(true_labels=True, **changes)

  @pytest.mark.parametrize('labels', [[None], []])
  def test_model_of_another_input(self, labels):
    class Model:
      weights_spec = ()
      input_spec = tf.TensorSpec([None, 3, 3, 1], tf.float32)

    with pytest.raises(TypeError, match=r'\(2, 2, 1\).*\(3, 3, 1\)'):
      _spec(batched=bool(labels)).check_model(Model())
    Model.input_spec = tf.TensorSpec([None, 2, 2, 1], tf.float32)
    _spec(batched=bool(labels)).check_model(Model())
    # A Keras model is told where to go.
    with pytest.raises(TypeError, match='Sequential.*tff_ssl.from_keras'):
      _spec().check_model(tf.keras.Sequential())


class TestCollect:
  @pytest.mark.parametrize('num', [0, 1, 4, 7])
  @pytest.mark.parametrize('batch_size', [None, 1, 3, 4, 100])
  def test_any_batching_gives_the_same_tensors_in_order(self, num, batch_size):
    arrays = _arrays(num)
    dataset = _dataset(arrays)
    if batch_size is not None:
      dataset = dataset.batch(batch_size)
    spec = _spec(batched=batch_size is not None)
    examples = client_data.collect(dataset, spec)
    assert list(examples) == ['x', 'y']
    for key, array in arrays.items():
      assert examples[key].dtype == array.dtype
      np.testing.assert_array_equal(examples[key], array)

  def test_batches_of_changing_size_and_empty_ones(self):
    arrays = _arrays(6)
    parts = [slice(0, 4), slice(4, 4), slice(4, 6)]
    dataset = tf.data.Dataset.from_generator(
      lambda: ({k: v[part] for k, v in arrays.items()} for part in parts),
      output_signature=dict(_spec().element_spec),
    ).map(lambda batch: collections.OrderedDict(x=batch['x'], y=batch['y']))
    examples = client_data.collect(dataset, _spec())
    np.testing.assert_array_equal(examples['x'], arrays['x'])
    np.testing.assert_array_equal(examples['y'], arrays['y'])

  @pytest.mark.parametrize('batch_size', [None, 1, 4])
  @pytest.mark.parametrize('drop_remainder', [False, True])
  @pytest.mark.parametrize('dtype', [np.int64, np.uint8])
  @pytest.mark.parametrize('in_column', [False, True])
  @pytest.mark.parametrize('as_pair', [False, True])
  def test_what_tff_and_tfds_give(
    self, batch_size, drop_remainder, dtype, in_column, as_pair
  ):
    """Labels of any integer type, [n] or [n, 1], in a dict or a pair."""
    arrays = _arrays(4)
    x, y = arrays['x'], np.abs(arrays['y']).astype(dtype)
    elements = (x, y[:, np.newaxis] if in_column else y)
    if not as_pair:
      elements = collections.OrderedDict(zip('xy', elements, strict=True))
    dataset = _dataset(elements)
    if batch_size is not None:
      dataset = dataset.batch(batch_size, drop_remainder=drop_remainder)
    spec = client_data.ClientDataSpec(dataset.element_spec)
    assert spec.batched == (batch_size is not None)
    assert spec.input_spec == tf.TensorSpec([None, 2, 2, 1], tf.uint8)
    examples = client_data.collect(dataset, spec)
    assert list(examples) == ['x', 'y']
    np.testing.assert_array_equal(examples['x'], x)
    np.testing.assert_array_equal(examples['y'], y)
    assert examples['y'].dtype == tf.int32

  def test_in_a_graph_the_shape_of_an_example_is_known(self):
    @tf.function(autograph=False)
    def shapes():
      examples = client_data.collect(_dataset(_arrays(3)).batch(2), _spec())
      assert examples['x'].shape.as_list()[1:] == [2, 2, 1]
      return tf.shape(examples['x'])

    assert shapes().numpy().tolist() == [3, 2, 2, 1]


class TestContext:
  def _fingerprint(self, arrays, batch_size=None):
    dataset = _dataset(arrays)
    if batch_size is not None:
      dataset = dataset.batch(batch_size)
    _, context = client_data.read_context(
      dataset, _spec(batched=batch_size is not None)
    )
    assert int(context['group']) == -1
    assert context['client'].dtype == tf.int32
    return int(context['client'])

  def test_plain_data_are_known_by_their_content(self):
    marks = [self._fingerprint(_arrays(4, seed)) for seed in range(20)]
    assert len(set(marks)) == 20 and min(marks) >= 0
    for batch_size in (1, 3, 4):
      assert self._fingerprint(_arrays(4), batch_size) == marks[0]
    # Also where there are no examples.
    assert self._fingerprint(_arrays(0)) == self._fingerprint(_arrays(0), 3)

  def test_one_pixel_or_label_makes_another_client(self):
    reference = self._fingerprint(_arrays(4))
    for key in ('x', 'y'):
      arrays = _arrays(4)
      arrays[key][2] += 1
      assert self._fingerprint(arrays) != reference

  def test_true_labels_do_not_reach_training(self):
    spec = _spec(batched=False, true_labels=True)
    marks = []
    for truth in (1, 2):
      arrays = _arrays(4)
      arrays['true_y'] = np.full([4], truth, np.int32)
      _, context = client_data.read_context(_dataset(arrays), spec)
      marks.append(int(context['client']))
    assert marks[0] == marks[1]


class TestSets:
  @pytest.mark.parametrize(
    'arguments, message',
    [
      ({'priors_shape': (3, 2)}, r'priors_shape=\(3, 2\) needs in_context'),
      ({'num_slots': 2}, 'in_context=True'),
    ],
  )
  def test_sets_and_slots_need_a_context(self, arguments, message):
    elements = client_data.image_element_spec((2, 2, 1))
    with pytest.raises(TypeError, match=message):
      client_data.ClientDataSpec(elements, **arguments)

  @pytest.mark.parametrize('shape', [(), (3,), (0, 2), (3, 2.0), 3, (3, None)])
  def test_a_shape_is_two_numbers(self, shape):
    elements = client_data.image_element_spec((2, 2, 1))
    with pytest.raises(ValueError, match='priors_shape=.* must be a pair'):
      client_data.ClientDataSpec(elements, in_context=True, priors_shape=shape)

  def test_context_is_read(self):
    spec = client_data.ClientDataSpec(
      client_data.image_element_spec((2, 2, 1)),
      in_context=True,
      priors_shape=(3, 2),
    )
    assert str(spec.type['context'].element) == (
      '<client=int32,group=int32,class_priors=float32[3,2],'
      'set_shares=float32[3]>'
    )
    priors = np.array([[0.25, 0.75], [0.5, 0.5], [0, 0]], np.float32)
    sent = collections.OrderedDict(
      client=np.int32(4),
      group=np.int32(0),
      class_priors=priors,
      set_shares=np.array([0.4, 0.6, 0], np.float32),
    )
    data = collections.OrderedDict(
      examples=_dataset(_arrays(5)).batch(2),
      context=tf.data.Dataset.from_tensors(sent),
    )
    examples, context = client_data.read_context(data, spec)
    assert len(examples['y']) == 5
    assert list(context) == list(sent)
    for name, value in sent.items():
      np.testing.assert_array_equal(context[name], value)
