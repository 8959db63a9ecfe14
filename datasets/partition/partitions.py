"""The partitions by name, and the function that builds them."""

import dataclasses
import inspect
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.partition import (
  assignment,
  class_skew,
  client_labels,
  native_partition,
  u_sets,
  unknown_classes,
)
from datasets.partition.assignment import (
  SEED,
  SERVER_EXAMPLES,
  Assignment,
  Partition,
  PartitionSpec,
)
from datasets.partition.client_labels import (
  LABELLED_EXAMPLES,
  MASK_RATIO,
  SHARED_FRACTION,
)
from datasets.sources.source import UNKNOWN, Source
from tff_ssl.common.choice import Registry
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Setting

PARTITIONS: Registry[PartitionSpec] = Registry(
  'partition',
  (
    class_skew.R,
    class_skew.DIRICHLET,
    native_partition.SPEC,
    native_partition.POOLED,
    u_sets.DRAWN,
    u_sets.OWN,
  ),
  PartitionSpec,
)

# The settings of all partitions.
SETTINGS: tuple[Setting, ...] = (
  SERVER_EXAMPLES,
  LABELLED_EXAMPLES,
  MASK_RATIO,
  client_labels.LABELLED_FRACTION,
  client_labels.MASK,
  SHARED_FRACTION,
  client_labels.SHARED_SHARE,
  unknown_classes.UNKNOWN_CLASSES,
  unknown_classes.UNKNOWN_SHARE,
)

# The digest of a partition covers its arguments, and a run is resumed only with
# the same digest. So all partitions without sets record these, as `None` where
# they do not apply.
_ALWAYS_RECORDED = (
  class_skew.NUM_CLIENTS.name,
  class_skew.NONIID_R.name,
  class_skew.DIRICHLET_ALPHA.name,
  class_skew.MIN_CLIENT_EXAMPLES.name,
  native_partition.SERVER_WRITERS.name,
)


def names_in_sets(needs_sets: bool) -> list[str]:
  """Returns the names of the partitions that lay examples in sets.

  Args:
    needs_sets: Whether of data that come in sets, or of all others.
  """
  return [
    spec.name
    for spec in PARTITIONS.values()
    if spec.in_sets and spec.needs_sets == needs_sets
  ]


