"""SSPT hands its encoder over exactly; SSJO and FSL meet where they must."""

import collections

import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import are_equal as equal
from comparing import assert_close

from tff_ssl import optimizers
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional, split
from tff_ssl.objectives import proxy_tasks

_SHAPE, _FEATURES, _CLASSES = (4, 4, 1), 6, 3
_IN_SLOTS = federations.data_spec(_SHAPE, in_context=True, num_slots=1)
_NAMES = ('fsl', 'sspt', 'ssjo')


@pytest.fixture(scope='module')
def model():
  return split.join(
    functional.from_keras(dense.dense_encoder(_SHAPE, features=_FEATURES)),
    functional.from_keras(dense.linear_head(_FEATURES, _CLASSES)),
  )


@pytest.fixture(scope='module')
def build(model, tff_context):
  return federations.builder(
    None,
    model,
    data_spec=federations.data_spec(_SHAPE),
    client_optimizer=tff.learning.optimizers.build_sgdm(0.5, 0.9),
    batch_size=4,
    local_epochs=2,
    seed=3,
  )


def client(seed, labelled, size=8):
  """A client of which the first `labelled` examples have labels."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, _CLASSES, size).astype(np.int32)
  return collections.OrderedDict(
    x=rng.random((size, *_SHAPE)).astype(np.float32),
    y=np.where(np.arange(size) < labelled, labels, -1).astype(np.int32),
  )


def dataset(arrays):
  return tf.data.Dataset.from_tensors(arrays)


CLIENTS = [client(0, 2), client(1, 5), client(2, 0)]


def train(process, rounds, clients=CLIENTS):
  """Returns the states, the first one among them, and the metrics."""
  states, metrics = [process.initialize()], []
  for _ in range(rounds):
    output = process.next(states[-1], [dataset(c) for c in clients])
    states.append(output.state)
    metrics.append(output.metrics['client_work']['train'])
  return states, metrics


def parts_of(process, model, *states):
  """Returns the encoders of states and their classifiers, as flat arrays."""
  weights = [process.get_model_weights(state) for state in states]
  return [
    [model.take(each, [part]).trainable for each in weights] for part in (0, 1)
  ]


class TestSSPT:
  @pytest.mark.dear
  def test_the_second_stage_starts_from_the_pretrained_encoder(
    self, build, model
  ):
    process = build('sspt', pretraining_rounds=2)
    states, metrics = train(process, 3)
    encoders, classifiers = parts_of(process, model, *states)
    # The first stage moves the encoder and leaves the classifier as it was.
    assert not any(equal(encoders[0], encoders[1]))
    assert all(equal(classifiers[0], classifiers[2]))
    # Supervised FedAvg from the pretrained weights gives the second stage.
    supervised = build('fsl', epoch_batches='continuous')
    start = supervised.set_model_weights(
      supervised.initialize(), process.get_model_weights(states[2])
    )
    assert all(equal(parts_of(supervised, model, start)[0][0], encoders[2]))
    # Its round counts from 0, that of the process does not.
    start = start._replace(distributor=states[2].distributor)
    after = supervised.next(start, [dataset(c) for c in CLIENTS]).state
    found = supervised.get_model_weights(after)
    assert all(equal(found, process.get_model_weights(states[3])))
    assert [np.isnan(m['proxy_loss']) for m in metrics] == [False] * 2 + [True]
    assert [np.isnan(m['accuracy']) for m in metrics] == [True] * 2 + [False]
    assert metrics[0]['loss'] == metrics[0]['proxy_loss']

  @pytest.mark.dear
  def test_the_first_stage_is_an_autoencoder_by_itself(self, build, model):
    """Against TFF's FedAvg of the autoencoder as a Keras model."""
    process = build(
      'sspt',
      pretraining_rounds=5,
      client_optimizer=tff.learning.optimizers.build_sgdm(0.5),
      batch_size=16,
      local_epochs=1,
    )
    state = process.initialize()
    joint = proxy_tasks.add_head(
      model, proxy_tasks.Reconstruction(), views.PlainViews()
    )
    start = joint.take(state.global_model_weights, (0, 2)).trainable

    def keras_model():
      return tf.keras.Sequential(
        [
          tf.keras.layers.Flatten(input_shape=_SHAPE),
          tf.keras.layers.Dense(_FEATURES, 'relu'),
          tf.keras.layers.Dense(16),
          tf.keras.layers.Reshape(_SHAPE),
        ]
      )

    # Both clients have as many examples: the mean of their losses' gradients.
    clients = CLIENTS[:2]
    keras = keras_model()
    updates = []
    for arrays in clients:
      keras.set_weights(start)
      with tf.GradientTape() as tape:
        loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)(
          arrays['x'], keras(arrays['x'])
        )
      gradients = tape.gradient(loss, keras.trainable_weights)
      updates.append([0.5 * gradient.numpy() for gradient in gradients])
    expected = [
      w - (a + b) / 2 for w, a, b in zip(start, *updates, strict=True)
    ]
    after = process.next(state, [dataset(c) for c in clients]).state
    actual = joint.take(after.global_model_weights, (0, 2)).trainable
    assert_close(actual, expected, atol=1e-6)

  @pytest.mark.parts
  def test_a_frozen_encoder_stays_bit_for_bit(self, build, model):
    # A server with momentum would carry the first stage's into the second.
    process = build(
      'sspt',
      pretraining_rounds=1,
      encoder_training='frozen',
      server_optimizer=tff.learning.optimizers.build_sgdm(1.0, 0.9),
      client_optimizer=tff.learning.optimizers.build_sgdm(0.5, 0.9),
    )
    states, metrics = train(process, 3)
    encoders, classifiers = parts_of(process, model, *states)
    assert not any(equal(encoders[0], encoders[1]))
    assert all(equal(encoders[1], encoders[3]))
    assert not any(equal(classifiers[1], classifiers[2]))
    assert metrics[2]['loss'] < metrics[1]['loss']

  @pytest.mark.parts
  def test_an_encoder_of_another_process_is_carried_over(self, build, model):
    pretraining = build('ssjo')
    trained = pretraining.get_model_weights(train(pretraining, 1)[0][-1])
    process = build('sspt', pretraining_rounds=0)
    state = process.initialize()
    weights = model.with_encoder_weights(
      process.get_model_weights(state), model.encoder_weights(trained)
    )
    state = process.set_model_weights(state, weights)
    (encoder, _), classifiers = parts_of(
      process, model, state, process.initialize()
    )
    assert all(equal(encoder, model.encoder_weights(trained).trainable))
    assert all(equal(*classifiers))


