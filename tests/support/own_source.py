"""A data set of a user's own."""

import numpy as np

from datasets.sources.source import Source, SourceSpec, Split
from tff_ssl.common.setting import Setting


def stripes(count):
  labels = np.arange(count, dtype=np.int32) % 2
  images = np.zeros((count, 4, 4, 1), np.uint8)
  images[labels == 0, :2] = 255
  images[labels == 1, 2:] = 255
  return Split(images, labels)


def load(data_dir, cache_dir, size=60):
  return Source(
    name='stripes',
    version=f'stripes-{size}',
    title=f'{size} stripes',
    train=stripes(size),
    test=stripes(10),
    num_classes=2,
    mean=(0.5,),
    stddev=(0.5,),
    background=0,
    mirrorable=True,
  )


def check_files(data_dir):
  if data_dir == '/nowhere':
    raise ValueError('data_dir=/nowhere holds no stripes: name another.')


SOURCE = SourceSpec(
  'stripes',
  'Images whose upper or lower half is white.',
  load,
  (Setting('stripes_size', int, 'Training images.', default=60, at_least=20),),
  check_files=check_files,
  derive=lambda values, given: {'seed': given.get('seed', 7)},
)
LISTS = SourceSpec(
  'lists',
  'Labels that are no array.',
  lambda data_dir, cache_dir: Split(stripes(20).examples, [0, 1] * 10),
  check_files=check_files,
)
