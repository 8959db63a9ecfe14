"""A run put together from its settings: data, network, views and process."""

import dataclasses
from typing import Any

from datasets.records import split_manifest
from datasets.store import client_store
from experiments.artifacts import run_folder
from experiments.config.command_line import UsageError
from experiments.parts import aggregators, optimizers, views
from experiments.preparing import cohort, execution_context, run_data
from experiments.preparing import data as data_lib
from tff_ssl import models
from tff_ssl.algorithms import ProcessSpec
from tff_ssl.objectives.supervised import BALANCED, CLASS_WEIGHTS
from tff_ssl.objectives.two_experts import TRUTH
from tff_ssl.simulation import client_reader
from tff_ssl.templates import client_data


@dataclasses.dataclass(frozen=True)
class Run:
  """What a run computes with; nothing in it has been computed yet.

  Attributes:
    settings: From `experiments.config.settings.make`, with as many clients per
      round as there are (`cohort.fit`).
    data: The prepared data.
    model: The network, a `FunctionalModel`.
    views: The augmentation.
    faults: What goes wrong with clients, and how often.
    over_data: The process over clients' data, a `ComposedProcess`.
    process: The same process over clients' keys, which reads their data.
  """

  settings: Any
  data: run_data.RunData
  model: Any
  views: Any
  faults: Any
  over_data: Any
  process: Any

  @property
  def spec(self) -> ProcessSpec:
    """The entry of the process."""
    return self.settings.chosen['process']

  @classmethod
  def open(cls, settings) -> 'Run':
    """Prepares the data and builds the process.

    Raises:
      ValueError, TypeError: If data are missing, or it cannot be run as asked.
    """
    execution_context.set_up_tensorflow(settings.device)
    spec = settings.chosen['process']
    data = data_lib.prepare(settings)
    settings = cohort.fit(settings, data.partition)
    cohort.check_separation(settings, data.partition)
    settings = cohort.fit_noise(settings, data.partition.num_clients)
    faults = cohort.client_faults(settings, data)
    corruption = cohort.corruption(settings, data)
    model = models.build(
      settings.model,
      data.store.input_shape,
      data.source.num_classes,
      settings.norm,
      data.source.num_tokens,
    )
    own_views = views.build(settings, spec, data.source)
    over_data = build_process(
      settings,
      model,
      own_views,
      data,
      has_faults=faults.in_keys,
      corruption=corruption,
    )
    process = client_reader.compose_with_reader(over_data, build_reader(data))
    return cls(settings, data, model, own_views, faults, over_data, process)


def build_process(settings, model, own_views, data, *, has_faults, corruption):
  """Returns the learning process of a run, over client data."""
  spec = settings.chosen['process']
  arguments = spec.arguments(vars(settings))
  if arguments.get(CLASS_WEIGHTS.name) == BALANCED:
    arguments[CLASS_WEIGHTS.name] = data.balanced_class_weights()
  if settings.experts == TRUTH and not len(data.hidden_from_clients):
    raise UsageError(
      '--experts=truth trains on labels that a simulation hides, and these '
      'data hide none: take both, global or local.'
    )
  in_slots = 'slot' in (settings.start_model, settings.client_momentum)
  if spec.takes('client_state_dir'):
    arguments['client_state_dir'] = run_folder.client_states(settings.run_dir)
  if data.redrawn_ratio:
    arguments['redrawn_mask_ratio'] = data.redrawn_ratio
  if corruption is not None:
    arguments['corruption'] = corruption
  arguments['data_spec'] = client_data.ClientDataSpec(
    client_store.element_spec(data.store),
    in_context=True,
    num_slots=settings.clients_per_round if in_slots else None,
    priors_shape=(
      data.partition.class_priors.shape[1:]
      if data.labels_at == split_manifest.IN_SETS
      else None
    ),
    has_faults=has_faults,
    num_clients=data.partition.num_clients,
  )
  arguments['client_optimizer'] = optimizers.build(
    settings, settings.learning_rate, settings.client_clip_norm
  )
  arguments['schedule'] = optimizers.build_schedule(settings)
  if spec.takes('server_data'):
    arguments['server_data'] = client_store.server_reader(data.store)
    arguments['server_optimizer'] = optimizers.build(
      settings, settings.server_learning_rate, settings.server_clip_norm
    )
  arguments['seed'] = settings.seed
  arguments.update(aggregators.build(settings))
  try:
    return spec.builder(model, **spec.keywords(views=own_views, **arguments))
  except (TypeError, ValueError) as error:
    # The builder's argument is a flag here.
    if settings.aggregator in (None, 'mean') or 'aggregator' not in str(error):
      raise
    raise type(error)(f'--aggregator={settings.aggregator}: {error}') from error


def build_reader(data):
  """Returns the reader of a run's clients, with priors of sets if seen."""
  if data.labels_at != split_manifest.IN_SETS:
    return client_store.client_reader(data.store)
  partition = data.partition
  return client_store.client_reader(
    data.store,
    class_priors=partition.class_priors,
    set_shares=partition.set_shares,
  )
