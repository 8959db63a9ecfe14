"""The handwritten digits that scikit-learn contains. They need no file."""

import numpy as np

from datasets.sources.source import Source, SourceSpec, Split

# Of the 1,437 training images scaled to [0, 1]; a test recomputes them.
_MEAN = 0.3048
_STDDEV = 0.3758


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the digits: 1,437 train, 360 test, stratified by class."""
  from sklearn.datasets import load_digits
  from sklearn.model_selection import train_test_split

  bunch = load_digits()
  images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
  labels = bunch.target.astype(np.int32)
  train_images, test_images, train_labels, test_labels = train_test_split(
    images, labels, test_size=360, stratify=labels, random_state=20200824
  )
  counts = f'{len(train_labels):,} train and {len(test_labels):,} test'
  return Source(
    name='digits',
    version=f'sklearn-digits-{len(train_labels)}+{len(test_labels)}',
    title=f'scikit-learn digits, 8x8 pixels: {counts} examples',
    train=Split(train_images, train_labels),
    test=Split(test_images, test_labels),
    num_classes=10,
    mean=(_MEAN,),
    stddev=(_STDDEV,),
    background=0,
    mirrorable=False,
  )


SPEC = SourceSpec(
  name='digits',
  description='8x8 handwritten digits inside scikit-learn; needs no file',
  builder=load,
  check_files=lambda data_dir: None,
)
