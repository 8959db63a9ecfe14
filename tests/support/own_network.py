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


def _ending(input_shape, *layers, **of_input):
  return tf.keras.Sequential(
    [
      tf.keras.layers.Input(input_shape, **of_input),
      tf.keras.layers.Flatten(),
      *layers,
    ]
  )


def of_softmax(input_shape, num_classes, norm):
  return _ending(
    input_shape, tf.keras.layers.Dense(num_classes, activation='softmax')
  )


def of_softmax_and_dropout(input_shape, num_classes, norm):
  return _ending(
    input_shape,
    tf.keras.layers.Dense(num_classes, activation='softmax'),
    tf.keras.layers.Dropout(0.1),
  )


def of_sigmoid(input_shape, num_classes, norm):
  return _ending(
    input_shape, tf.keras.layers.Dense(num_classes, activation='sigmoid')
  )


def of_bytes(input_shape, num_classes, norm):
  return _ending(input_shape, tf.keras.layers.Dense(num_classes), dtype='uint8')


def of_one_size(input_shape, num_classes, norm):
  return _ending((28, 28, 1), tf.keras.layers.Dense(num_classes))


def of_two_arguments(input_shape, num_classes):
  return build(input_shape, num_classes, 'none')


def of_nothing(input_shape, num_classes, norm):
  build(input_shape, num_classes, norm)


def of_a_layer(input_shape, num_classes, norm):
  return tf.keras.layers.Dense(num_classes)


def of_a_slip(input_shape, num_classes, norm):
  return {}['x']


def of_weight_decay(input_shape, num_classes, norm):
  return _ending(
    input_shape, tf.keras.layers.Dense(num_classes, kernel_regularizer='l2')
  )


def of_no_input(input_shape, num_classes, norm):
  layers = tf.keras.layers
  return tf.keras.Sequential([layers.Flatten(), layers.Dense(num_classes)])


class _Subclassed(tf.keras.Model):
  def __init__(self, num_classes):
    super().__init__()
    self.flatten = tf.keras.layers.Flatten()
    self.dense = tf.keras.layers.Dense(num_classes)

  def call(self, inputs, training=None):
    return self.dense(self.flatten(inputs))


def of_a_subclass(input_shape, num_classes, norm):
  return _Subclassed(num_classes)


def of_a_built_subclass(input_shape, num_classes, norm):
  model = _Subclassed(num_classes)
  model.build((None, *input_shape))
  return model


def of_given_weights(input_shape, num_classes, norm):
  """One with a frozen part, whose weights are 7, and a head of its own."""
  base = _ending(
    input_shape,
    tf.keras.layers.Dense(3),
    tf.keras.layers.BatchNormalization(),
  )
  base.set_weights([weight * 0 + 7 for weight in base.get_weights()])
  base.trainable = False
  return tf.keras.Sequential([base, tf.keras.layers.Dense(num_classes)])
