"""Exported classifiers: what is read of them, and what is refused."""

import json
import shutil
import types

import costs
import damage
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from datasets.sources import catalogue
from experiments.artifacts import durable_files, exported_models


def test_it_says_what_the_saved_model_says(exported):
  loaded = exported_models.load(exported)
  assert loaded.input_shape == (4, 5, 1)
  assert loaded.class_names == ('a', 'b', 'c,d')
  images = np.random.default_rng(0).integers(0, 256, (700, 4, 5, 1), np.uint8)
  found = loaded.probabilities(images)
  classify = tf.saved_model.load(str(exported / 'classifier'))
  expected = tf.nn.softmax(classify(images))
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
  # Whole, or in the run's folder.
  same = exported_models.load(exported / 'classifier')
  np.testing.assert_array_equal(same.probabilities(images), found)


def write_names(names):
  return lambda folder: (folder / 'classes.json').write_text(json.dumps(names))


def write_of_before(folder):
  """It does not say the shape of examples."""
  values = durable_files.seal({'kind': 'pictures', 'side': 4})
  (folder / 'preprocessing.json').write_text(json.dumps(values))


def write_other_model(folder):
  module = tf.Module()
  module.double = tf.function(
    lambda x: 2 * x, input_signature=[tf.TensorSpec([None])]
  )
  tf.saved_model.save(module, str(folder))


@pytest.mark.parametrize(
  'damage, message',
  [
    (shutil.rmtree, 'name a folder that experiments.export wrote'),
    (lambda f: (f / 'saved_model.pb').write_bytes(b''), 'a damaged SavedModel'),
    (lambda f: shutil.rmtree(f / 'variables'), 'a damaged SavedModel'),
    (lambda f: (f / 'classes.json').write_text('{'), 'damaged classes.json'),
    (
      lambda f: (f / 'classes.json').write_text('{"class_names": [["a"]]}'),
      'damaged classes.json',
    ),
    *(
      (
        lambda f, text=text: (f / 'preprocessing.json').write_text(text),
        'damaged preprocessing.json',
      )
      for text in (
        *('[]', '3', '[' * 10**5, '{"kind": "table"}'),
        '{"kind": "table", "numbers": {"a": null}, "words": {}}',
        '{"kind": "table", "numbers": {}, "words": {"a": [1]}}',
      )
    ),
    (write_of_before, 'a preprocessing.json of another model'),
    (write_names(['a']), 'damaged classes.json'),
    (write_names({'class_names': ['a']}), '3 classes and 1 names'),
    (write_other_model, 'a SavedModel of another program'),
  ],
)
def test_what_cannot_be_loaded(damage, message, exported, tmp_path):
  folder = tmp_path / 'model'
  shutil.copytree(exported / 'classifier', folder)
  damage(folder)
  with pytest.raises(ValueError) as caught:
    exported_models.load(folder)
  text = str(caught.value)
  assert message in text and '\n' not in text and text.startswith('holds ')


def test_a_classifier_that_is_not_exported_yet(exported, tmp_path, refusal):
  shutil.copy(exported / 'flags.txt', tmp_path)
  with refusal(f'write it with python -m experiments.export {tmp_path}.'):
    exported_models.load(tmp_path)


def test_damaged_names(exported, tmp_path, monkeypatch):
  path = _copy(exported, tmp_path, monkeypatch) / 'classes.json'
  damage.try_all(
    path,
    lambda: exported_models.load(path.parent).class_names,
    {**damage.TEXT, **damage.json_types(path.read_bytes())},
    # Other names.
    may_differ=['flip', 'a long line', "('class_names', "],
    names=['classes.json'],
  )


@pytest.mark.parametrize(
  'name, shape, content',
  [
    (
      *('new.csv', (3,)),
      {
        'kind': 'table',
        'numbers': {'a': 1.0},
        'ranges': {'a': [0.0, 2.0]},
        'words': {'b': ['x', 'y']},
      },
    ),
    *costs.rest_in(
      'parts',
      [
        ('new.csv', (), {'kind': 'text', 'words': ['x', 'y'], 'length': 3}),
        ('new.png', (4, 5, 1), {'kind': 'image_folder', 'side': 4}),
      ],
      keep=0,
    ),
  ],
)
def test_damaged_preprocessing(
  name, shape, content, exported, tmp_path, monkeypatch
):
  path = _copy(exported, tmp_path, monkeypatch, shape) / 'preprocessing.json'
  exported_models.write_facts(path.parent, ['a', 'b', 'c,d'], content, shape)
  file = tmp_path / name
  file.write_text('a,b,text\n1,x,\n2,y,\n')
  if name == 'new.csv' and shape:
    file.write_text('a,b\n1,x\n2,y\n')
  elif name == 'new.png':
    Image.fromarray(np.zeros((4, 5), np.uint8)).save(file)

  def read():
    loaded = exported_models.load(path.parent)
    examples, _ = catalogue.decode(
      str(file), loaded.input_shape, loaded.preprocessing
    )
    return examples.tolist()

  damage.try_all(
    path,
    read,
    {**damage.TEXT, **damage.json_types(path.read_bytes())},
    # Nothing else is wrong with the file than that it does not fit.
    names=['preprocessing.json', str(file)],
  )


def _copy(exported, tmp_path, monkeypatch, shape=None):
  """Copies a classifier, whose graph is read once; its input is of `shape`."""
  folder = tmp_path / 'model'
  shutil.copytree(exported / 'classifier', folder)
  model = tf.saved_model.load(str(folder))
  if shape is not None:
    serve = model.signatures['serving_default']
    served = types.SimpleNamespace(
      structured_input_signature=((), {'x': tf.TensorSpec([None, *shape])}),
      structured_outputs=serve.structured_outputs,
    )
    model = types.SimpleNamespace(
      signatures={'serving_default': served}, with_probabilities=None
    )
  monkeypatch.setattr(tf.saved_model, 'load', lambda folder: model)
  return folder


@pytest.mark.parts
@pytest.mark.parametrize(
  'name, mutators',
  [
    ('saved_model.pb', damage.BYTES),
    ('variables/variables.index', damage.CUT),
    ('variables/variables.data-00000-of-00001', damage.CUT),
  ],
)
def test_damaged_models(name, mutators, exported, tmp_path):
  folder = tmp_path / 'model'
  shutil.copytree(exported / 'classifier', folder)
  images = np.zeros((2, 4, 5, 1), np.uint8)
  damage.try_all(
    folder / name,
    lambda: exported_models.load(folder).probabilities(images).tolist(),
    mutators,
    names=['holds '],
    places=['a folder', 'a link to nowhere'],
  )
