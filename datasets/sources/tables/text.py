"""The user's own texts: `<data_dir>/train.csv` and `<data_dir>/test.csv`.

Parquet files (`train.parquet`) do as well. There may be a validation file, and
a file `server` with the labelled texts of the server. A row is an example:

* `text`: the text, which may be empty;
* `label`: the class, a number or a word; in the training file it may be empty;
* `client_id` (optional): the owner of the text. It is in all files, or in the
  training file alone;
* other columns are not read.

`word_numbers` says how texts become numbers of words. The words of the training
file that occur most often have numbers; words beyond the length are cut off.
"""

from __future__ import annotations

import functools

from etils import epy

from datasets.sources import run_profiles
from datasets.sources.source import Source
from datasets.sources.source_spec import SourceSpec
from datasets.sources.tables import table_files, word_numbers
from datasets.sources.tables.table_files import (
  CLIENT,
  LABEL,
  SERVER,
  VALIDATION,
)
from tff_ssl.setting import Setting

# It takes a second to import, which --help does not need.
with epy.lazy_imports():
  import pandas as pd

TEXT = 'text'

LENGTH = Setting(
  'text_length',
  int,
  'Words of a text that are read; the rest is cut off.',
  default=64,
  at_least=1,
)
VOCABULARY = Setting(
  'text_vocabulary',
  int,
  'How many words have a number of their own: those that the training texts '
  'have most often.',
  default=5000,
  at_least=1,
)


def load(
  data_dir: str | None,
  cache_dir: str,
  length: int = LENGTH.default,
  vocabulary: int = VOCABULARY.default,
) -> Source:
  """Loads the texts.

  Args:
    data_dir: The folder with the files.
    cache_dir: Ignored: the files are read in place.
    length: Words of a text that are read.
    vocabulary: The most words that have numbers of their own.

  Returns:
    The source. Its classes are the labels, numbers in their order or words in
    alphabetical order. A training row may lack a label (`UNKNOWN`).

  Raises:
    ValueError: If a file is absent or unreadable, or the tables are not as
      described above.
  """
  del cache_dir
  paths = check_files(data_dir)
  frames = table_files.read(paths, [TEXT])
  texts = {
    split: texts_of(frame, paths[split]) for split, frame in frames.items()
  }
  classes = table_files.classes_of(frames, paths['train'])
  layer = word_numbers.of_texts(texts['train'], length, vocabulary)
  words = word_numbers.words_of(layer)
  if not words:
    raise table_files.wrong(
      paths['train'], TEXT, 'no word at all', 'give texts'
    )
  examples = {
    split: word_numbers.encode(layer, texts[split]) for split in frames
  }
  splits = table_files.splits_of(frames, paths, classes, examples)
  digest = table_files.digest(paths.values())
  return Source(
    name='text',
    version=f'text-{digest}-{length}-{vocabulary}',
    title=table_files.title(
      'texts', data_dir, {name: s.labels for name, s in splits.items()}
    ),
    train=splits['train'].followed_by(splits.get(SERVER)),
    test=splits['test'],
    validation=splits.get(VALIDATION),
    num_classes=len(classes),
    names=tuple(map(str, classes)),
    mean=(0.0,),
    stddev=(1.0,),
    background=0,
    mirrorable=False,
    num_server=len(frames.get(SERVER, ())),
    num_tokens=word_numbers.NUM_SPECIAL + len(words),
    notes=_notes(frames['train'], paths['train']),
    preprocessing={'kind': 'text', 'words': list(words), 'length': length},
  )


def check_files(data_dir: str | None) -> dict[str, str]:
  """Returns the files by split after checking that they exist.

  Args:
    data_dir: As in `load`.

  Raises:
    ValueError: If a training or test file is absent, or there are two.
  """
  return table_files.check_files('text', data_dir)


def texts_of(frame: pd.DataFrame, path: str) -> list[str]:
  """Returns the texts of a table; that of an empty cell is empty.

  Args:
    frame: The table.
    path: The file, for messages.

  Raises:
    ValueError: If there is no column of texts.
  """
  if TEXT not in frame:
    raise ValueError(
      f'{path} has no column {TEXT!r}, but {list(frame.columns)[:5]}: name the '
      'column of the texts so.'
    )
  return frame[TEXT].fillna('').map(str).tolist()


def _notes(frame, path: str) -> tuple[str, ...]:
  others = [c for c in frame.columns if c not in (TEXT, LABEL, CLIENT)]
  return (f'{path}: not read are {", ".join(others)}.',) if others else ()


SPEC = SourceSpec(
  name='text',
  description='your own texts, in the column text of <data_dir>/train.csv and '
  'test.csv, or .parquet',
  load=load,
  check_files=check_files,
  form='tokens',
  settings=(LENGTH, VOCABULARY),
  has_native_split=True,
  may_lack_labels=True,
  is_of_user=True,
  defaults=functools.partial(table_files.defaults_of, run_profiles.OWN_TEXTS),
)
