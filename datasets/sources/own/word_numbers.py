"""How texts become numbers of words: a Keras layer, in runs and in exports.

Texts become lower case without punctuation, and are cut at white space.
Where an alphabet has no blanks between words, as the Chinese one, each letter
is a word. 0 follows the end of a text, 1 stands for a word without a number of
its own, and words have the numbers from 2.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

import numpy as np
from etils import epy

# It takes seconds to import, which --help does not need.
with epy.lazy_imports():
  import tensorflow as tf

NUM_SPECIAL = 2
# In RE2, TensorFlow's regular expressions; soft hyphens are not seen either.
_PUNCTUATION = rf'[{re.escape(string.punctuation)}\p{{P}}\x{{ad}}]'
# Those that Python knows, and the one without width.
_BLANKS = r'[\s\x{b}\x{1c}-\x{1f}\x{85}\p{Z}\x{200b}]+'
_WITHOUT_BLANKS = (
  r'([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])'
)


def of_texts(texts: Sequence[str], length: int, most: int):
  """Returns a layer with the words that texts have most often, `most` or fewer.

  The layer maps strings `[N]` to `int32 [N, length]`. Of equally frequent
  words, the later ones in alphabetical order come first.
  """
  layer = _layer(length, most + NUM_SPECIAL)
  layer.adapt(tf.constant(list(texts)))
  return layer


def of_words(words: Sequence[str], length: int):
  """Returns the layer with given words, in the order of their numbers."""
  layer = _layer(length, None)
  layer.set_vocabulary(list(words))
  return layer


def words_of(layer) -> tuple[str, ...]:
  """Returns the words of a layer, in the order of their numbers."""
  return tuple(layer.get_vocabulary(include_special_tokens=False))


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
