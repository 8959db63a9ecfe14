"""What a user's files become, whatever their format, and what is checked of it.

A decoder reads each file or folder into `Rows`; `read` gives the classes and
the splits. A cell means what a person would read in it, or a sentence says why
not. What may mean "no label" is asked for, and so are names that differ in
capital letters alone.
"""

import collections
import dataclasses
import decimal
import difflib
import functools
import os
import pathlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from datasets.files import image_files
from datasets.files.npz_files import wrong
from datasets.sources.forms import FORMS
from datasets.sources.source import (
  OWN_EXAMPLES,
  UNKNOWN,
  Source,
  SourceSpec,
  Split,
)

TRAIN, SERVER, VALIDATION, TEST = 'train', 'server', 'validation', 'test'
# The order of reports.
SPLITS = (TRAIN, SERVER, VALIDATION, TEST)
# The name of owners in files with columns or arrays.
CLIENT = 'client_id'

# How people write that a cell has no value.
MISSING = {
  *('', 'na', 'n/a', '#n/a', '<na>', 'nan', 'null', 'nil', 'none', 'missing'),
  *('?', '-', '--', '.'),
}
# And that an example has no label or owner, in the form of `folded`.
_NO_NAME = MISSING | {
  *('unlabeled', 'unlabelled', 'notlabeled', 'notlabelled', 'nolabel'),
  *('unknown', 'unknownlabel', 'undefined', 'unclassified', 'unsorted'),
  *('unsup', 'unsupervised', 'unannotated', 'notannotated', 'noannotation'),
  *('notavailable', 'noclass', 'empty', 'blank', 'pending', 'unassigned'),
  *('missinglabel', 'nulllabel', 'emptylabel', 'notset', 'notassigned'),
  *('tbd', 'todo', 'inf', 'infinity', -1),
}
# Minus signs of other alphabets than a keyboard's.
MINUS = str.maketrans({'\u2212': '-', '\u2013': '-', '\uff0d': '-'})
# 007 is a word. Arrow, which is faster, reads the pattern as Python does.
NUMBER = re.compile(
  r'[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?', re.ASCII
)
# Files of data, and names that a user means to be read.
_DATA = ('.csv', '.tsv', '.parquet', '.npz', '.npy', '.xlsx')
_LIKE_SPLIT = re.compile(
  r'_?((train|test)(ing)?|val(id(ation)?)?|dev|eval(uation)?|server|'
  r'(unlab|unsup)\w*)([-_ ]?(set|data|\d+))?',
  re.IGNORECASE,
)
_OWNER = re.compile(
  '(client|owner|user|hospital|site|patient|device|writer|subject|participant|'
  'institution|cent(er|re)|clinic|school|bank|customer|person|student|silo|'
  'node|branch|subj|mrn)'
  '(ids?|s|names?|nr|no|number|code)?|[up]ids?|'
  '(group|household|facility|worker|account)(ids?|nr|no|number|code)'
)


@dataclasses.dataclass(frozen=True)
class Rows:
  """The examples of one split, as they are written.

  Attributes:
    examples: The N examples, in whatever form the decoder has them.
    labels: The N labels as text; `None` for an example without one.
    owners: The N owners as text, or `None` if the data name none.
    place: From the number of an example to where it stands in `path`.
    no_label: How an example says that it has no label.
    label_field: What the labels stand in, for messages, as `owner_field`.
  """

  path: str
  examples: Any
  labels: Sequence[str | None]
  owners: Sequence[str] | None = None
  place: Callable[[int], str] = lambda row: f'row {row + 1}'
  no_label: str = 'leave the cell empty'
  label_field: str = 'label'
  owner_field: str = CLIENT

  def wrong(self, found: str, remedy: str) -> ValueError:
    """Returns the error about the labels."""
    return wrong(self.path, self.label_field, found, remedy)


@dataclasses.dataclass(frozen=True)
class Labelled:
  """What is known of all splits, once they are checked.

  Attributes:
    class_names: The d classes: whole numbers in their order, or words in
      theirs.
    labels: By split, the class of each example, or `None`.
    owners: By split, the owners as strings `[N]`, or `None`.
    notes: What a run says of the data, one sentence each.
  """

  class_names: tuple[str, ...]
  labels: Mapping[str, Sequence[str | None]]
  owners: Mapping[str, np.ndarray | None]
  notes: tuple[str, ...] = ()

  def source(
    self,
    kind: str,
    data_dir: str,
    examples: Mapping[str, np.ndarray],
    *,
    notes: Iterable[str] = (),
    **fields,
  ) -> Source:
    """Returns the data set; its title says the `kind`, such as 'npz files'."""
    number = {name: index for index, name in enumerate(self.class_names)}
    number[None] = UNKNOWN
    labels = {
      split: np.array([number[name] for name in own], np.int32)
      for split, own in self.labels.items()
    }
    splits = {
      name: Split(examples[name], own, self.owners[name])
      for name, own in labels.items()
    }
    fields = {'title': _title(kind, data_dir, labels)} | fields
    return Source(
      train=splits[TRAIN],
      server=splits.get(SERVER),
      test=splits[TEST],
      validation=splits.get(VALIDATION),
      num_classes=len(self.class_names),
      names=self.class_names,
      notes=(*self.notes, *notes),
      **fields,
    )


