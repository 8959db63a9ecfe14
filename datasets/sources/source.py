"""What is known of a data set, before it is loaded and after that."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from datasets.sources.forms import FORMS
from tff_ssl.common.choice import Choice
from tff_ssl.common.setting import Setting

UNKNOWN = -1

# Defaults of data whose clients have tens of examples each: one epoch of small
# minibatches, after some rounds in which only the server trains, so that
# pseudo-labels are useful.
SMALL_CLIENTS = {
  'model': 'small_cnn',
  'batch_size': 20,
  'server_batch_size': 20,
  'local_epochs': 1,
  'server_examples': 100,
  'labelled_examples': 100,
  'server_warmup_rounds': 10,
}
# Of data whose clients have thousands: steps and minibatch of Zhang et al.
LARGE_CLIENTS = {
  'model': 'small_cnn',
  'batch_size': 64,
  'server_batch_size': 64,
  'local_steps': 16,
  'server_warmup_rounds': 10,
  'partition': 'r',
  'noniid_r': 0.4,
  'total_rounds': 200,
}
# Of examples of unknown content: few clients of one class distribution.
OWN_EXAMPLES = {
  **SMALL_CLIENTS,
  'partition': 'r',
  'num_clients': 20,
  'noniid_r': 0.0,
  'total_rounds': 100,
}


def check_arrays(record: object, names: Iterable[str]) -> None:
  """Checks that fields of a record, which may be a user's own, are arrays."""
  for name in names:
    value = getattr(record, name)
    if not isinstance(value, np.ndarray):
      raise TypeError(
        f'{name} of {type(record).__name__} is of the type '
        f'{type(value).__name__}: give an array of NumPy.'
      )


@dataclasses.dataclass(frozen=True)
class Split:
  """One split of a source.

  Attributes:
    examples: An array of one of `FORMS`, such as images `uint8 [N, H, W, C]`.
      Of the numbers of words, 0 follows the end of a text.
    labels: `int32 [N]`, each in `[0, num_classes)`, or `UNKNOWN`.
    client_ids: The owner of each example, an array `[N]` of any Python strings;
      `None` if the data do not name owners.
  """

  examples: np.ndarray
  labels: np.ndarray
  client_ids: np.ndarray | None = None

  def __post_init__(self):
    check_arrays(self, ('examples', 'labels'))
    if self.client_ids is not None:
      check_arrays(self, ('client_ids',))

  def part(self, indices: slice | np.ndarray) -> 'Split':
    """Returns the examples of a slice, of numbers, or of `bool [N]`."""
    ids = None if self.client_ids is None else self.client_ids[indices]
    return Split(self.examples[indices], self.labels[indices], ids)


@dataclasses.dataclass(frozen=True)
class SourceSets:
  """The sets into which the data divide the training examples.

  Attributes:
    client_index: `int64 [N]`, the client of each example, in [0, C).
    set_index: `int64 [N]`, its set, numbered from 0 at each client.
    class_priors: `float64 [C, M, d]`, the shares of the classes in each set. A
      client with fewer than M sets has rows of zeros.
  """

  client_names: tuple[str, ...]
  client_index: np.ndarray
  set_index: np.ndarray
  class_priors: np.ndarray

  def __post_init__(self):
    check_arrays(self, ('client_index', 'set_index', 'class_priors'))


