"""From settings to model and views."""

import itertools
import types

import numpy as np
import pytest
import tensorflow as tf

from datasets.sources import catalogue
from experiments.config import settings
from experiments.parts import views
from tff_ssl import models

_FORM = (8, 8, 1), 10


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  source = catalogue.load(
    'digits', data_dir=None, cache_dir=str(tmp_path_factory.mktemp('cache'))
  )
  return types.SimpleNamespace(source=source)


def make(**given):
  return settings.make(
    {'process': 'grouping', 'dataset': 'digits', 'model': 'dense', **given}
  )


def build_views(made, source):
  return views.build(made, made.chosen['process'], source)


@pytest.mark.parametrize('norm, statistics', [('group', 0), ('batch', 2)])
def test_norm_reaches_the_model(norm, statistics):
  model = models.build('dense', *_FORM, make(norm=norm).norm)
  weights = model.initial_weights(0)
  assert len(weights.trainable) == 6
  assert len(weights.non_trainable) == statistics


@pytest.mark.parametrize('flip, mirrored', [(None, False), (True, True)])
def test_views_are_those_of_the_source_unless_told(data, flip, mirrored):
  given = {} if flip is None else {'augment_flip': flip}
  views = build_views(make(**given), data.source)
  assert views.flip is mirrored
  assert views.fill == data.source.background
  pixels = data.source.train.examples[:5]
  # The digits' own mean and deviation, from numpy, to four digits.
  scaled = data.source.train.examples / 255
  expected = (pixels / 255 - scaled.mean()) / scaled.std()
  np.testing.assert_allclose(views.plain(pixels), expected, atol=1e-3)


def test_images_stay_in_place_where_told(data):
  images = data.source.train.examples[:5]
  for given, moved in (
    ({}, True),
    ({'augment_crop': 0}, False),
    ({'augment_crop': 2}, True),
    ({'augment_crop': 0, 'augment_rotation': 0.0}, False),
    ({'augment_crop': 0, 'augment_rotation': 20.0}, True),
  ):
    views = build_views(make(**given), data.source)
    weak = views.weak(images, tf.constant([1, 2]))
    assert np.any(weak != views.plain(images)) == moved


def test_a_crop_as_large_as_the_images_is_refused(data):
  with pytest.raises(ValueError, match='--augment_crop=8 must be below 8'):
    build_views(make(augment_crop=8), data.source)


def test_the_strong_view_may_be_another_weak_one(data):
  """Without mirror images, shifts by at most a pixel are all there is."""
  made = make(augmentation='weak', augment_flip=False)
  views = build_views(made, data.source)
  images = data.source.test.examples[:50]
  strong = views.strong(images, tf.constant([1, 2]))
  by_one = [(0, 0), (1, 1), (1, 1), (0, 0)]
  padded = np.pad(views.plain(images), by_one, mode='reflect')
  shifts = [
    padded[:, top : top + 8, left : left + 8]
    for top, left in itertools.product(range(3), repeat=2)
  ]
  is_shift = [(np.abs(strong - s) < 1e-5).all(axis=(1, 2, 3)) for s in shifts]
  assert np.any(is_shift, axis=0).all()
  assert sum(is_one.any() for is_one in is_shift) > 1
