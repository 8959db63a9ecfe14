"""The text source: how texts become numbers, and what is refused."""

import collections

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction import text as sklearn_text

from datasets.sources import catalogue
from datasets.sources.own import text

TRAIN = pd.DataFrame(
  {
    'text': ['The cat, the cat!', 'A DOG barks', None, "don't: a cat"],
    'label': ['cat', 'dog', None, 'cat'],
    'client_id': ['x', 'x', 'y', 'y'],
  }
)
TEST = pd.DataFrame({'text': ['the bird', 'dog cat'], 'label': ['cat', 'dog']})


@pytest.fixture
def folder(tmp_path):
  write(tmp_path, 'train', TRAIN)
  write(tmp_path, 'test', TEST)
  return tmp_path


def write(folder, split, frame):
  frame.to_csv(folder / f'{split}.csv', index=False)


def load(folder, **options):
  return catalogue.load(
    'text', data_dir=str(folder), cache_dir='unused', **options
  )


def test_numbers_by_hand(folder):
  source = load(folder, length=4, vocabulary=3)
  # cat occurs three times, the and a twice, all others once.
  words = source.preprocessing['words']
  assert words[0] == 'cat' and set(words[1:]) == {'the', 'a'}
  number = {word: place + 2 for place, word in enumerate(words)}
  cat, the, a = number['cat'], number['the'], number['a']
  np.testing.assert_array_equal(
    source.train.examples,
    [[the, cat, the, cat], [a, 1, 1, 0], [0, 0, 0, 0], [1, a, cat, 0]],
  )
  test = [[the, 1, 0, 0], [1, cat, 0, 0]]
  np.testing.assert_array_equal(source.test.examples, test)
  assert source.form == 'tokens' and source.num_tokens == 5
  assert source.class_names == ('cat', 'dog')
  assert source.train.labels.tolist() == [0, 1, -1, 0]
  assert source.train.client_ids.tolist() == list('xxyy')
  assert source.preprocessing['length'] == 4
  assert load(folder, length=3).version != source.version


def test_counts_are_those_of_scikit_learn():
  texts = [
    'Numbers of ÜBER-sized words; über again.',
    'tabs\tand\nlines,  and spaces',
    'words words (words)',
  ]
  layer = text.layer_of_texts(texts, 10, 100)
  words = layer.get_vocabulary(include_special_tokens=False)
  counter = sklearn_text.CountVectorizer(
    preprocessor=lambda text: ''.join(
      c for c in text.lower() if c not in '-;.,()'
    ),
    token_pattern=r'\S+',
  )
  counts = counter.fit_transform(texts).toarray()
  names = counter.get_feature_names_out().tolist()
  assert sorted(words) == names
  numbers = text.encode(layer, texts)
  for row, expected in zip(numbers, counts, strict=True):
    found = collections.Counter(words[number - 2] for number in row if number)
    assert [found[name] for name in names] == expected.tolist()


def test_given_words_give_the_same_numbers(folder):
  source = load(folder)
  words, length = map(source.preprocessing.get, ('words', 'length'))
  layer = text.layer_of_words(words, length)
  numbers = text.encode(layer, TRAIN['text'].fillna('').tolist())
  np.testing.assert_array_equal(numbers, source.train.examples)


def test_other_columns_are_named(folder):
  assert load(folder).notes == ()
  write(folder, 'train', TRAIN.assign(source='web', year=3))
  assert 'not read are source, year' in load(folder).notes[0]


@pytest.mark.parametrize(
  'train, message',
  [
    (TRAIN.rename(columns={'text': 'body'}), "no column 'text'"),
    (TRAIN.assign(text='!?'), 'no word at all'),
    (TRAIN.assign(label=None), 'no label at all'),
  ],
)
def test_refused_files(folder, train, message, refusal):
  write(folder, 'train', train)
  with refusal(message):
    load(folder)


def test_owners_and_the_server_decide_on_defaults(folder):
  given = {'data_dir': str(folder)}
  values = catalogue.SOURCES['text'].derive({}, given)
  assert values == {'partition': 'native'}
  write(folder, 'server', TRAIN[['text', 'label']].dropna())
  assert catalogue.SOURCES['text'].derive({}, given)['server_examples'] == 3
  source = load(folder)
  assert len(source.server.labels) == 3 and source.server.labels.tolist() == [
    0,
    1,
    0,
  ]


def test_texts_that_look_like_numbers_stay_as_they_are(folder, tmp_path):
  texts = pd.DataFrame({'text': ['2020', '', '007'], 'label': ['a', 'b', 'a']})
  write(folder, 'train', texts)
  write(folder, 'test', texts)
  source = load(folder)
  assert sorted(source.preprocessing['words']) == ['007', '2020']
  path = tmp_path / 'new.CSV'
  texts[['text']].to_csv(path, index=False)
  read, _ = catalogue.decode(str(path), (), source.preprocessing)
  assert read.tolist() == ['2020', '', '007']
