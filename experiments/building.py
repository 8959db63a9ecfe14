"""From settings and data to a process that takes client keys."""

import tensorflow as tf
import tensorflow_federated as tff

from datasets import split_manifest, store_readers
from experiments import client_states, fedul_flags
from tff_ssl import (
  augmentation,
  models,
  objectives,
  optimizer_wrappers,
  optimizers,
)
from tff_ssl.algorithms import PROCESSES
from tff_ssl.simulation import client_reader
from tff_ssl.templates import client_data

# Operations and strength.
_RAND_AUGMENT = {
  'rand_augment_1_10': (1, 10),
  'rand_augment_10_1': (10, 1),
  # Behind the weak view, nothing: FedLabel's Figure 9.
  'weak': (0, 1),
}


def build_model(settings, input_shape, num_classes):
  """Returns the `FunctionalModel` of a run; its weights are float32.

  Args:
    settings: What has `model`, `norm` and `precision`.
    input_shape: Height, width and channels.
    num_classes: Number of classes.
  """
  earlier = tf.keras.mixed_precision.global_policy()
  if settings.precision == 'bfloat16':
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
  try:
    return models.build(settings.model, input_shape, num_classes, settings.norm)
  finally:
    tf.keras.mixed_precision.set_global_policy(earlier)


def build_views(settings, source):
  """Returns the augmentation of a run.

  Raises:
    ValueError: If `augment_crop` is no shift within the images.
  """
  if not PROCESSES[settings.process].augments:
    return augmentation.PlainViews()
  side = min(source.train.images.shape[1:3])
  if (settings.augment_crop or 0) >= side:
    raise ValueError(
      f'--augment_crop={settings.augment_crop} must be below {side}, the '
      'shorter side of the images.'
    )
  flip = settings.augment_flip
  common = {
    'mean': source.mean,
    'stddev': source.stddev,
    'flip': source.mirrorable if flip is None else flip,
    'crop_padding': settings.augment_crop,
    'rotation': settings.augment_rotation or 0.0,
    'fill': source.background,
  }
  # None where the process takes no strong view.
  if settings.augmentation in (None, 'fixmatch'):
    return augmentation.ImageViews(**common)
  num_ops, strength = _RAND_AUGMENT[settings.augmentation]
  return augmentation.rand_augment_views(num_ops, strength, **common)


def build_process(settings, spec, model, data):
  """Returns the learning process of a run, over client data.

  Args:
    settings: From `experiments.settings.make`.
    spec: The `ProcessSpec`.
    model: From `build_model`.
    data: `RunData`.

  Returns:
    A `tff_ssl.templates.composition.ComposedProcess`.
  """
  # What is None was not given, or has no effect: the builder's default it is.
  arguments = {
    name: value
    for name in spec.settings
    if (value := getattr(settings, name)) is not None
  }
  in_slots = 'slot' in (settings.start_model, settings.client_momentum)
  if settings.client_momentum == 'slot':
    arguments['num_slots'] = settings.clients_per_round
  if 'proxy_task' in arguments:
    arguments['proxy_task'] = objectives.PROXY_TASKS[settings.proxy_task]
  if 'test_prior' in arguments:
    arguments['test_prior'] = fedul_flags.parse_prior(settings.test_prior)
  if spec.keeps_client_state:
    arguments['client_state_dir'] = client_states.folder(settings)
  if spec.counts_clients:
    arguments['num_clients'] = data.partition.num_clients
  if settings.mask == 'redrawn':
    arguments['redrawn_mask_ratio'] = settings.mask_ratio
  arguments['client_optimizer'] = _optimizer(
    settings, settings.learning_rate, settings.client_clip_norm
  )
  if spec.has_server_training:
    arguments['server_data'] = store_readers.server_reader(data.store)
    arguments['server_optimizer'] = _optimizer(
      settings, settings.server_learning_rate, settings.server_clip_norm
    )
  return spec.build(
    model,
    data_spec=client_data.ClientDataSpec(
      store_readers.element_spec(data.store),
      in_context=True,
      in_slots=in_slots,
      priors_shape=(
        data.partition.class_priors.shape[1:] if _sees_sets(data) else None
      ),
    ),
    views=build_views(settings, data.source),
    schedule=_schedule(settings),
    seed=settings.seed,
    **arguments,
  )


def read_from_store(process, data):
  """Returns the process over client keys, reading from the client store."""
  return client_reader.compose_with_reader(process, build_reader(data))


def build_reader(data):
  """Returns the reader of a run's clients, with priors of sets if seen."""
  if not _sees_sets(data):
    return store_readers.client_reader(data.store)
  return store_readers.set_reader(
    data.store, data.partition.class_priors, data.partition.set_shares
  )


def _sees_sets(data):
  return data.labels_at == split_manifest.IN_SETS


def _optimizer(settings, learning_rate, clip_norm):
  if settings.client_optimizer == 'adam':
    optimizer = tff.learning.optimizers.build_adam(learning_rate)
    if settings.weight_decay:
      optimizer = optimizer_wrappers.add_weight_decay(
        optimizer, settings.weight_decay
      )
  else:
    optimizer = optimizers.build_nesterov_sgd(
      learning_rate,
      settings.momentum,
      nesterov=bool(settings.nesterov),
      weight_decay=settings.weight_decay,
    )
  if clip_norm is None:
    return optimizer
  return optimizer_wrappers.clip_gradients(optimizer, clip_norm)


def _schedule(settings):
  if settings.schedule == 'constant':
    return None
  if settings.schedule == 'exponential':
    return optimizers.exponential(settings.schedule_decay)
  return optimizers.cosine(
    settings.schedule_steps,
    settings.schedule_coefficient,
    settings.schedule_warmup_steps,
    scale=settings.schedule_scale,
  )
