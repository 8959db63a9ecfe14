"""The user's own texts, in the column `text` of train.csv and test.csv.

A Keras layer gives words their numbers, in runs and in exports: 0 follows the
end of a text, 1 is any word without a number of its own. Texts become lower
case without punctuation and are cut at white space; where an alphabet has no
blanks between words, as the Chinese one, each letter is a word.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Sequence

import numpy as np
from etils import epy

from datasets.files import npz_files
from datasets.sources.own import rows, tables
from datasets.sources.own.rows import CLIENT, SERVER, TRAIN
from datasets.sources.source import Source
from tff_ssl.common.setting import Setting

# It takes seconds to import, which --help does not need.
with epy.lazy_imports():
  import tensorflow as tf

TEXT = 'text'
# Characters of a word in the middle of all texts; more, and words are not
# parted by blanks.
_LONG = 20
_KNOWN = (TEXT, tables.LABEL, CLIENT)

_NUM_SPECIAL = 2
# In RE2, TensorFlow's regular expressions; soft hyphens are not seen either.
_PUNCTUATION = rf'[{re.escape(string.punctuation)}\p{{P}}\x{{ad}}]'
# Those that Python knows, and the one without width.
_BLANKS = r'[\s\x{b}\x{1c}-\x{1f}\x{85}\p{Z}\x{200b}]+'
_WITHOUT_BLANKS = (
  r'([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])'
)

LENGTH = Setting(
  'text_length',
  int,
  'Words of a text that are read; the rest is cut off.',
  default=64,
  at_least=1,
  needed_by="a user's own texts",
)
VOCABULARY = Setting(
  'text_vocabulary',
  int,
  'How many words have a number of their own: the most frequent ones of the '
  'training texts.',
  default=5000,
  at_least=1,
  needed_by="a user's own texts",
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
  layer = layer_of_texts(texts[TRAIN], length, vocabulary)
  words = layer.get_vocabulary(include_special_tokens=False)
  if not words:
    raise found[TRAIN].wrong(TEXT, 'no word at all', 'give texts')
  others = [n for n in found[TRAIN].columns if n not in _KNOWN]
  digest = npz_files.digest(paths.values())
  return labelled.source(
    'texts',
    data_dir,
    {split: encode(layer, own) for split, own in texts.items()},
    name='text',
    version=f'text-{digest}-{length}-{vocabulary}',
    mean=(0.0,),
    stddev=(1.0,),
    num_tokens=_NUM_SPECIAL + len(words),
    facts=(
      f'{len(words):,} words have numbers of their own.',
      f'{sum(size > length for size in sizes):,} of {len(sizes):,} training '
      f'texts have more than {length} words, which are cut off.',
    ),
    notes=[
      *[f'{paths[TRAIN]}: not read are {", ".join(others)}.'] * bool(others),
      *rows.not_read(data_dir, paths.values()),
    ],
    preprocessing={'kind': 'text', 'words': words, 'length': length},
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
  words = split(texts)
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


def layer_of_texts(texts: Sequence[str], length: int, most: int):
  """Returns a layer with the words that texts have most often, `most` or fewer.

  The layer maps strings `[N]` to `int32 [N, length]`. Of equally frequent
  words, the later ones in alphabetical order come first.
  """
  layer = _layer(length, most + _NUM_SPECIAL)
  layer.adapt(tf.constant(list(texts)))
  return layer


def layer_of_words(words: Sequence[str], length: int):
  """Returns the layer with given words, in the order of their numbers."""
  layer = _layer(length, None)
  layer.set_vocabulary(list(words))
  return layer


def encode(layer, texts: Sequence[str]) -> np.ndarray:
  """Returns the numbers of the words of texts, `int32 [N, length]`."""
  return layer(tf.constant(list(texts), tf.string)).numpy().astype(np.int32)


def split(texts: Sequence[str]) -> list[list[str]]:
  """Returns the words of texts."""
  plain = _standardize(tf.constant(list(texts), tf.string)).numpy()
  return [text.decode().split() for text in plain]


def _layer(length, max_tokens):
  return tf.keras.layers.TextVectorization(
    max_tokens=max_tokens,
    standardize=_standardize,
    output_sequence_length=length,
  )


def _standardize(texts):
  # Keras's own leaves capital letters beyond ASCII as they are.
  lower = tf.strings.lower(texts, encoding='utf-8')
  parted = tf.strings.regex_replace(lower, _BLANKS, ' ')
  plain = tf.strings.regex_replace(parted, _PUNCTUATION, '')
  return tf.strings.regex_replace(plain, _WITHOUT_BLANKS, r' \1 ')


def _decode(path, input_shape, preprocessing):
  del input_shape
  texts, known = texts_of(tables.read(path)), set(preprocessing['words'])
  said = []
  for words in split(texts):
    unknown = sum(word not in known for word in words)
    odd = f'{unknown} of {len(words)} words are unknown'
    said.append(odd if 2 * unknown > len(words) else '')
  return np.array(texts, object), said


SPEC = rows.spec(
  tables.count_owners,
  functools.partial(tables.count_rows, SERVER),
  name='text',
  description='your own texts, in the column text of <data_dir>/train.csv and '
  'test.csv, or .parquet',
  builder=load,
  check_files=functools.partial(tables.paths_of, 'text'),
  form='tokens',
  signs=tables.SIGNS,
  fits=functools.partial(tables.has_column, TEXT),
  endings=tables.ENDINGS,
  decode=_decode,
  settings=(LENGTH, VOCABULARY),
)
