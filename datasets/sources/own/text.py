"""The user's own texts, in the column `text` of train.csv and test.csv.

The files are those of `table`; columns beside `text`, `label` and `client_id`
are named and not read. A Keras layer gives words their numbers, in runs and in
exports: 0 follows the end of a text, 1 is any word without a number of its own.
Texts become lower case without punctuation and are cut at white space. Where an
alphabet has no blanks between words, as the Chinese one, each letter is a word.
"""

import functools

import numpy as np

from datasets.files import npz_files
from datasets.sources import run_profiles
from datasets.sources.own import rows, tables, word_numbers
from datasets.sources.own.rows import CLIENT, SERVER, TRAIN
from datasets.sources.source import Source
from tff_ssl.common.setting import Setting

TEXT = 'text'
# Characters of a word in the middle of all texts; more, and words are not
# parted by blanks.
_LONG = 20
_KNOWN = (TEXT, tables.LABEL, CLIENT)

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
  """Loads the texts; a training row may lack a label (`UNKNOWN`)."""
  paths = tables.paths_of('text', data_dir)
  found, rows_of = tables.rows_of(paths, [TEXT])
  labelled = rows.read(rows_of)
  texts = {split: texts_of(table) for split, table in found.items()}
  sizes = _count_words(found[TRAIN], texts[TRAIN])
  layer = word_numbers.of_texts(texts[TRAIN], length, vocabulary)
  words = word_numbers.words_of(layer)
  if not words:
    raise found[TRAIN].wrong(TEXT, 'no word at all', 'give texts')
  others = [n for n in found[TRAIN].columns if n not in _KNOWN]
  digest = npz_files.digest(paths.values())
  return labelled.source(
    'texts',
    data_dir,
    {split: word_numbers.encode(layer, own) for split, own in texts.items()},
    name='text',
    version=f'text-{digest}-{length}-{vocabulary}',
    mean=(0.0,),
    stddev=(1.0,),
    background=0,
    num_tokens=word_numbers.NUM_SPECIAL + len(words),
    facts=(
      f'{len(words):,} words have numbers of their own.',
      f'{sum(size > length for size in sizes):,} of {len(sizes):,} training '
      f'texts have more than {length} words, which are cut off.',
    ),
    notes=[
      *[f'{paths[TRAIN]}: not read are {", ".join(others)}.'] * bool(others),
      *rows.not_read(data_dir, paths.values()),
    ],
    preprocessing={'kind': 'text', 'words': list(words), 'length': length},
  )


def texts_of(table: tables.Table) -> list[str]:
  """Returns the texts of a table; that of an empty cell is empty."""
  if TEXT not in table.columns:
    raise ValueError(
      f'{table.path} has no column {TEXT!r}, but {list(table.columns)[:5]}: '
      f'call the column of the texts {TEXT!r}.'
    )
  return [text or '' for text in table.texts(TEXT)]


def _count_words(table: tables.Table, texts: list[str]) -> list[int]:
  """Returns the words of each text; refuses words that nothing parts here."""
  words = word_numbers.split(texts)
  sizes = [len(word) for one in words for word in one]
  # Names, of one word each, are short.
  most = _LONG if max(map(len, words), default=0) > 1 else _LONG / 2
  if sizes and np.median(sizes) > most:
    raise table.wrong(
      TEXT,
      f'words of {np.median(sizes):g} letters, such as '
      f'{max(texts, key=len)[:30]!r}',
      'put blanks between words',
    )
  return [len(one) for one in words]


SPEC = rows.spec(
  run_profiles.OWN_TEXTS,
  tables.count_owners,
  functools.partial(tables.count_rows, SERVER),
  name='text',
  description='your own texts, in the column text of <data_dir>/train.csv and '
  'test.csv, or .parquet',
  load=load,
  check_files=functools.partial(tables.paths_of, 'text'),
  form='tokens',
  settings=(LENGTH, VOCABULARY),
)