@dataclasses.dataclass(frozen=True)
class Source:
  """A loaded data set.

  Attributes:
    version: Identifies the content; cached stores of another version are not
      used. It contains the number of examples, so that a subset differs.
    title: One sentence for reports: what the data are, and how many examples.
    train: The training split, of the clients where the server has its own.
    mean: Per-channel mean of pixels scaled to [0, 1], `C` floats; or what is
      subtracted from each feature, `F` floats. `stddev` alike.
    background: Grey value in [0, 255] with which augmentation fills empty
      areas of images.
    mirrorable: Whether a mirrored image keeps its class (a digit does not).
    names: The d names of the classes, or `None`.
    columns: For each feature of a vector the number of its column, `F`
      integers, where some columns have several features; else `None`.
    server: The server's own labelled examples, which no client has, or `None`.
    num_tokens: How many numbers words have, where examples are tokens.
    notes: What a run says of the data, one sentence each.
    facts: What was understood of the columns of a table, one sentence each.
    preprocessing: How a user's files become examples, in what JSON can hold;
      its `kind` is the name of the data set. `None` where files hold the
      examples themselves.
  """

  name: str
  version: str
  title: str
  train: Split
  test: Split
  num_classes: int
  mean: tuple[float, ...]
  stddev: tuple[float, ...]
  background: int = 0
  mirrorable: bool = False
  validation: Split | None = None
  sets: SourceSets | None = None
  names: tuple[str, ...] | None = None
  columns: tuple[int, ...] | None = None
  server: Split | None = None
  num_tokens: int | None = None
  notes: tuple[str, ...] = ()
  facts: tuple[str, ...] = ()
  preprocessing: Mapping[str, Any] | None = None

  def __post_init__(self):
    for name, split in self.splits.items():
      for fault in self._label_faults(name, split.labels):
        raise ValueError(f'source {self.name!r} has {fault}')
      for fault in self._example_faults(split):
        raise ValueError(f'source.{name}{fault}')
    if len(self.class_names) != self.num_classes:
      raise ValueError(
        f'source {self.name!r} has {self.num_classes} classes and '
        f'{len(self.class_names)} names of classes: give as many of each.'
      )
    if self.sets is not None:
      self._check_sets(self.sets)

  @property
  def splits(self) -> dict[str, Split]:
    """The splits that there are, by name."""
    splits = {'train': self.train, 'server': self.server}
    splits |= {'validation': self.validation, 'test': self.test}
    return {name: split for name, split in splits.items() if split is not None}

  def digests(self) -> dict[str, str]:
    """Returns the SHA-256 of examples, labels and owners, by what they are."""
    found = {}
    for name, split in self.splits.items():
      found[f'examples of {name}'] = _sha256(split.examples)
      found[f'labels of {name}'] = _sha256(split.labels)
      if split.client_ids is not None:
        found[f'owners in {name}'] = _sha256(split.client_ids)
    return found

  @functools.cached_property
  def training(self) -> Split:
    """The clients' examples and then the server's own, as partitions count."""
    train, server = self.train, self.server
    if server is None:
      return train
    ids = train.client_ids
    if ids is not None:
      ids = np.concatenate([ids, np.full(len(server.labels), '', object)])
    return Split(
      np.concatenate([train.examples, server.examples]),
      np.concatenate([train.labels, server.labels]),
      ids,
    )

  def _label_faults(self, name: str, labels: np.ndarray) -> Iterator[str]:
    """Says what is wrong with the labels of a split; the first counts."""
    # All integers that are used as int64 as they are.
    is_integer = labels.dtype.kind in 'iu' and np.can_cast(labels.dtype, int)
    if labels.ndim != 1 or (labels.size and not is_integer):
      yield (
        f'labels of {name} that are {labels.dtype} {list(labels.shape)}: give '
        'a vector of integers, such as int32.'
      )
    if not labels.size:
      yield f'no {name.replace("train", "training")} examples: choose another.'
    low, high = labels.min(), labels.max()
    if not UNKNOWN <= low <= high < self.num_classes:
      yield (
        f'labels of {name} from {low} to {high}, outside '
        f'[0, {self.num_classes}): correct them.'
      )
    if name != 'train' and low == UNKNOWN:
      yield f'examples of {name} without a label: leave them out.'

  def _example_faults(self, split: Split) -> Iterator[str]:
    """Says what is wrong with the examples of a split and their owners."""
    examples, ids, train = split.examples, split.client_ids, self.train.examples
    shape = examples.shape[1:]
    if len(examples) != len(split.labels):
      yield (
        f' has {len(examples)} examples and {len(split.labels)} labels: give '
        'as many of each.'
      )
    fitting = [form for form in FORMS.values() if form.fits(examples)]
    if not fitting or 0 in shape:
      listed = [f'{name} ({form.layout})' for name, form in FORMS.items()]
      yield (
        f'.examples is {examples.dtype}{list(examples.shape)}: give '
        f'{", ".join(listed[:-1])} or {listed[-1]}.'
      )
    if examples.dtype != train.dtype:
      yield (
        f' is {examples.dtype} and source.train {train.dtype}: give one type.'
      )
    if shape != train.shape[1:]:
      yield (
        f' has examples {shape} and source.train {train.shape[1:]}: give one '
        'shape.'
      )
    yield from fitting[0].faults(self, examples)
    if ids is None:
      return
    if ids.shape != split.labels.shape:
      yield (
        f'.client_ids is of the shape {list(ids.shape)} for '
        f'{len(examples)} examples: give an array with the owner of each.'
      )
    for kind in {*map(type, ids.tolist())}:
      if not issubclass(kind, str):
        one = next(one for one in ids.tolist() if type(one) is kind)
        raise TypeError(
          f'client_ids holds {one!r} of type {kind.__name__}: give strings.'
        )

  def _check_sets(self, sets: SourceSets) -> None:
    """Checks forms; priors are checked with the noise that joins them."""
    shape, places = sets.class_priors.shape, (sets.client_index, sets.set_index)
    if (
      len(shape) != 3
      or (shape[0], shape[2]) != (len(sets.client_names), self.num_classes)
      or sets.class_priors.dtype.kind != 'f'
      or any(one.shape != self.train.labels.shape for one in places)
      or any(one.dtype.kind not in 'iu' for one in places)
      or min(map(np.min, places)) < 0
      or sets.client_index.max() >= shape[0]
      or sets.set_index.max() >= shape[1]
    ):
      raise ValueError(
        f'source {self.name!r} has sets that do not fit {len(places[0])} '
        f'training examples of {self.num_classes} classes: class_priors is '
        f'{list(shape)}, of {len(sets.client_names)} clients; give float64 '
        '[clients, sets, classes], and client_index and set_index as integers '
        'within that.'
      )

  @property
  def form(self) -> str:
    """What examples are, a key of `FORMS`."""
    examples = self.train.examples
    return next(name for name, form in FORMS.items() if form.fits(examples))

  @property
  def class_names(self) -> tuple[str, ...]:
    """The d names of the classes; their numbers if the data name none."""
    return self.names or tuple(map(str, range(self.num_classes)))