class TestSSJO:
  @pytest.mark.parts
  def test_all_methods_start_from_the_same_classifier(self, build):
    first, *others = (
      process.get_model_weights(process.initialize())
      for process in map(build, _NAMES)
    )
    assert all(all(equal(first, other)) for other in others)

  def test_unlabelled_clients_train_encoder_and_decoder_alone(
    self, build, model
  ):
    process = build('ssjo')
    states, metrics = train(process, 1, [client(0, 0), client(1, 0)])
    encoders, classifiers = parts_of(process, model, *states)
    assert not any(equal(*encoders))
    assert all(equal(*classifiers))
    assert np.isnan(metrics[0]['loss']) and metrics[0]['proxy_loss'] > 0

  @pytest.mark.dear
  def test_without_weight_it_is_supervised_training(self, build):
    """Labelled examples divide the minibatch, so that their order is idle."""
    clients = [client(0, 2), client(1, 4)]
    joint = build('ssjo', ssjo_loss_weight=0.0, labelled_batch_probability=1.0)
    supervised = build('fsl', match_local_steps=True)
    results = [
      process.get_model_weights(train(process, 2, clients)[0][-1])
      for process in (joint, supervised)
    ]
    assert_close(*results, atol=2e-6)

  def test_the_decoder_outlives_a_new_classifier(self, build, model):
    process = build('ssjo')
    state = train(process, 1)[0][-1]
    fresh = process.get_model_weights(process.initialize())
    replaced = process.set_model_weights(state, fresh)
    assert all(equal(process.get_model_weights(replaced), fresh))
    kept = len(tf.nest.flatten(fresh))
    decoders = (
      each.global_model_weights.trainable[kept:] for each in (replaced, state)
    )
    assert all(equal(*decoders))