def name_of(text: str) -> str:
  """Returns the form in which names of classes, clients, sets are compared."""
  return unicodedata.normalize('NFC', text.strip())


def is_missing(text: str) -> bool:
  """Returns whether a cell says that it has no value."""
  return text.strip().lower() in MISSING


def folded(name: str) -> str | decimal.Decimal:
  """Returns what names have in common that people read as one."""
  plain = unicodedata.normalize('NFKC', name).translate(MINUS).casefold()
  if not plain.isascii():  # Some signs have no width.
    plain = ''.join(c for c in plain if unicodedata.category(c) != 'Cf')
  if NUMBER.fullmatch(plain):
    # 2.5 is 2.50, and 1e3 is 1000.
    return decimal.Decimal(repr(float(plain)) if 'e' in plain else plain)
  return re.sub(r'[\s_]', '', plain)


def _is_no_name(name: str) -> bool:
  """Returns whether a label or an owner says that there is none."""
  key = folded(name)
  bare = re.sub(r'[-\u2014./?#()\[\]"\']', '', str(key))
  return key in _NO_NAME or bare in _NO_NAME


def alike(what: str, names: Iterable[str]) -> Iterator[str]:
  """Says which names may be one, but are read as several."""
  groups = collections.defaultdict(list)
  for name in sorted(set(names)):
    groups[folded(re.sub(r'^0+(?=\d)', '', name))].append(name)
  found = [own for own in groups.values() if len(own) > 1]
  if found:
    yield (
      f'{what} that differ in capital letters, blanks or zeros alone count as '
      f'several, such as {" and ".join(found[0][:2])} ({len(found):,} in all): '
      'write them in one way if they are one.'
    )


def not_read(
  folder: str,
  names: Iterable[str],
  remedy: str = 'call it train, test, validation or server, in the form of '
  'train',
  endings: Sequence[str] = _DATA,
) -> tuple[str, ...]:
  """Names data beside the files `names`; what looks like a split is refused."""
  read = set(map(os.path.basename, names))
  found = image_files.visible(pathlib.Path(folder))
  others = [path for path in found if path.name not in read]
  for path in others:
    if _LIKE_SPLIT.fullmatch(path.stem) and (
      path.is_dir() or path.suffix.lower() in _DATA
    ):
      raise ValueError(f'{path} is not read: {remedy}, or move it away.')
  data = [path.name for path in others if path.name.lower().endswith(endings)]
  return (f'{folder}: not read are {some(data)}.',) * bool(data)


def check_no_owners(
  path: str, fields: Iterable[str], known: Sequence[str], name: str = CLIENT
) -> None:
  """Asks about a column or array that may name the owners of examples.

  Where one of the `fields` has the `name` of the owners, others may be
  anything.
  """
  fields = list(fields)
  if name in fields:
    return
  for field in fields:
    plain = re.sub(r'[\W_]', '', field).lower()
    is_near = difflib.get_close_matches(plain, ['clientid'], cutoff=0.85)
    if field not in known and (_OWNER.fullmatch(plain) or is_near):
      raise wrong(
        path,
        field,
        'a name that may be that of the owners of examples',
        f'call it {name} if it says which client has an example, else call '
        'it something else',
      )


def read(
  rows: Mapping[str, Rows], class_names: Sequence[str] | None = None
) -> Labelled:
  """Checks labels and owners of all splits, of which two are there.

  `class_names` are given where the data say them in their order.
  """
  # Whoever names the classes apart means them as they are.
  are_named = class_names is not None
  labels = {split: _labels(one, are_named) for split, one in rows.items()}
  trained = [split for split in (TRAIN, SERVER) if split in rows]
  found = _classes(
    [(rows[split], labels[split]) for split in trained], are_named
  )
  if not found:
    raise rows[TRAIN].wrong(
      'no label at all', 'give the labels of some training examples'
    )
  if not class_names:
    # Whole numbers have their order, and words have theirs; 007 is a word.
    are_numbers = all(re.fullmatch('-?(0|[1-9][0-9]*)', n) for n in found)
    class_names = sorted(found, key=int if are_numbers else None)
  if len(class_names) < 2:
    raise rows[TRAIN].wrong(
      f'one single class, {class_names[0]!r}',
      'give labels of two classes or more',
    )
  for split, one in rows.items():
    _check_labels(one, labels[split], found, may_lack=split == TRAIN)
  return Labelled(
    tuple(class_names),
    labels,
    {split: _owners(one, rows[TRAIN]) for split, one in rows.items()},
    tuple(_notes(rows, labels, class_names)),
  )


