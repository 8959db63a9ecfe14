"""What a data set must be, whoever read it."""

import dataclasses

import numpy as np
import pytest

from datasets.sources import catalogue
from datasets.sources.source import Source, SourceSets, Split

LABELS = np.array([0, 1, 2], np.int32)
PIXELS = np.zeros((3, 4, 4, 1), np.uint8)
PRIORS = np.array([[[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]])


def made(examples=PIXELS, **changes):
  split = Split(examples, LABELS)
  source = Source('tiny', '1', '', split, split, 3, (0,), (1,), 0, False)
  return dataclasses.replace(source, **changes)


@pytest.mark.parametrize(
  'labels, ids, error, message',
  [
    ([0, 1, 5], None, ValueError, 'from 0 to 5.*outside'),
    ([], None, ValueError, 'no training examples'),
    ([0, 1], ['a', 7], TypeError, 'client_ids holds 7'),
    ([0, 1], ['a'], ValueError, r'client_ids is of the shape \[1\] for 2'),
  ],
)
def test_bad_sources(labels, ids, error, message):
  ids = ids and np.array(ids, object)
  with pytest.raises(error, match=message):
    made(train=Split(PIXELS[: len(labels)], np.array(labels, int), ids))


@pytest.mark.parametrize('split', ['train', 'server', 'validation', 'test'])
@pytest.mark.parametrize(
  'labels, message',
  [
    ([0.0, 1.0], r'float64 \[2\]: give a vector of integers'),
    ([np.nan, 1.0], r'float64 \[2\]: give a vector of integers'),
    ([[1, 0], [0, 1]], r'int64 \[2, 2\]: give a vector'),
    (np.array([0, 1], np.uint64), r'uint64 \[2\]: give a vector'),
    ([False, True], 'bool'),
    (['0', '1'], 'give a vector of integers'),
    ([0, 3], 'from 0 to 3, outside'),
    ([-2, 1], 'from -2 to 1, outside'),
  ],
)
def test_labels_of_a_users_own_source(split, labels, message):
  with pytest.raises(ValueError, match=f'labels of {split} .*{message}'):
    made(**{split: Split(PIXELS[:2], np.array(labels))})


@pytest.mark.parametrize('split', ['server', 'validation', 'test'])
@pytest.mark.parametrize(
  'examples, labels, message',
  [
    (PIXELS, [0, 1, -1], 'examples of .* without a label'),
    (PIXELS, [0, 1], '3 examples and 2 labels'),
    (PIXELS[:0], [], 'no .* examples'),
    (PIXELS / 255, [0, 1, 2], 'examples is float64.*give images'),
    (PIXELS[..., 0], [0, 1, 2], r'uint8\[3, 4, 4\]: give images'),
    (PIXELS[:, :0], [0, 1, 2], r'uint8\[3, 0, 4, 1\]: give images'),
    (np.zeros((3, 5), np.float32), [0, 1, 2], 'give one type'),
    (PIXELS[:, 1:], [0, 1, 2], r'examples \(3, 4, 1\) .*give one shape'),
  ],
)
def test_splits_beside_train(split, examples, labels, message):
  with pytest.raises(ValueError, match=message):
    made(**{split: Split(examples, np.array(labels, int))})


@pytest.mark.parametrize('wrong', [np.nan, np.inf])
def test_features_are_finite(wrong):
  features = np.ones((3, 2), np.float32)
  assert made(features).form == 'vectors'
  features[1, 1] = wrong
  with pytest.raises(ValueError, match='train.examples holds NaN or an infin'):
    made(features)


@pytest.mark.parametrize('num_tokens, word', [(9, 9), (9, -1), (None, 0)])
def test_words_have_numbers_below_that_of_all(num_tokens, word):
  words = np.full((3, 2), word, np.int32)
  with pytest.raises(ValueError, match='numbers of words outside'):
    made(words, num_tokens=num_tokens)
  if num_tokens:
    right = Split(words * 0, LABELS)
    source = made(train=right, test=right, num_tokens=num_tokens)
    assert source.form == 'tokens'


def test_what_is_no_array_or_no_source(monkeypatch, refusal):
  with pytest.raises(TypeError, match='labels of Split is of the type list'):
    Split(PIXELS, LABELS.tolist())
  with pytest.raises(ValueError, match='3 classes and 2 names'):
    made(names=('a', 'b'))
  lost = dataclasses.replace(
    catalogue.SOURCES['digits'], builder=lambda data_dir, cache_dir: {}
  )
  monkeypatch.setitem(catalogue.SOURCES._choices, 'digits', lost)
  with refusal(
    "dataset='digits'", 'returned {}', 'class Sour', error=TypeError
  ):
    catalogue.load('digits', data_dir=None, cache_dir='unused')


@pytest.mark.parametrize(
  'change',
  [
    {'client_names': ('a', 'b')},
    {'client_index': np.array([0, 0])},
    {'client_index': np.array([0, 0, 1])},
    {'set_index': np.array([0, 1, 3])},
    {'set_index': np.array([0, 1, -1])},
    {'set_index': np.array([0.0, 1.0, 2.0])},
    {'class_priors': PRIORS[0]},
    {'class_priors': PRIORS[..., :2]},
    {'class_priors': PRIORS.astype(str)},
  ],
)
def test_sets_fit_their_examples(change):
  given = {
    'client_names': ('a',),
    'client_index': np.zeros(3, int),
    'set_index': np.arange(3),
    'class_priors': PRIORS,
  }
  assert made(sets=SourceSets(**given)).class_names == ('0', '1', '2')
  with pytest.raises(ValueError, match='sets that do not fit .* class_priors'):
    made(sets=SourceSets(**{**given, **change}))
