"""Views of vectors and texts, against numbers worked in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import augmentation

_MEAN, _STDDEV = (1.0, -2.0, 0.0), (2.0, 0.5, 1.0)
_SEED = tf.constant([3, 4])
_RNG = np.random.default_rng(0)
_X = _RNG.normal(_MEAN, _STDDEV, [4000, 3]).astype(np.float32)
_Z = (_X - np.float32(_MEAN)) / np.float32(_STDDEV)


def _views(**changes):
  return augmentation.VectorViews(_MEAN, _STDDEV, **changes)


def test_weak_adds_noise_of_the_given_size():
  noise = _views(noise=0.2).weak(_X, _SEED).numpy() - _Z
  # Four standard errors of mean and standard deviation of 12,000 draws.
  assert abs(noise.mean()) < 4 * 0.2 / np.sqrt(12_000)
  assert abs(noise.std() - 0.2) < 4 * 0.2 / np.sqrt(24_000)


def test_without_noise_and_corruption_all_views_standardise_alone():
  np.testing.assert_allclose(_views().plain(_X), _Z, rtol=1e-6, atol=1e-6)
  views = _views(noise=0.0, corruption=0.0)
  for view in (views.weak, views.strong):
    np.testing.assert_array_equal(view(_X, _SEED), views.plain(_X))


def test_strong_takes_features_of_one_other_example():
  strong = _views(noise=0.0, corruption=0.3).strong(_X, _SEED).numpy()
  replaced = strong != _Z
  assert abs(replaced.mean() - 0.3) < 4 * np.sqrt(0.21 / 12_000)
  # What is replaced comes from the same feature, and in one example from one
  # other example.
  for row in np.flatnonzero(replaced.sum(axis=1) == 3)[:20]:
    partner = np.flatnonzero((strong[row] == _Z).all(axis=1))
    assert len(partner) == 1 and partner[0] != row


def test_each_example_is_the_partner_of_one():
  strong = _views(noise=0.0, corruption=1.0).strong(_X, _SEED).numpy()
  order = np.lexsort(_Z.T)
  np.testing.assert_array_equal(strong[np.lexsort(strong.T)], _Z[order])
  assert (strong != _Z).any()


def test_features_of_one_column_are_replaced_together():
  views = _views(noise=0.0, corruption=0.5, columns=(0, 1, 1))
  replaced = views.strong(_X, _SEED).numpy() != _Z
  np.testing.assert_array_equal(replaced[:, 1], replaced[:, 2])
  assert (replaced[:, 0] != replaced[:, 1]).any()


def test_draws_hang_on_the_seed_and_differ_between_views():
  views = _views()
  for view in (views.weak, views.strong):
    np.testing.assert_array_equal(view(_X, _SEED), view(_X, _SEED))
    assert (view(_X, _SEED).numpy() != view(_X, _SEED + 1).numpy()).any()
  weak = _views(corruption=0.0).weak(_X, _SEED).numpy() - _Z
  strong = _views(corruption=0.0).strong(_X, _SEED).numpy() - _Z
  assert abs(np.corrcoef(weak.ravel(), strong.ravel())[0, 1]) < 0.04


@pytest.mark.parametrize('count', [0, 1, 5])
def test_a_batch_of_any_size_in_a_graph(count):
  spec = tf.TensorSpec([None, 3], tf.float32)

  @tf.function(input_signature=[spec])
  def both(x):
    return _views().weak(x, _SEED), _views().strong(x, _SEED)

  for view in both(_X[:count]):
    assert view.shape == (count, 3)


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'mean': ()}, 'one number for each feature, got 0 and 3'),
    ({'mean': (1.0, float('nan'), 0.0)}, 'mean must be finite, got nan'),
    ({'stddev': (1.0, 0.0, 1.0)}, 'stddev must be finite and above 0, got 0.0'),
    ({'noise': -1.0}, 'noise must be .* is -1.0'),
    ({'corruption': 1.5}, 'corruption must be .* is 1.5'),
    ({'columns': (0, 1)}, 'columns has 2 numbers for 3 features'),
    ({'columns': (0, 1, -1)}, 'from 0'),
  ],
)
def test_bad_arguments_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    augmentation.VectorViews(**{'mean': _MEAN, 'stddev': _STDDEV} | changes)


def test_other_examples_are_refused():
  with pytest.raises(ValueError, match='have 2 features, but mean'):
    _views().plain(_X[:, :2])
  with pytest.raises(TypeError, match='examples are float64'):
    _views().plain(_X.astype(np.float64))
  with pytest.raises(TypeError, match='give float32'):
    _views().plain(_X[0])


_LENGTHS = np.array([0, 1, 5, 30, 40])
_TOKENS = np.where(
  np.arange(40) < _LENGTHS[:, np.newaxis], 2 + np.arange(200).reshape(5, 40), 0
).astype(np.int32)


def test_words_are_dropped_at_the_rate_asked_for():
  tokens = np.full([500, 100], 7, np.int32)
  views = augmentation.TokenViews(0.1, 0.4, shuffle=0)
  for view, rate in ((views.weak, 0.1), (views.strong, 0.4)):
    seen = view(tokens, _SEED).numpy()
    assert set(np.unique(seen)) == {0, 7}
    # Four standard deviations of the share of 50,000 draws.
    bound = 4 * (rate * (1 - rate) / seen.size) ** 0.5
    assert np.mean(seen == 0) == pytest.approx(rate, abs=bound)


def test_a_plain_view_changes_nothing_and_a_weak_one_moves_nothing():
  views = augmentation.TokenViews(weak_dropout=0.5)
  np.testing.assert_array_equal(views.plain(_TOKENS), _TOKENS)
  seen = views.weak(_TOKENS, _SEED).numpy()
  assert ((seen == 0) | (seen == _TOKENS)).all() and (seen != _TOKENS).any()


@pytest.mark.parametrize('shuffle', [0, 1, 3])
def test_no_word_moves_further_than_asked(shuffle):
  views = augmentation.TokenViews(0.0, 0.0, shuffle)
  seen = views.strong(_TOKENS, _SEED).numpy()
  moved = 0
  for before, after, length in zip(_TOKENS, seen, _LENGTHS, strict=True):
    # All words are there, and the end of the text is where it was.
    assert sorted(before[:length]) == sorted(after[:length])
    assert not after[length:].any()
    places = np.argsort(after[:length]) - np.arange(length)
    assert np.abs(places).max(initial=0) <= shuffle
    moved += np.count_nonzero(places)
  assert (moved > 0) == (shuffle > 0)


def test_draws_depend_on_the_seed_alone_and_differ_between_views():
  views = augmentation.TokenViews(0.5, 0.5, 0)
  for view in (views.weak, views.strong):
    first = view(_TOKENS, _SEED).numpy()
    np.testing.assert_array_equal(first, view(_TOKENS, _SEED))
    compiled = tf.function(
      view, input_signature=[tf.TensorSpec([None, 40], tf.int32), _spec()]
    )
    np.testing.assert_array_equal(first, compiled(_TOKENS, _SEED))
    assert (first != view(_TOKENS, _SEED + 1).numpy()).any()
  assert (
    (views.weak(_TOKENS, _SEED) != views.strong(_TOKENS, _SEED)).numpy().any()
  )


def _spec():
  return tf.TensorSpec([2], tf.int32)


@pytest.mark.parametrize(
  'given, message',
  [
    ({'weak_dropout': 1.0}, 'weak_dropout .* got 1.0'),
    ({'strong_dropout': -0.1}, 'strong_dropout .* got -0.1'),
    ({'shuffle': -1}, 'shuffle'),
  ],
)
def test_refused_settings(given, message):
  with pytest.raises(ValueError, match=message):
    augmentation.TokenViews(**given)


@pytest.mark.parametrize(
  'examples', [np.zeros([2, 3], np.float32), np.zeros([2], np.int32)]
)
def test_refused_examples(examples):
  with pytest.raises(TypeError, match='give int32'):
    augmentation.TokenViews().plain(examples)


def test_plain_views_leave_floats_and_scale_bytes():
  floats = np.array([[0.0, -3.5], [300.0, 1.0]], np.float32)
  plain_views = augmentation.PlainViews()
  np.testing.assert_array_equal(plain_views.plain(floats), floats)
  np.testing.assert_array_equal(plain_views.weak(floats, _SEED), floats)
  np.testing.assert_array_equal(plain_views.strong(floats, _SEED), floats)
  scaled = augmentation.PlainViews(mean=0.5, stddev=0.25).strong(
    np.array([[0, 255]], np.uint8), _SEED
  )
  np.testing.assert_allclose(scaled, [[-2.0, 2.0]])
  assert scaled.dtype == tf.float32


def test_plain_views_refuse_other_input():
  with pytest.raises(TypeError, match='float32 or uint8, got int64'):
    augmentation.PlainViews().plain(np.zeros((2, 3), np.int64))
  with pytest.raises(ValueError, match='stddev must be.*got -1'):
    augmentation.PlainViews(stddev=-1.0)
