"""Views of texts: what is dropped, what moves, and what stays."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import augmentation

_LENGTHS = np.array([0, 1, 5, 30, 40])
_TOKENS = np.where(
  np.arange(40) < _LENGTHS[:, np.newaxis], 2 + np.arange(200).reshape(5, 40), 0
).astype(np.int32)
_SEED = tf.constant([3, 4])


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
