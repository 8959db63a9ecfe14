"""What the registry says of a process."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from tff_ssl import shared_settings
from tff_ssl.common.choice import Choice
from tff_ssl.common.setting import Setting
from tff_ssl.plans import ServerPlan, TrainingPlan, Wiring

# `ProcessSpec.exceptions` of a process that has no other weights.
OF_EQUAL_WEIGHTS = {
  'refuses_meaningless_aggregators': (
    'all clients weigh the same, which an unweighted aggregator does, too'
  )
}
# The records that builders take, where they have no default of their own.
_RECORDS = {
  'client_training': TrainingPlan(),
  'server': ServerPlan(),
  'wiring': Wiring(),
}
# Where arguments of `ProcessSpec.build` go that are none of its own settings. A
# field of a plan has its name from here alone: an objective may have a `weight`
# or an `order`, too.
_PLACES = {
  **{
    setting.name: (setting.argument,)
    for setting in vars(shared_settings).values()
    if isinstance(setting, Setting) and setting.argument is not None
  },
  'client_optimizer': ('client_training.optimizer',),
  'server_optimizer': ('server.optimizer',),
  'server_data': ('server.data',),
  'class_weights': ('server.class_weights',),
  'redrawn_mask_ratio': ('client_training.redrawn_mask_ratio',),
  'schedule': ('client_training.schedule', 'server.schedule'),
}


# Python takes long to look at a function, and the runner asks again and again.
@functools.cache
def _parameters(
  function: Callable[..., Any],
) -> Mapping[str, inspect.Parameter]:
  return inspect.signature(function).parameters


def _default(function: Callable[..., Any], name: str) -> Any:
  parameter = _parameters(function).get(name)
  if parameter is None or parameter.default is parameter.empty:
    return None
  return parameter.default


@dataclasses.dataclass(frozen=True)
class Needs:
  """What a process needs of data, clients and network.

  What else it takes, its builder's arguments tell (`ProcessSpec.takes`).

  Attributes:
    labels_at: Whose labels training sees: 'server', 'clients' (all of theirs),
      'dealt' (some labelled examples of the clients) or 'sets' (nobody's: an
      example's `y` is the index of the set that it lies in, and the client's
      context holds the class priors of its sets).
    clients: Who trains in a round: 'some' clients, 'all' of them (it is not
      defined for fewer) or 'none'.
    views: What clients see of an example: a 'weak' view, a 'strong' one beside
      it, or 'none': neither augmented nor standardised, pixels in [0, 1].
    unlabelled: Whether clients train on what has no label beside what has one,
      so that it takes some of each to show anything.
    shared_examples: Whether clients share a class-uniform set of examples,
      which is the server's set, too.
    encoder: Whether the model must be a `SplitModel` (`tff_ssl.join`).
    tokens: Whether examples may be the numbers of words, which cannot be mixed
      or moved along a gradient.
    sgd: Whether it divides by steps in proportion to the gradients, which those
      of Adam are not.
  """

  labels_at: Literal['server', 'clients', 'dealt', 'sets'] = 'server'
  clients: Literal['some', 'all', 'none'] = 'some'
  views: Literal['strong', 'weak', 'none'] = 'strong'
  unlabelled: bool = False
  shared_examples: bool = False
  encoder: bool = False
  tokens: bool = True
  sgd: bool = False


@dataclasses.dataclass(frozen=True)
class ProcessSpec(Choice):
  """How to build a process and what it needs.

  It stands at the foot of the algorithm's own file. Beside those of every
  `Choice`, it has these attributes; `build` fills in `fixed`. Where the builder
  takes `wiring`, `ema_decay` is one of the settings, and `max_client_weight`
  beside `client_weighting`.

  Attributes:
    source: Where the method is defined.
    needs: What it needs of data, clients and network.
    makes_pseudo_labels: Whether clients label examples with a model, by passes
      that come on top of those of their minibatches.
    models_in_state: How many models a client's state is as large as, rounded.
    has_gradient_diversity: Whether it can be measured.
    bases: With a setting `base_process`, the processes that it names (`over`).
    base: The one of them that it trains in.
    fixed: Keyword arguments that make this process out of the builder.
    objective: The class of the clients' objective, or a `functools.partial` of
      it, or `None` for the builder's default. Settings that are arguments of it
      go to it.
    server_optimizer: Function that makes the server's optimizer, or `None` for
      the builder's default. Settings that are arguments of it go to it.
    check: Function of a run's values by name that raises `ValueError` where
      they do not fit each other, or `None`. The message names settings.
    exceptions: Contract checks (`tff_ssl.testing`) that do not apply, with the
      reason.
  """

  _: dataclasses.KW_ONLY
  source: str
  needs: Needs = Needs()
  makes_pseudo_labels: bool = False
  models_in_state: int = 1
  has_gradient_diversity: bool = True
  bases: Mapping[str, 'ProcessSpec'] = dataclasses.field(default_factory=dict)
  base: 'ProcessSpec | None' = None
  fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  objective: Callable[..., Any] | None = None
  server_optimizer: Callable[..., Any] | None = None
  check: Callable[[Mapping[str, Any]], None] | None = None
  exceptions: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    if 'wiring' not in self._records:
      return
    # Options of every process, so that nobody has to think of them.
    wired = [shared_settings.EMA_DECAY]
    if shared_settings.CLIENT_WEIGHTING in self.settings:
      wired.append(shared_settings.MAX_CLIENT_WEIGHT)
    more = [setting for setting in wired if setting not in self.settings]
    object.__setattr__(self, 'settings', (*self.settings, *more))

  def takes(self, argument: str) -> bool:
    """Returns whether one may give it an argument that is no setting.

    Args:
      argument: Such as 'server_data', 'client_state_dir' or
        'redrawn_mask_ratio'.
    """
    if argument in self.fixed:
      return False
    known = _parameters(self.builder)
    return (
      argument in known
      # Of a record that it passes on nobody knows what is made of it.
      or any(record in known for record, _ in self._places_of(argument))
      or (self.base is not None and self.base.takes(argument))
    )

  @property
  def facts(self) -> dict[str, Any]:
    """What conditions of settings may ask (`setting.needs_process`)."""
    return {
      'process': self.name,
      'labels_at': self.needs.labels_at,
      'shared_examples': self.needs.shared_examples,
      'has_client_training': self.needs.clients != 'none',
      'has_server_training': self.takes('server_data'),
      'augments': self.needs.views != 'none',
      'has_strong_view': self.needs.views == 'strong',
      'makes_pseudo_labels': self.makes_pseudo_labels,
      'has_gradient_diversity': self.has_gradient_diversity,
    }

  def over(self, base_process: str) -> 'ProcessSpec':
    """Returns the entry with what it needs over a base process.

    Args:
      base_process: A key of `bases`, whose rounds the process trains in: it
        asks for what that one asks for.
    """
    base = self.bases[base_process]
    return dataclasses.replace(
      self,
      base=base,
      needs=dataclasses.replace(
        self.needs, clients=base.needs.clients, sgd=base.needs.sgd
      ),
      server_optimizer=base.server_optimizer,
      check=base.check,
      models_in_state=base.models_in_state,
      has_gradient_diversity=base.has_gradient_diversity,
    )

  def default_of(self, name: str) -> Any:
    """Returns the default of a setting: of the objective, builder or record.

    Args:
      name: Name of a setting.

    Returns:
      Its default; `None` where there is none.
    """
    own = [setting for setting in self.settings if setting.name == name]
    defaults = [setting.default for setting in own]
    # Where a flag is parsed, a builder's default is in another form.
    if not any(setting.parse for setting in own):
      functions = filter(
        None, (self.objective, self.server_optimizer, self.builder)
      )
      defaults = [
        *(_default(function, name) for function in functions),
        *(
          getattr(self._records[r], field) for r, field in self._places_of(name)
        ),
        *defaults,
      ]
    return next((each for each in defaults if each is not None), None)

  def build(self, model, **arguments):
    """Builds the process; the arguments are those of `keywords`."""
    return self.builder(model, **self.keywords(**arguments))

  def keywords(self, *, views, **arguments) -> dict[str, Any]:
    """Returns the keyword arguments of the builder.

    An argument that the builder has only as a field of one of its records, such
    as `client_training`, `server` and `wiring`, becomes that field: a setting
    as it says itself, `client_optimizer`, `server_optimizer`, `server_data` and
    `schedule` (of clients and server), and all that are called as a field is.

    Args:
      views: As the builder takes it.
      **arguments: The settings, `data_spec`, and other arguments of the builder
        (`takes`).

    Raises:
      TypeError: If an argument is one of `fixed`, or belongs to the default
        objective while another one is given.
    """
    if clash := sorted(self.fixed.keys() & arguments.keys()):
      raise TypeError(f'{clash} cannot be given: {self.name} fixes them.')
    arguments = {**self.fixed, **arguments}
    if self.objective is not None:
      self._set_objective(arguments, views)
    if self.server_optimizer is not None:
      names = _parameters(self.server_optimizer).keys() & arguments.keys()
      own = {name: arguments.pop(name) for name in names}
      arguments.setdefault('server_optimizer', self.server_optimizer(**own))
    return {'views': views, **self._in_records(arguments)}

  def _set_objective(self, arguments, views) -> None:
    """Puts the objective in the place of those arguments that are its own.

    One that the builder has, too, is given to both: the server's loss is its
    affair.
    """
    own = _parameters(self.objective).keys() - {'views'}
    chosen = {name: arguments[name] for name in own & arguments.keys()}
    for name in chosen:
      if name not in _parameters(self.builder) and not self._places_of(name):
        del arguments[name]
    if arguments.get('client_objective') is None:
      arguments['client_objective'] = self.objective(views, **chosen)
    elif chosen:
      raise TypeError(
        f'{sorted(chosen)} belong to the objective of {self.name}, and '
        'client_objective is another one: leave them out.'
      )

  def _places_of(self, name: str) -> list[tuple[str, str]]:
    """Returns the records, and fields of them, that an argument may go to."""
    own = [each.argument for each in self.settings if each.name == name]
    places: Sequence[str] = [place for place in own if place]
    if not places:
      places = _PLACES.get(name) or [
        f'{each}.{name}'
        for each, record in self._records.items()
        if not isinstance(record, TrainingPlan)
      ]
    found = (place.split('.') for place in places)
    return [
      (record, field)
      for record, field in found
      if _has(self._records.get(record), field)
    ]

  @functools.cached_property
  def _records(self) -> dict[str, Any]:
    """Those arguments of the builder that are records, and their defaults."""
    known = _parameters(self.builder)
    records = {
      name: parameter.default
      for name, parameter in known.items()
      if dataclasses.is_dataclass(parameter.default)
      and not isinstance(parameter.default, type)
    }
    given = known.keys() & _RECORDS.keys()
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
      # What it passes on to another builder.
      given |= {'client_training', 'wiring'}
    return {**{name: _RECORDS[name] for name in given}, **records}

  def _in_records(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments as the builder takes them."""
    known = _parameters(self.builder)
    direct, fields = {}, {}
    for name, value in arguments.items():
      places = self._places_of(name)
      if name in known or not places:
        direct[name] = value
      else:
        for record, field in places:
          fields.setdefault(record, {})[field] = value
    for record, values in fields.items():
      own = self._records[record]
      # The builder lays a plan over its own, whose steps may exclude these.
      blank = type(own)() if isinstance(own, TrainingPlan) else own
      given = direct.get(record) or blank
      direct[record] = dataclasses.replace(given, **values)
    return direct


def _has(record: Any, field: str) -> bool:
  """Whether the builder whose default a record is takes a field of it."""
  if record is None or field not in vars(record):
    return False
  return not isinstance(record, TrainingPlan) or record.takes(field)