def in_slot(arrays, slot):
  """Returns client data with a context."""
  more = dict.fromkeys(('slot', 'start_group'), np.int32(slot))
  return federations.in_context(arrays, slot, slot, **more)


@pytest.mark.parts
@pytest.mark.parametrize('name', _NAMES)
def test_momentum_of_a_slot_goes_on_as_in_central_training(build, name):
  """Two rounds of one epoch are one round of two, for one client."""
  arrays = client(5, 8)
  # One minibatch of all examples: the order does not matter.
  changes = {'data_spec': _IN_SLOTS, 'batch_size': 8}
  if name == 'ssjo':
    changes['labelled_batch_probability'] = 1.0
  slots = {'client_momentum': 'slot'}
  stages = 2 if name == 'sspt' else 1

  def run(rounds, epochs, **arguments):
    if name == 'sspt':
      arguments['pretraining_rounds'] = rounds
    process = build(name, **changes, local_epochs=epochs, **arguments)
    return federations.trained(process, [in_slot(arrays, 0)], stages * rounds)

  at_once, kept, reset = run(1, 2), run(2, 1, **slots), run(2, 1)
  for a, b, c in zip(at_once, kept, reset, strict=True):
    np.testing.assert_allclose(a, b, atol=2e-6)
    assert not np.allclose(b, c, atol=1e-4)


@pytest.mark.parts
@pytest.mark.parametrize(
  ('name', 'settings'),
  [
    ('fsl', {}),
    ('sspt', {'pretraining_rounds': 0}),
    ('ssjo', {'labelled_batch_probability': 1.0}),
  ],
)
def test_a_redrawn_mask_of_one_pass_is_a_fixed_one(build, name, settings):
  settings = {**settings, 'local_epochs': 1}
  redrawn = build(name, redrawn_mask_ratio=0.75, **settings)
  fixed = build(name, **settings)
  whole = client(0, 4, size=4)

  def trained(process, arrays):
    (_, state), _ = train(process, 1, [arrays])
    return process.get_model_weights(state)

  after = trained(redrawn, whole)
  # One label of four is shown: it must be one of these.
  alike = []
  for shown in range(4):
    y = np.where(np.arange(4) == shown, whole['y'], -1).astype(np.int32)
    alone = collections.OrderedDict(x=whole['x'], y=y)
    alike.append(all(equal(after, trained(fixed, alone))))
  assert sum(alike) == 1


def test_slots_need_data_that_name_them(build):
  with pytest.raises(TypeError, match="client_momentum='slot' needs client"):
    build('ssjo', client_momentum='slot')


@pytest.mark.parts
def test_decay_over_rounds(build):
  """With the rate at zero from round 2 on, nothing moves any more."""
  for name in ('fsl', 'ssjo'):
    process = build(name, schedule=optimizers.exponential(1e-30))
    states, _ = train(process, 2)
    weights = [process.get_model_weights(state) for state in states]
    assert not all(equal(weights[0], weights[1]))
    assert all(equal(weights[1], weights[2]))


@pytest.mark.parts
def test_momentum_carries_on_only_where_it_coasts(build):
  """With a label in every step there is no difference."""

  def weights(labelled, idle_momentum):
    """Before and after one round of one client, in steps of 4 of 8 examples."""
    process = build(
      'ssjo',
      idle_momentum=idle_momentum,
      ssjo_loss_weight=0.0,
      local_epochs=5,
    )
    states, _ = train(process, 1, [client(0, labelled)])
    structures = (tf.nest.flatten(s.global_model_weights) for s in states)
    return [np.concatenate(list(map(np.ravel, each))) for each in structures]

  (_, coasting), (_, resting) = (weights(8, how) for how in ('coasts', 'rests'))
  np.testing.assert_allclose(coasting, resting, rtol=1e-6)
  coasting, resting = (
    np.abs(np.subtract(*weights(2, how))).sum() for how in ('coasts', 'rests')
  )
  assert 0 < resting < 0.7 * coasting
