"""What the registry says of a process."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class ProcessSpec:
  """How to build a process and what it needs.

  Attributes:
    name: Name of the process, as in `--process`.
    description: One line for users.
    source: Where the method is defined.
    builder: `module.function` below `tff_ssl.algorithms`; call `build`.
    settings: Keyword arguments of the builder that are a user's to choose.
    base_settings: With a setting `base_process`, further keyword arguments that
      are a user's to choose where that process has them as settings.
    fixed: Keyword arguments that make this process out of the builder.
    objective: Name of the class in `tff_ssl.objectives` for the clients, or
      `None` for the builder's default.
    server_optimizer: Name of the function in `tff_ssl.optimizers` that makes
      the server's optimizer of the setting `server_learning_rate`, or `None`
      for the builder's default.
    labels_at: Whose labels training sees: 'server', 'clients' (all of theirs),
      'dealt' (some labelled examples of the clients) or 'sets' (nobody's: an
      example's `y` is the index of the set that it lies in, and the client's
      context holds the class priors of its sets).
    has_server_training: Whether the builder takes `server_data`.
    has_client_training: Whether clients train at all.
    uses_unlabelled: Whether clients train on what has no label beside what has
      one, so that it takes some of each to show anything.
    keeps_client_state: Whether it takes `client_state_dir`.
    counts_clients: Whether it takes `num_clients`, all there are.
    redraws_masks: Whether it takes `redrawn_mask_ratio`.
    needs_encoder: Whether the model must be a `SplitModel` (`tff_ssl.join`).
    augments: Whether examples go in augmented and standardised; if not, as
      pixels in [0, 1].
    has_strong_view: Whether it takes the strong view of images.
    has_gradient_diversity: Whether it can be measured.
    exceptions: Contract checks (`tff_ssl.testing`) that do not apply, with the
      reason.
  """

  name: str
  description: str
  source: str
  builder: str
  settings: tuple[str, ...]
  base_settings: tuple[str, ...] = ()
  fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  objective: str | None = None
  server_optimizer: str | None = None
  labels_at: str = 'server'
  has_server_training: bool = True
  has_client_training: bool = True
  uses_unlabelled: bool = False
  keeps_client_state: bool = False
  counts_clients: bool = False
  redraws_masks: bool = False
  needs_encoder: bool = False
  augments: bool = True
  has_strong_view: bool = True
  has_gradient_diversity: bool = True
  exceptions: Mapping[str, str] = dataclasses.field(default_factory=dict)

  @property
  def function(self) -> Callable[..., Any]:
    """The builder function itself."""
    module, name = self.builder.split('.')
    return getattr(
      importlib.import_module(f'tff_ssl.algorithms.{module}'), name
    )

  @property
  def build(self) -> Callable[..., Any]:
    """The builder, with `fixed` filled in.

    It takes the model, `data_spec`, `views`, `server_data` where
    `has_server_training`, and the settings, all but the model by name.
    """
    builder = self.function

    def build(model, *, views, **arguments):
      if clash := sorted(self.fixed.keys() & arguments.keys()):
        raise TypeError(f'{clash} cannot be given: {self.name} fixes them.')
      arguments = {**self.fixed, **arguments}
      if self.objective is not None:
        objectives = importlib.import_module('tff_ssl.objectives')
        objective = getattr(objectives, self.objective)
        fields = {field.name for field in dataclasses.fields(objective)}
        chosen = {name: arguments.pop(name) for name in fields & set(arguments)}
        arguments['client_objective'] = objective(views, **chosen)
      if self.server_optimizer is not None:
        optimizers = importlib.import_module('tff_ssl.optimizers')
        make = getattr(optimizers, self.server_optimizer)
        names = {'server_learning_rate'} & arguments.keys()
        rate = {name: arguments.pop(name) for name in names}
        arguments.setdefault('server_optimizer', make(**rate))
      return builder(model, views=views, **arguments)

    return build


# The settings of local training that most processes have.
LOCAL = ('batch_size', 'local_steps', 'local_epochs')
