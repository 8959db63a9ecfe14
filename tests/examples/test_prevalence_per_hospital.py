import re

import numpy as np
import pytest
import pythons
import tensorflow as tf

from examples import prevalence_per_hospital

pytestmark = pytest.mark.notebooks


def test_prevalences_are_shares_of_classes_that_differ():
  systems, (test_images, test_labels) = prevalence_per_hospital.load_systems()
  assert [len(hospitals) for hospitals in systems] == [12] * 5
  assert sum(len(images) for own in systems for images, _ in own) == 1400
  assert len(test_images) == len(test_labels) == 397
  for hospitals in systems:
    prevalences = np.stack([prevalence for _, prevalence in hospitals])
    np.testing.assert_allclose(prevalences.sum(axis=1), 1)
    assert np.linalg.matrix_rank(prevalences) == 10


def test_accuracy_without_a_label(tmp_path):
  module = 'examples.prevalence_per_hospital'
  finished = pythons.run('-m', module, tmp_path, timeout=300)
  assert finished.returncode == 0, finished.stderr[-2000:]
  accuracies = [
    float(number)
    for number in re.findall(r'accuracy after .*: ([\d.]+)', finished.stdout)
  ]
  assert len(accuracies) == 8
  # Seen: .87. Chance is .1.
  assert accuracies[-1] > 0.75
  # What is saved is what was measured, and needs nothing of this library.
  classifier = tf.keras.models.load_model(tmp_path / 'classifier.keras')
  _, (images, labels) = prevalence_per_hospital.load_systems()
  classes = np.argmax(classifier.predict(images, verbose=0), axis=1)
  assert np.mean(classes == labels) == pytest.approx(accuracies[-1], abs=0.001)