def _labels(rows: Rows, are_named: bool) -> list[str | None]:
  """Returns the labels in the form in which they are compared."""
  known = {}
  for row, text in enumerate(rows.labels):
    if text is None or text in known:
      continue
    name = name_of(text)
    if _is_no_name(name) and not are_named:
      count = sum(text == other for other in rows.labels)
      raise rows.wrong(
        f'{name!r} in {count:,} of {len(rows.labels):,} ({rows.place(row)})',
        f'if that means that there is no label, {rows.no_label}; if it is a '
        'class, give it another name',
      )
    known[text] = class_of(name)
  return [None if text is None else known[text] for text in rows.labels]


def class_of(text: str) -> str:
  """Returns the form in which classes and owners are compared."""
  # A column of numbers with gaps has 1.0 for 1.
  return re.sub(r'^(-?\d+)\.0+$', r'\1', name_of(text))


def _classes(of_training, are_named: bool) -> set[str]:
  """Returns the classes; refuses two that may be one."""
  found, known = set(), {}
  for rows, labels in of_training:
    for row, name in enumerate(labels):
      if name is None or name in found:
        continue
      found.add(name)
      other = known.setdefault(folded(name), name)
      if other != name and not are_named:
        raise rows.wrong(
          f'{other!r} and {name!r} ({rows.place(row)})',
          'write a class in one way or, if they are two, give one another name',
        )
  return found


def _check_labels(rows: Rows, labels, seen, *, may_lack: bool) -> None:
  if not len(labels):
    raise ValueError(f'{rows.path} has no example: add some.')
  unlabelled = 0
  for row, name in enumerate(labels):
    if name is None:
      unlabelled += 1
    elif name not in seen:
      raise rows.wrong(
        f'the class {name!r} ({rows.place(row)}), unseen in {TRAIN}',
        'each class needs labelled training examples, written in one way',
      )
  if unlabelled and not may_lack:
    raise rows.wrong(
      f'{unlabelled:,} of {len(labels):,} without a label',
      'each example needs its label here: leave out those without one, or '
      f'move them to {TRAIN}',
    )


def _owners(rows: Rows, train: Rows) -> np.ndarray | None:
  if rows.owners is None:
    return None
  if train.owners is None:
    raise wrong(
      rows.path,
      rows.owner_field,
      f'owners here, and none in {TRAIN}',
      f'give them in all files, or in {TRAIN} alone',
    )
  names = {text: class_of(text) for text in dict.fromkeys(rows.owners)}
  for text, name in names.items():
    if _is_no_name(name):
      count = sum(text == other for other in rows.owners)
      raise wrong(
        rows.path,
        rows.owner_field,
        f'{text!r} in {count:,} of {len(rows.owners):,}',
        'say who owns each example; if it is an owner, give it another name',
      )
  return np.array([names[text] for text in rows.owners], object)


def _notes(rows, labels, class_names):
  """Says what is odd, and no reason to refuse the data."""
  elsewhere = {n for s, own in labels.items() if s != TRAIN for n in own}
  alone = [name for name in class_names if name not in elsewhere]
  train = rows[TRAIN]
  if 0 < len(alone) < len(class_names) / 2:
    yield (
      f'{train.path}: classes of no other file: {some(alone)}. If that means '
      f'that there is no label, {train.no_label}.'
    )
  yield from alike(f'{train.path}: classes', class_names)
  owners = map(class_of, set(train.owners or ()))
  yield from alike(f'{train.path}: owners', owners)


def some(names: Sequence[str], most: int = 5) -> str:
  """Returns the first names of a list, and how many more there are."""
  more = len(names) - most
  listed = ', '.join(names[:most])
  return f'{listed} and {more} more' if more > 0 else listed


def _title(kind, data_dir, labels) -> str:
  sizes = [f'{len(labels[name]):,} {name}' for name in SPLITS if name in labels]
  folder = os.path.basename(os.path.abspath(data_dir))
  title = (
    f'{kind} in {folder}: {", ".join(sizes[:-1])} and {sizes[-1]} examples'
  )
  if unlabelled := np.count_nonzero(labels[TRAIN] == UNKNOWN):
    title += f'; {unlabelled:,} of the training examples have no label'
  return title


def spec(
  count_owners: Callable[[str], int],
  count_server: Callable[[str], int],
  form: str = 'images',
  **fields,
) -> SourceSpec:
  """Returns the record of a format.

  The two functions count owners and the server's examples in a folder; where
  one fails, whoever loads the data reports the error.
  """
  return SourceSpec(
    has_native_split=True,
    may_lack_labels=True,
    is_of_user=True,
    form=form,
    defaults={**OWN_EXAMPLES, **FORMS[form].defaults},
    derive=functools.partial(_derive, count_owners, count_server),
    **fields,
  )


def _derive(count_owners, count_server, values, given) -> Mapping[str, Any]:
  """Returns the defaults on which the files decide."""
  del values
  folder = given.get('data_dir')
  if folder is None:
    return {}
  folder, counts = os.path.expanduser(folder), []
  for count in (count_owners, count_server):
    try:
      counts.append(count(folder))
    except (ValueError, OSError):
      counts.append(0)
  (owners, server), found = counts, {}
  if owners > 1 and given.get('partition', 'native') == 'native':
    found['partition'] = 'native'
  if server:
    found['server_examples'] = server
  return found