def _sha256(array: np.ndarray) -> str:
  if array.dtype == object:
    content = '\0'.join(array).encode('utf-8', 'surrogatepass')
  else:
    content = np.ascontiguousarray(array).data
  return hashlib.sha256(content).hexdigest()


@dataclasses.dataclass(frozen=True)
class SourceSpec(Choice):
  """A data source: its name, its settings and the functions that read it.

  `builder(data_dir, cache_dir, **options) -> Source` raises a `ValueError` if
  the files are absent or unusable. The name of each setting consists of the
  source's name, an underscore, and the name of an option of that function, in
  whose signature the default stands.

  Attributes:
    check_files: `check_files(data_dir)` raises a `ValueError` if the files are
      absent and cannot be downloaded. It does not import TensorFlow.
    form: What examples are, a key of `FORMS`.
    has_native_split: Whether the data can name the owner of each example.
    has_unlabelled: Whether some training images always lack labels.
    may_lack_labels: Whether some may, which is seen when the files are read.
    has_sets: Whether training examples come in sets of known class priors.
    is_of_user: Whether the files are a user's own, so that their folder says
      which data they are.
    signs: Names that a folder of such files holds; several tuples are
      alternatives.
    fits: Whether a folder with such names is one of these data.
    endings: Those of files that a classifier of these data reads.
    decode: `decode(path, input_shape, preprocessing)` reads such a file, by
      `Source.preprocessing`. It returns examples, or strings in the place of
      tokens, and for each what the training examples did not have, or ''.
  """

  _: dataclasses.KW_ONLY
  check_files: Callable[[str | None], object]
  form: str = 'images'
  has_native_split: bool = False
  has_unlabelled: bool = False
  may_lack_labels: bool = False
  has_sets: bool = False
  is_of_user: bool = False
  signs: tuple[tuple[str, ...], ...] = ()
  fits: Callable[[str], bool] = lambda folder: True
  endings: tuple[str, ...] = ()
  decode: Callable[..., tuple[np.ndarray, list[str]]] | None = None

  def __post_init__(self):
    if self.form not in FORMS:
      raise ValueError(
        f'form={self.form!r} of the source {self.name!r} is unknown: choose '
        f'{" or ".join(FORMS)}.'
      )
    for setting in self.settings:
      if not setting.name.startswith(f'{self.name}_'):
        raise ValueError(
          f'The setting {setting.name!r} of the source {self.name!r} needs a '
          f'name that begins with {self.name + "_"!r}.'
        )

  @property
  def options(self) -> dict[str, Setting]:
    """The settings by the names of the options of `builder`."""
    start = len(self.name) + 1
    return {setting.name[start:]: setting for setting in self.settings}
