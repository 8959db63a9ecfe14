"""Exported classifiers: what is read of them, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from experiments.artifacts import exported_models


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


def test_an_export_of_an_older_checkpoint_has_numbers(export_of):
  run_dir = export_of(None)
  assert not (run_dir / 'classifier' / 'classes.json').exists()
  assert exported_models.load(run_dir).class_names == ('0', '1', '2')


def write_names(names):
  return lambda folder: (folder / 'classes.json').write_text(json.dumps(names))


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
