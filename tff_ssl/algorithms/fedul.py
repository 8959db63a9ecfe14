"""FedUL: a classifier from unlabelled sets whose class priors are known.

Lu et al., Federated Learning from Only Unlabeled Data with
Class-Conditional-Sharing Clients (arXiv 2204.03304), Algorithm 1. The examples
of client c lie in sets, and the index m of its set is an example's surrogate
label (Eq. 6). The client trains the classifier f, which all share, through a
fixed layer of its own (Eqs. 8 and 9),

```math
g_c = Q_c(f),   Q_c ~ D_rho Pi_c D_pi^-1,   loss -log (Q_c(f(x)))_m
```

with rho the shares of its sets, Pi_c their class priors and pi the class prior
of the test data. By Theorem 4 the best f is the class posterior, as if there
were labels, where Pi_c has full column rank. What is sent and averaged is f, so
any supervised process with a client objective can be the base. With one pure
set for each class, and shares rho of these sets that equal pi, Q_c changes
nothing and FedUL is supervised FedAvg: after a round, weights agree within
1e-6. For the uniform pi, the default, this takes sets of one size. With other
shares rho_m / pi_m weighs class m in Q_c, and the two differ.

Where the authors' code differs from the paper, the paper holds here; the loss
of the code is `surrogate_loss='published_code'`, and its L1 weights belong to
that loss: tune them anew for the other one. Their code also leaves out the last
minibatch of a pass where it is smaller, which this one trains on.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

from etils import epy

from tff_ssl import checks, objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, fednova, scaffold, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, check_arguments, only_with
from tff_ssl.objectives.wrappers import L1_WEIGHT, PROXIMAL_STRENGTH
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import templates
  from tff_ssl.models import functional, split


_CLIENT_TRAINING = TrainingPlan(batch_size=128, epochs=1)


@tff_arguments.taken
def build_fedul(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  base_process: str = 'fedavg',
  surrogate_loss: str = 'log_transition',
  test_prior: tuple[float, ...] | None = None,
  l1_weight: float = 1e-5,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  client_weighting: str = 'uniform',
  wiring: Wiring = Wiring(),
  **base_arguments: Any,
) -> tff.learning.templates.LearningProcess:
  """Builds FedUL over a supervised process.

  `get_model_weights` gives f, the classifier; moving statistics of batch
  normalisation are averaged like its other weights.

  Whether priors can be learnt from, who holds them checks by
  `tff_ssl.check_class_priors` before round 1: here they are data.

  Args:
    model: A `tff_ssl.FunctionalModel` that gives d logits.
    data_spec: `tff_ssl.ClientDataSpec` with `priors_shape=(M, d)`:
      `y` is the index of a set, in [0, M).
    views: Augmentation, as `tff_ssl.ImageViews`.
    base_process: Whose rounds these are: 'fedavg', 'fedprox', 'fedadam',
      'fednova' or 'scaffold'.
    surrogate_loss: 'log_transition', -log Q_c; or 'published_code'; see
      `tff_ssl.SurrogateSets`.
    test_prior: pi, d positive numbers that sum to 1; by default uniform.
    l1_weight: Weight of an L1 penalty on all trainable weights, >= 0. The
      default is Table D.4's for MNIST in 10 sets.
    client_training: How a client trains; by default a pass over its examples
      with Adam, as in the paper, fresh in each round, with the learning rate
      1e-4 and minibatches of 128. Over 'fednova' and 'scaffold', which need
      SGD, the optimizer is by default that of these processes.
    client_weighting: 'uniform', as in Algorithm 1, or 'examples' (processed in
      the round).
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`).
    **base_arguments: Further arguments of the base process's builder:
      `server_optimizer`, by default SGD with learning rate 1, or for 'fedadam'
      Adam with learning rate 0.01 and epsilon 0.001; `proximal_strength` of
      'fedprox', by default 0.01, or of 'fednova', by default 0;
      `client_state_dir` and `control_update` of 'scaffold'.

  Returns:
    A `tff.learning.templates.LearningProcess`. Clients report `loss`,
    `accuracy` of classes, where a simulation knows them, and `set_accuracy`.

  Raises:
    ValueError: If an argument is out of range or one of the base process is
      missing, or model, class priors and test prior are not of the same
      classes.
    TypeError: If model and client data do not fit each other, or these do not
      lie in sets.
  """
  check_arguments(SETTINGS, {**locals(), **base_arguments})
  having = [n for n, s in _BASES.items() if PROXIMAL_STRENGTH in s.settings]
  if 'proximal_strength' in base_arguments and base_process not in having:
    raise ValueError(
      f'proximal_strength={base_arguments["proximal_strength"]!r} has no '
      f'effect with base_process={base_process!r}: leave it out, or choose one '
      f'of {", ".join(having)}.'
    )
  _check_classes(model, data_spec, test_prior)
  objective: protocols.Objective = objectives.SurrogateSets(
    views, surrogate_loss, test_prior
  )
  if l1_weight != 0:
    objective = objectives.L1Penalty(objective, l1_weight)
  base = _BASES[base_process]
  # The base process takes or refuses what it is for the others to have.
  plan = client_training.over(
    dataclasses.replace(
      _CLIENT_TRAINING, client_momentum=client_training.client_momentum
    )
  )
  if plan.optimizer is None and not base.needs.sgd:
    plan = dataclasses.replace(
      plan, optimizer=tff.learning.optimizers.build_adam(1e-4)
    )
  if (
    base.takes('client_state_dir') and 'client_state_dir' not in base_arguments
  ):
    raise ValueError(
      f'base_process={base_process!r} needs client_state_dir: give it, or '
      'choose another base process.'
    )
  own_defaults = {
    name: value
    for name, value in base.defaults.items()
    if name in base.setting_names
  }
  # `build` makes the server's optimizer of its learning rate.
  return base.build(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=objective,
    client_training=plan,
    client_weighting=client_weighting,
    wiring=wiring,
    **{**own_defaults, **base_arguments},
  )


def _check_classes(model, data_spec, test_prior) -> None:
  """Raises an error unless all are of d classes, in at least d sets."""
  data_spec.check_sets()
  num_sets, num_classes = data_spec.priors_shape
  if num_sets < num_classes:
    raise ValueError(
      f'data_spec has priors_shape={data_spec.priors_shape}: {num_sets} sets '
      f'cannot tell {num_classes} classes apart; give at least as many.'
    )
  outputs = split.features_spec(model).shape
  if outputs[1:] != (num_classes,):
    raise ValueError(
      f'model gives outputs of shape {outputs}, but data_spec has '
      f'priors_shape={data_spec.priors_shape}: build the model with '
      f'num_classes={num_classes}.'
    )
  if test_prior is not None:
    checks.positive_distribution(num_classes, test_prior=test_prior)


_SUPERVISED = {
  spec.name: spec for spec in (*fed_avg.SPECS, fednova.SPEC, scaffold.SPEC)
}
# Those that FedUL was tried over; their builders take `client_objective`.
_BASES: Mapping[str, ProcessSpec] = types.MappingProxyType(
  {
    name: _SUPERVISED[name]
    for name in ('fedavg', 'fedprox', 'fedadam', 'fednova', 'scaffold')
  }
)


def _of_base(setting: Setting) -> Setting:
  """Returns a setting that only some base processes have."""
  bases = [name for name, spec in _BASES.items() if setting in spec.settings]
  return dataclasses.replace(
    setting,
    optional=True,
    used_when=(*setting.used_when, only_with('base_process', *bases)),
  )


_OF_BASES = tuple(
  map(
    _of_base,
    (PROXIMAL_STRENGTH, scaffold.CONTROL_UPDATE, shared.SERVER_LEARNING_RATE),
  )
)
SETTINGS = (
  Setting(
    'base_process',
    str,
    'Whose rounds FedUL trains in; fednova and scaffold take '
    '`client_optimizer=sgd`, their default.',
    choices=tuple(_BASES),
    needed_by='FedUL, which wraps any supervised method',
  ),
  *objectives.SurrogateSets.settings,
  L1_WEIGHT,
  shared.CLIENT_WEIGHTING,
  *shared.LOCAL,
  *_OF_BASES,
)


# How clients train where nobody has labels. A few steps of the paper's 1e-4 per
# round would take hundreds of rounds where clients have few examples.
OF_SETS = {
  'client_optimizer': 'adam',
  'learning_rate': 1e-3,
  'local_epochs': 1,
}
# The same for processes that train on minibatches.
OF_MINIBATCHES = {**OF_SETS, 'batch_size': 20}


def _derive(values, given):
  """Returns the defaults that the base process brings."""
  base = _BASES.get(given.get('base_process', 'fedavg'))
  if base is None:  # Who reads the settings refuses it.
    return {}
  found = {
    setting.name: base.default_of(setting.name)
    for setting in _OF_BASES
    if setting.name in base.setting_names
  }
  found.update(base.defaults)
  if base.needs.sgd:
    found.update({'client_optimizer': 'sgd', 'learning_rate': 0.03})
  return found


SPEC = ProcessSpec(
  'fedul',
  'FedUL, without labels: clients know the class priors of sets of examples.',
  build_fedul,
  SETTINGS,
  source='Lu et al. 2022, arXiv 2204.03304, Algorithm 1 and Theorem 1',
  needs=Needs(labels_at='sets', views='weak'),
  bases=_BASES,
  defaults=OF_MINIBATCHES,
  derive=_derive,
)
