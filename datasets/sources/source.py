"""What a data source gives: labelled images, and who wrote them if known.

Every source of `catalogue` returns one `Source`; partitions, the client store
and the reports read nothing else.
"""

import dataclasses

import numpy as np

UNKNOWN = -1


@dataclasses.dataclass(frozen=True)
class Split:
  """One split of a source.

  Attributes:
    images: `uint8 [N, H, W, C]`.
    labels: `int32 [N]`, each in `[0, num_classes)`, or `UNKNOWN` for training
      images that nobody has labelled.
    client_ids: For sources with a native split, `[N]` array of Python strings
      (any characters), the owner of each example; otherwise `None`.
  """

  images: np.ndarray
  labels: np.ndarray
  client_ids: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class SourceSets:
  """The sets that training examples come in, with their class priors.

  Attributes:
    client_names: The C names.
    client_index: `int64 [N]`, the client of each example, in [0, C).
    set_index: `int64 [N]`, its set, from 0 at each client.
    class_priors: `float64 [C, M, d]`, the shares of the classes in each set;
      rows of zeros for sets that a client does not have.
    class_names: The d names of the classes.
  """

  client_names: tuple[str, ...]
  client_index: np.ndarray
  set_index: np.ndarray
  class_priors: np.ndarray
  class_names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Source:
  """A data set as the rest of the code sees it.

  Attributes:
    name: The name in the catalogue.
    version: Identifies the content: a change of the version makes cached client
      stores of the older one unusable. Holds the number of examples where the
      files are subsets of the public set.
    title: One sentence for reports: what the data are and how many.
    train: The training split.
    test: The whole test split.
    num_classes: Number of classes, d in the papers.
    mean: Per-channel mean of pixels scaled to [0, 1], `C` floats.
    stddev: Per-channel standard deviation, `C` floats.
    background: Grey value in [0, 255] of an empty image; geometric augmentation
      fills with it.
    mirrorable: Whether a mirrored image still is of its class (a digit is not).
    validation: A split on which hyperparameters are chosen, so that the test
      split is not; `None` where the source has none.
    sets: The sets of the training examples, where the data come in sets.
  """

  name: str
  version: str
  title: str
  train: Split
  test: Split
  num_classes: int
  mean: tuple[float, ...]
  stddev: tuple[float, ...]
  background: int
  mirrorable: bool
  validation: Split | None = None
  sets: SourceSets | None = None

  @property
  def class_names(self) -> tuple[str, ...]:
    """The d names of the classes: their numbers, where the data give none."""
    if self.sets is not None:
      return self.sets.class_names
    return tuple(map(str, range(self.num_classes)))
