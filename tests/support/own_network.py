"""A network of a user's own."""

import tensorflow as tf

WIDTH = 8


def of_two(input_shape, num_classes, norm):
  """One for two classes, whatever the data have."""
  return build(input_shape, 2, norm)


def of_pixels(input_shape, num_classes, norm):
  """One that scales its inputs."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.Input(input_shape),
      tf.keras.layers.Rescaling(1 / 255, name='scale'),
      build(input_shape, num_classes, norm),
    ]
  )


def build(input_shape, num_classes, norm):
  assert norm == 'none'
  return tf.keras.Sequential(
    [
      tf.keras.layers.Input(input_shape),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(num_classes),
    ]
  )