def check_settings(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings that have an effect, checked, with defaults."""
  spec = PARTITIONS.find(name)
  for argument, value in given.items():
    if value is not None and argument not in spec.setting_names:
      users = [n for n, p in PARTITIONS.items() if argument in p.setting_names]
      choice = f', or choose --partition={" or ".join(users)}' if users else ''
      raise ValueError(
        f'{argument}={value!r} does not apply to partition {spec.name!r}: '
        f'leave it out{choice}.'
      )
  given = {k: given[k] for k in spec.setting_names if given.get(k) is not None}
  parameters = inspect.signature(spec.builder).parameters
  settings = {}
  for setting in spec.settings:
    if setting.name in given:
      value = given[setting.name]
      if setting.type is str and isinstance(value, numbers.Integral):
        # A single number, for a setting that takes several with commas.
        value = str(value)
      setting.check(value)
      # A plain Python value, which JSON can hold.
      settings[setting.name] = setting.type(value)
      continue
    default = setting.default
    if setting not in u_sets.NOISE:
      default = parameters[setting.name].default
    if default is inspect.Parameter.empty:
      raise ValueError(
        f'{setting.name}=None: partition {spec.name!r} needs '
        f'{setting.expected}.'
      )
    settings[setting.name] = default
  unused = {s.name: s.why_unused(settings) for s in spec.settings}
  for argument, reason in unused.items():
    if reason and argument in given:
      raise ValueError(
        f'{argument}={given[argument]!r} has no effect: {reason}; leave it out.'
      )
  used = {k: v for k, v in settings.items() if not unused[k]}
  return spec.complete(used)


def build(
  name: str,
  source: Source,
  *,
  seed: int,
  server_examples: int = 0,
  labelled_examples: int = 0,
  mask_ratio: float | None = None,
  shared_fraction: float | None = None,
  shared_share: float | None = None,
  unknown_share: float | None = None,
  **settings: Any,
) -> Partition:
  """Splits a source's training examples between a server and clients.

  Args:
    server_examples: 0 if examples lie in sets. Where the source says which are
      the server's, it is their number, or 0 if the server takes no part.
    labelled_examples: Labels of the clients in the place of the server's.
      Clients that own their examples label some of these.
    mask_ratio: `None`, no mask, is not among `arguments`, so that partitions
      without a mask keep their digest.
    shared_fraction: Given if clients share examples, as `shared_share`.
    unknown_share: Given if the source is one of `unknown_classes.take_out`.
    **settings: The arguments of the partition's function, or `None`, by name.
  """
  spec = PARTITIONS.find(name)
  own = check_settings(name, settings)
  SEED.check(seed)
  seed = int(seed)
  pool = _pool(spec, source, unknown_share)
  _check_source(spec, pool, own)
  _check_labels(
    *(spec, source, server_examples, labelled_examples),
    *(mask_ratio, shared_fraction, settings),
  )
  drawn = 0 if source.server else server_examples
  if shared_fraction is not None:
    drawn = client_labels.shared_set_size(
      len(pool.train.labels), source.num_classes, shared_fraction
    )
  try:
    held = _draw_labels(
      spec, pool, own, int(drawn), int(labelled_examples), seed
    )
  except assignment.TooFewLabels as error:
    asking = LABELLED_EXAMPLES if labelled_examples else SERVER_EXAMPLES
    text = _too_few(error, asking, shared_fraction, source.class_names)
    raise ValueError(text) from error
  if source.server and server_examples:
    held = _with_server(held, source, seed)
  arguments = dict(own)
  if labelled_examples:
    arguments |= dict.fromkeys(spec.server_settings)
  if not spec.in_sets:
    arguments = {
      **dict.fromkeys(_ALWAYS_RECORDED),
      **arguments,
      'server_examples': int(server_examples),
      'labelled_examples': int(labelled_examples),
    }
  if mask_ratio is not None:
    labels = pool.train.labels[held.examples]
    client_labels.check_all_known(source.name, labels, mask_ratio)
    held = client_labels.mask_labels(held, mask_ratio, seed)
    arguments['mask_ratio'] = float(mask_ratio)
  if shared_fraction is not None:
    held = client_labels.share_server_set(held, shared_share, seed)
    arguments['shared_fraction'] = float(shared_fraction)
    arguments['shared_share'] = float(shared_share)
  if unknown_share is not None:
    unknown = np.flatnonzero(source.train.labels == UNKNOWN)
    held = unknown_classes.deal(held, unknown, unknown_share, seed)
    arguments['unknown_share'] = float(unknown_share)
  return Partition(
    **vars(held),
    name=name,
    source_name=source.name,
    source_version=source.version,
    num_train=len(source.training.labels),
    seed=seed,
    arguments=arguments,
  )


def _pool(spec: PartitionSpec, source: Source, unknown_share) -> Source:
  """Returns what is divided: what the server has not, of known classes."""
  pool = dataclasses.replace(source, server=None)
  if unknown_share is None:
    return pool
  if spec.needs_client_ids or spec.in_sets:
    raise ValueError(
      f'unknown_share={unknown_share} does not fit partition {spec.name!r}, '
      'which does not deal single examples: choose --partition=r.'
    )
  is_known = source.train.labels != UNKNOWN
  return dataclasses.replace(pool, train=source.train.part(is_known))


def _too_few(error, asking, shared_fraction, class_names) -> str:
  """Returns what is said where a class has too few examples."""
  if shared_fraction is None:
    return error.text(f'--{asking.name}', class_names)
  return (
    f'shared_fraction={shared_fraction} asks for equally many examples of '
    f'each class: {error.text("that", class_names)}'
  )


def _check_source(spec: PartitionSpec, source: Source, own) -> None:
  unknown = np.count_nonzero(source.train.labels == UNKNOWN)
  if unknown and spec.needs_labels(own):
    raise ValueError(
      f'source {source.name!r} has {unknown:,} training images without a '
      'label, but this partition needs the class of each image: label or leave '
      'out these images, or choose --partition=r with --noniid_r=0, '
      '--partition=pooled, or --partition=native if images have owners.'
    )
  if spec.needs_client_ids and source.train.client_ids is None:
    raise ValueError(
      f'partition={spec.name!r} needs the owner of each example, but source '
      f'{source.name!r} names no owners: choose --partition=r.'
    )


def _check_labels(
  spec: PartitionSpec,
  source: Source,
  server_examples: int,
  labelled_examples: int,
  mask_ratio: float | None,
  shared_fraction: float | None,
  given: Mapping[str, Any],
) -> None:
  """Checks how many labels there are, and that one setting says whose."""
  # Those that the data give to the server are not drawn.
  drawn = 0 if source.server else server_examples
  asked = {SERVER_EXAMPLES: drawn, LABELLED_EXAMPLES: labelled_examples}
  for setting, value in asked.items():
    setting.check(value)
    if value >= len(source.train.labels):
      raise ValueError(
        f'{setting.name}={value} leaves none of the '
        f'{len(source.train.labels)} examples of {source.name} unlabelled at '
        'clients: lower it.'
      )
  for setting, value in {**asked, SHARED_FRACTION: shared_fraction}.items():
    if value and spec.in_sets:
      raise ValueError(
        f'{setting.name}={value} does not fit partition {spec.name!r}, which '
        'puts all examples into sets: leave it out.'
      )
  if mask_ratio is not None:
    MASK_RATIO.check(mask_ratio)
  chosen, others = '', {SERVER_EXAMPLES.name: server_examples or None}
  if shared_fraction is not None:
    chosen = f'{SHARED_FRACTION.name}={shared_fraction}'
    others[LABELLED_EXAMPLES.name] = labelled_examples or None
    others[MASK_RATIO.name] = mask_ratio or None
  elif labelled_examples:
    chosen = f'{LABELLED_EXAMPLES.name}={labelled_examples}'
    others |= {name: given.get(name) for name in spec.server_settings}
    others[MASK_RATIO.name] = mask_ratio
  for argument, value in others.items():
    if chosen and value is not None:
      raise ValueError(
        f'{argument}={value!r} and {chosen} exclude each other: each says '
        'whose labels are known; give one.'
      )
  there = len(source.server.labels) if source.server else drawn
  if server_examples not in (0, there):
    raise ValueError(
      f'server_examples={server_examples} has no effect where the data say '
      f"which {there} examples are the server's: leave it out."
    )
  if shared_fraction is not None and (source.train.labels == UNKNOWN).any():
    raise ValueError(
      f'source {source.name!r} has training examples without a label, and '
      'clients that share examples know all labels: leave these out.'
    )


def _draw(
  spec: PartitionSpec, source: Source, own, server_examples: int, seed: int
) -> Assignment:
  arguments = {**own, 'server_examples': server_examples}
  if spec.in_sets:
    noise = {setting.name for setting in u_sets.NOISE}
    arguments = {name: own[name] for name in own.keys() - noise}
  held = spec.builder(source, seed=seed, **arguments)
  if not isinstance(held, Assignment) or held.in_sets != spec.in_sets:
    raise TypeError(
      f'partition={spec.name!r}: its function returned {held!r}: let it '
      'return an object of the class Assignment, '
      f'{"with" if spec.in_sets else "without"} sets.'
    )
  if held.in_sets:
    held = u_sets.tell_priors(held, source.class_names, own, seed)
  return held


def _with_server(held: Assignment, source: Source, seed: int) -> Assignment:
  """Gives the server its own examples, in random order."""
  ends = len(source.train.labels), len(source.training.labels)
  own = generator(Purpose.SERVER_SET, seed).permutation(np.arange(*ends))
  return dataclasses.replace(held, server_indices=own)


def _draw_labels(
  spec: PartitionSpec,
  source: Source,
  own,
  server_examples: int,
  labelled_examples: int,
  seed: int,
) -> Assignment:
  """Draws a partition with labels at the server, or a few at the clients."""
  if not labelled_examples:
    return _draw(spec, source, own, server_examples, seed)
  labels = source.train.labels
  if spec.needs_client_ids:
    return client_labels.label_own_examples(
      _draw(spec, source, own, 0, seed),
      labels,
      source.num_classes,
      labelled_examples,
      seed,
    )
  try:
    held = _draw(spec, source, own, labelled_examples, seed)
  except assignment.TooFewLabels:
    raise
  except ValueError as error:
    # The user gave `labelled_examples`, so the message must name that.
    text = str(error).replace(SERVER_EXAMPLES.name, LABELLED_EXAMPLES.name)
    raise ValueError(text) from error
  return client_labels.deal_server_set(held, labels, seed)
