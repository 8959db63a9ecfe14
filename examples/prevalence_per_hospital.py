"""Prevalence per hospital in, classifier out: no image has a label.

Five systems of hospitals share no patient data, and no diagnosis leaves a
hospital; what each hospital knows is the prevalence of the ten "diseases" (here
digits) among its patients. FedUL learns to tell them apart from that: it trains
each system's model to tell its hospitals apart, through a layer that is fixed
by the prevalences. `TF_CPP_MIN_LOG_LEVEL=2 python -m
examples.prevalence_per_hospital FOLDER`; the data are inside scikit-learn. The
classifier, an ordinary Keras model, ends up in FOLDER.

With images in folders and a table of prevalences there is nothing to write:

    python -m experiments.run --process=fedul --dataset=image_sets \\
        --data_dir=FOLDER --clients_per_round=5 --run_dir=RUN
    python -m experiments.export RUN

where FOLDER has train/<system>/<hospital>/*.png, prevalence.csv (system,
hospital and a column for each class) and test/<class>/*.png; the classifier is
a SavedModel in RUN/classifier.
"""

import collections
import pathlib
import sys

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from sklearn import datasets as sklearn_datasets

import tff_ssl
from tff_ssl.models import dense

INPUT_SHAPE = (8, 8, 1)
NUM_CLASSES = 10
NUM_SYSTEMS, HOSPITALS = 5, 12


def load_systems(seed=0):
  """Returns the hospitals of each system, and labelled test examples.

  Returns:
    For each system a list of `(images float32 [n, 8, 8, 1], prevalence
    float32 [10])`, one for each hospital, and `(images, labels)` for the test.
  """
  images, labels = sklearn_datasets.load_digits(return_X_y=True)
  images = np.float32(images.reshape(-1, *INPUT_SHAPE) / 16)
  rng = np.random.default_rng(seed)
  systems = []
  for patients in np.split(rng.permutation(1400), NUM_SYSTEMS):
    # Prevalences must differ between hospitals, or nothing can be learnt: each
    # disease is more common in some of them than in others.
    leaning = rng.dirichlet(np.full(HOSPITALS, 0.5), size=NUM_CLASSES)
    chosen = np.array(
      [rng.choice(HOSPITALS, p=leaning[labels[p]]) for p in patients]
    )
    hospitals = [patients[chosen == h] for h in range(HOSPITALS)]
    systems.append(
      [
        (
          images[own],
          np.bincount(labels[own], minlength=NUM_CLASSES) / max(1, len(own)),
        )
        for own in hospitals
      ]
    )
  return systems, (images[1400:], labels[1400:])


def as_client(index, hospitals):
  """Returns a system's data as FedUL takes them: images, and no label."""
  sizes = np.array([len(images) for images, _ in hospitals])
  examples = collections.OrderedDict(
    x=np.concatenate([images for images, _ in hospitals]),
    # In place of a label: which hospital an image is from.
    y=np.repeat(np.arange(len(hospitals)), sizes).astype(np.int32),
  )
  context = collections.OrderedDict(
    client=np.int32(index),
    group=np.int32(0),
    class_priors=np.float32([prevalence for _, prevalence in hospitals]),
    set_shares=np.float32(sizes / sizes.sum()),
  )
  return collections.OrderedDict(
    examples=tf.data.Dataset.from_tensors(examples),
    context=tf.data.Dataset.from_tensors(context),
  )


def main(folder, num_rounds=8):
  """Trains the classifier and saves it as `FOLDER/classifier.keras`."""
  systems, (test_images, test_labels) = load_systems()
  clients = [as_client(*numbered) for numbered in enumerate(systems)]
  prevalences = [[known for _, known in hospitals] for hospitals in systems]
  for index, own in enumerate(tff_ssl.check_class_priors(prevalences)):
    # How much errors in the prevalences are magnified: hundreds are much.
    condition = tff_ssl.condition_number(own)
    print(f'system {index}: {len(own)} hospitals, {condition:.1f}')
  keras_model = dense.dense(INPUT_SHAPE, NUM_CLASSES)
  model = tff_ssl.from_keras(keras_model)
  tff_ssl.install_context()
  process = tff_ssl.build_fedul(
    model,
    data_spec=tff_ssl.ClientDataSpec(
      tff_ssl.image_element_spec(INPUT_SHAPE, dtype=tf.float32),
      in_context=True,
      priors_shape=(HOSPITALS, NUM_CLASSES),
    ),
    views=tff_ssl.PlainViews(),
    client_training=tff_ssl.TrainingPlan(
      tff.learning.optimizers.build_adam(0.003), batch_size=32, epochs=4
    ),
    l1_weight=0.0,
  )
  state = process.initialize()
  for round_num in range(num_rounds):
    state, _ = process.next(state, clients)
    weights = process.get_model_weights(state)
    logits, _ = model.predict(*weights, test_images, training=False)
    accuracy = np.mean(np.argmax(logits, axis=1) == test_labels)
    print(f'accuracy after round {round_num}: {accuracy:.3f}')
  weights.assign_weights_to(keras_model)
  path = pathlib.Path(folder, 'classifier.keras')
  path.parent.mkdir(parents=True, exist_ok=True)
  keras_model.save(path)
  print(f'The classifier, from images in [0, 1] to logits, is in {path}.')


if __name__ == '__main__':
  if len(sys.argv) != 2:
    sys.exit('usage: python -m examples.prevalence_per_hospital FOLDER')
  main(sys.argv[1])
