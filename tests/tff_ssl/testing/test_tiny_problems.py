"""The tiny problems hold scikit-learn's digits, each in one place only."""

import dataclasses

import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf
from comparing import assert_same

from tff_ssl import algorithms, shared_settings, testing
from tff_ssl.testing import tiny_problems

pytestmark = pytest.mark.usefixtures('tff_context')

SERVER = testing.TinyProblem(algorithms.PROCESSES['grouping'])
CLIENTS = testing.TinyProblem(algorithms.PROCESSES['fedavg'])
SETS = testing.TinyProblem(
  dataclasses.replace(
    algorithms.PROCESSES['fedavg'], needs=algorithms.Needs(labels_at='sets')
  )
)


def gather(dataset):
  batches = list(dataset.as_numpy_iterator())
  return {
    key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]
  }


def test_digits_are_all_of_scikit_learns():
  images, labels = tiny_problems.load_digits()
  assert images.shape == (1797, 8, 8, 1) and images.dtype == np.float32
  digits = sklearn.datasets.load_digits()
  np.testing.assert_array_equal(np.bincount(labels), np.bincount(digits.target))
  original = {
    (image / 16).astype(np.float32).tobytes(): label
    for image, label in zip(digits.images, digits.target, strict=True)
  }
  for image, label in zip(images, labels, strict=True):
    assert original[image.tobytes()] == label


def test_parts_do_not_overlap():
  images, _ = tiny_problems.load_digits()
  parts = [images[:400], SERVER.server_examples[0]]
  parts += [SERVER.examples(30, digits_of=index)['x'] for index in range(43)]
  together = np.concatenate(parts)
  np.testing.assert_array_equal(together, images[: len(together)])
  assert len(together) == 400 + 100 + 43 * 30


@pytest.mark.parametrize(
  ('problem', 'visible'), [(SERVER, False), (CLIENTS, True)]
)
def test_labels_are_where_the_spec_says(problem, visible):
  arrays = gather(problem.client(3, 17)['examples'])
  assert list(arrays) == ['x', 'y', 'true_y']
  assert len(arrays['x']) == 17
  expected = arrays['true_y'] if visible else np.full(17, -1)
  np.testing.assert_array_equal(arrays['y'], expected)
  assert set(arrays['true_y']) <= set(range(10))


def test_context_holds_client_and_group_beside_the_examples():
  for problem, group in ((SERVER, 1), (CLIENTS, 0)):
    (context,) = problem.client(3)['context'].as_numpy_iterator()
    assert context == {'client': 3, 'group': group}
  # A plain client is a sequence of the same examples.
  plain = gather(SERVER.client(2, 11, in_context=False))
  assert_same(plain, gather(SERVER.client(2, 11)['examples']))


def test_empty_client_fits_the_data_spec():
  spec = SERVER.data_spec()
  client = SERVER.client(0, 0)
  assert list(client['examples']) == []
  assert client['examples'].element_spec == spec.element_spec


def test_pixel_breaks_one_client_only():
  broken = gather(SERVER.client(0, 5, pixel=float('nan'))['examples'])
  assert np.isnan(broken['x'][0]).all() and np.isfinite(broken['x'][1:]).all()
  assert np.isfinite(gather(SERVER.client(0, 5)['examples'])['x']).all()


def test_server_data_are_labelled():
  arrays = gather(SERVER.tiny_arguments['server_data']())
  images, labels = SERVER.server_examples
  np.testing.assert_array_equal(arrays['x'], images)
  np.testing.assert_array_equal(arrays['y'], labels)
  assert set(labels) == set(range(10))
  assert 'server_data' not in CLIENTS.tiny_arguments


def test_accuracy_counts_right_answers():
  """A model whose logits are its last bias says 3 to every image."""
  model = tiny_problems.build_model()
  weights = tf.nest.map_structure(np.zeros_like, model.initial_weights(0))
  weights.trainable[-1][3] = 1.0
  _, labels = tiny_problems.load_digits()
  assert CLIENTS.accuracy(weights) == np.mean(labels[:400] == 3)


def test_strong_view_is_seeded_noise():
  views = tiny_problems.NoisyViews()
  images = tf.constant(tiny_problems.load_digits()[0][:50])
  one, same, other = (
    views.strong(images, tf.constant([0, seed])).numpy() for seed in (1, 1, 2)
  )
  np.testing.assert_array_equal(one, same)
  assert not np.array_equal(one, other)
  np.testing.assert_allclose(np.std(one - images), 0.2, atol=0.01)


def test_arguments_go_before_the_defaults():
  problem = testing.TinyProblem(
    dataclasses.replace(CLIENTS.spec, settings=(shared_settings.BATCH_SIZE,)),
    arguments={'batch_size': 3},
  )
  assert problem.tiny_arguments['batch_size'] == 3
  assert 'local_epochs' not in problem.tiny_arguments


def test_each_pass_brings_each_class_once():
  labels = np.array([0, 0, 1, 2, 2, 2])
  order = tiny_problems.in_passes(labels, 8)
  np.testing.assert_array_equal(labels[order], [0, 1, 2] * 2 + [0, 1])
  # The one example of class 1 comes again, those of class 0 after both.
  np.testing.assert_array_equal(order, [0, 2, 3, 1, 2, 4, 0, 2])


@pytest.mark.parametrize('size', [*tiny_problems.CLIENT_SIZES, 20])
@pytest.mark.parametrize('client', [0, 42])
def test_priors_have_full_column_rank(client, size):
  arrays = SETS.examples(size, digits_of=client)
  priors = SETS.constants(arrays)['class_priors']
  assert priors.shape == (12, 10)
  assert np.linalg.matrix_rank(priors) == 10


def test_priors_and_shares_are_counted():
  arrays = SETS.examples(30, digits_of=5)
  constants = SETS.constants(arrays)
  for m in range(tiny_problems.NUM_SETS):
    members = arrays['true_y'][arrays['y'] == m]
    assert constants['set_shares'][m] == pytest.approx(len(members) / 30)
    np.testing.assert_allclose(
      constants['class_priors'][m],
      np.bincount(members, minlength=10) / len(members),
      rtol=1e-6,
    )
  # Pure, mixed, and what is left of the second pass.
  sizes = np.bincount(arrays['y'])
  np.testing.assert_array_equal(sizes, [2] * 2 + [3] * 8 + [1] * 2)


def test_a_client_holds_its_constants_and_the_spec_knows_them():
  spec = SETS.data_spec()
  assert spec.priors_shape == (12, 10)
  for size in (0, 1, 30):
    client = SETS.client(4, size)
    context = next(iter(client['context'].as_numpy_iterator()))
    assert list(context) == list(spec.context_fields)
    for name, field in spec.context_fields.items():
      assert np.shape(context[name]) == tuple(field.shape)
    assert context['set_shares'].sum() == pytest.approx(float(size > 0))
    assert context['class_priors'].sum() == np.sum(context['set_shares'] > 0)
