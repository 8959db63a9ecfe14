"""What is said of data that nobody has looked at."""

import dataclasses

import numpy as np
import pytest

from datasets.records import source_report
from datasets.sources.source import Source, Split

RNG = np.random.default_rng(2)
IMAGES = RNG.integers(0, 256, [60, 4, 4, 1], np.uint8)
LABELS = np.arange(60, dtype=np.int32) % 3
OWNERS = np.array([f'client {i % 5}' for i in range(60)], object)
GOOD = Source(
  name='made',
  version='1',
  title='Made data',
  train=Split(IMAGES[:45], LABELS[:45], OWNERS[:45]),
  test=Split(IMAGES[45:], LABELS[45:]),
  num_classes=3,
  mean=(0.5,),
  stddev=(0.3,),
  background=0,
  mirrorable=False,
  names=('cat', 'cow', 'dog'),
)


def _with(images=None, labels=None, owners=None):
  train = GOOD.train
  return dataclasses.replace(
    GOOD,
    train=Split(
      train.examples if images is None else images,
      train.labels if labels is None else labels,
      train.client_ids if owners is None else owners,
    ),
  )


def _changed(array, **entries):
  array = array.copy()
  for index, value in entries.values():
    array[index] = value
  return array


def test_facts():
  assert source_report.facts(GOOD) == [
    'Made data.',
    'Examples are images of 4 x 4 x 1.',
    'train has 45 examples; labels: cat: 15, cow: 15, dog: 15.',
    'test has 15 examples; labels: cat: 5, cow: 5, dog: 5.',
    '5 clients own 9/9/9 examples (min/median/max), 9/9/9 of them labelled.',
  ]
  assert source_report.oddities(GOOD) == []


def test_unlabelled_examples_are_counted():
  labels = _changed(GOOD.train.labels, few=(slice(9), -1))
  line = source_report.facts(_with(labels=labels))[2]
  assert line.endswith('cat: 12, cow: 12, dog: 12; 9 without a label.')


@pytest.mark.parametrize(
  'changes, said',
  [
    (
      {'images': _changed(IMAGES[:45], same=(slice(2), IMAGES[50:52]))},
      '2 of the 15 test examples are in train',
    ),
    (
      {'images': _changed(IMAGES[:45], same=(3, IMAGES[6]))},
      '1 training examples occur more than once',
    ),
    (
      {'images': _changed(IMAGES[:45], same=(4, IMAGES[6]))},
      '1 training examples occur with different labels',
    ),
    (
      {'images': _changed(IMAGES[:45], flat=(slice(3), 7))},
      '3 training images have one single value',
    ),
    (
      {'labels': _changed(LABELS[:45], few=(slice(36), -1))},
      'Fewer than 5 training labels: cat (3), cow (3), dog (3)',
    ),
    (
      {'labels': _changed(LABELS[:45], skew=(slice(3, 45), 1))},
      'cow is 43 times as frequent as cat',
    ),
    (
      {'owners': np.array(['a'] * 30 + ['b'] * 15, object)},
      "'a' owns 30 of 45",
    ),
    ({'owners': np.array(['a'] * 45, object)}, 'belong to one client'),
    (
      {'owners': np.array([f'{i}' for i in LABELS[:45]], object)},
      '3 of 3 clients have labels of one class alone',
    ),
  ],
)
def test_oddities(changes, said):
  assert said in ' '.join(source_report.oddities(_with(**changes)))


def test_few_labels_of_the_server_beside_those_of_clients():
  server = Split(IMAGES[50:53], LABELS[50:53])
  said = source_report.oddities(dataclasses.replace(GOOD, server=server))
  assert 'Fewer than 5 server labels: cat (1), cow (1), dog (1)' in said[0]
  # Where clients have none, they are the labels of training.
  alone = dataclasses.replace(_with(labels=np.full(45, -1)), server=server)
  said = source_report.oddities(alone)
  assert [line[:25] for line in said if 'Fewer' in line] == [
    'Fewer than 5 training lab'
  ]


def test_a_class_that_test_lacks():
  test = Split(IMAGES[45:], np.minimum(LABELS[45:], 1))
  (said,) = source_report.oddities(dataclasses.replace(GOOD, test=test))
  assert said.startswith('test has no example of dog')


@pytest.mark.parametrize('grey', ['train', 'test'])
def test_grey_images_beside_coloured_ones(grey):
  colours = RNG.integers(0, 256, [60, 4, 4, 3], np.uint8)
  parts = {'train': slice(45), 'test': slice(45, 60)}
  splits = {k: Split(colours[own], LABELS[own]) for k, own in parts.items()}
  coloured = dataclasses.replace(GOOD, **splits)
  assert source_report.oddities(coloured) == []
  splits[grey] = Split(
    np.repeat(colours[parts[grey], ..., :1], 3, axis=3), LABELS[parts[grey]]
  )
  said = source_report.oddities(dataclasses.replace(GOOD, **splits))
  assert any('of the test images are grey' in line for line in said)


def test_pixels_of_a_narrow_range():
  images = 100 + IMAGES // 16
  said = source_report.oddities(
    dataclasses.replace(
      GOOD,
      train=Split(images[:45], LABELS[:45]),
      test=Split(images[45:], LABELS[45:]),
    )
  )
  assert said and 'from 100 to 115 alone' in said[0]


def test_features_that_never_change():
  vectors = RNG.normal(size=[60, 4]).astype(np.float32)
  vectors[:, 2] = 5
  source = dataclasses.replace(
    GOOD,
    train=Split(vectors[:45], LABELS[:45]),
    test=Split(vectors[45:], LABELS[45:]),
  )
  assert source_report.facts(source)[1] == 'Examples are vectors of 4 features.'
  assert 'Nobody owns examples' in source_report.facts(source)[-1]
  (odd,) = source_report.oddities(source)
  assert odd.startswith('1 of 4 features have one single value')


def test_labels_of_the_server_count():
  bare = dataclasses.replace(GOOD.train, labels=np.full(45, -1, np.int32))
  given = dataclasses.replace(
    GOOD, train=bare, server=Split(255 - IMAGES[:15], LABELS[:15])
  )
  assert source_report.oddities(GOOD) == []
  assert not any('labels' in line for line in source_report.oddities(given))
