"""What a run measures, by its settings: before, after and beside its rounds."""

import dataclasses
from collections.abc import Callable

from experiments.artifacts import run_folder
from experiments.measuring import (
  client_evaluation,
  diversity,
  evaluation,
  privacy_loss,
  proxy_evaluation,
  pseudo_labels,
)
from experiments.measuring.evaluation import (
  FinishedRound,
  Measurement,
  MeasurementBefore,
)
from experiments.preparing import building, cohort
from tff_ssl import objectives


@dataclasses.dataclass(frozen=True)
class Measurements:
  """All that a run measures before and after its rounds.

  The first one evaluates the test split, and clients where the owners of its
  examples are known; `checks` may end the run after a round.
  """

  evaluator: evaluation.Evaluator
  owners: client_evaluation.Owners | None
  by_class: pseudo_labels.PseudoLabelsByClass | None
  privacy: privacy_loss.PrivacyLoss | None
  before: list[MeasurementBefore]
  after: list[Measurement]
  checks: list[Callable[[FinishedRound], None]]


def build(
  opened: building.Run,
  folder: run_folder.RunFolder,
  first_round: int,
  owners: client_evaluation.Owners | None,
) -> Measurements:
  """Returns the measurements of a run that goes on after `first_round`."""
  settings, source = opened.settings, opened.data.source
  network = opened.model, opened.views
  evaluator = evaluation.Evaluator(*network, source.test)
  watch, by_class = pseudo_label_watch(opened), pseudo_labels_by_class(opened)
  before, after = [], []
  if source.validation is not None:
    after.append(evaluation.ValidationMeasurement(*network, source.validation))
  if watch is not None:
    after.append(watch)
  if settings.proxy_task is not None:
    after.append(_proxy_test(opened))
  if settings.gradient_diversity_clients:
    after.append(
      diversity.of_fixed_clients(
        _diversity_meter(opened),
        num_clients=opened.data.partition.num_clients,
        clients_measured=settings.gradient_diversity_clients,
        redeal=settings.start_model == 'slot',
      )
    )
  if by_class is not None:
    after.append(by_class)
  if settings.gradient_diversity_of == 'participants':
    before.append(_diversity_meter(opened).before_round)
  privacy = _privacy_loss(opened, folder, first_round)
  if privacy is not None:
    before.append(privacy.begin)
    after.append(privacy.measure)
  checks = [] if watch is None else [watch.check]
  return Measurements(
    evaluator, owners, by_class, privacy, before, after, checks
  )


def pseudo_labels_by_class(
  opened: building.Run,
) -> pseudo_labels.PseudoLabelsByClass | None:
  """Returns what counts pseudo-labels by class, where that is asked for."""
  settings, data = opened.settings, opened.data
  if not settings.pseudo_label_examples:
    return None
  return pseudo_labels.PseudoLabelsByClass(
    opened.model,
    opened.views,
    pseudo_labels.draw(data, settings.pseudo_label_examples, settings.seed),
    data.source.class_names,
    select=pseudo_labels.selection_of(settings),
    seed=settings.seed,
  )


def pseudo_label_watch(
  opened: building.Run,
) -> pseudo_labels.PseudoLabelWatch | None:
  """Returns what watches the pseudo-labels, where there are any."""
  settings = opened.settings
  select = pseudo_labels.selection_of(settings)
  if not opened.spec.takes('server_data') or select is None:
    return None
  return pseudo_labels.PseudoLabelWatch(
    opened.model,
    opened.views,
    pseudo_labels.server_examples(opened.data),
    select=select,
    seed=settings.seed,
    on_collapse=settings.on_collapse,
  )


def _proxy_test(opened) -> proxy_evaluation.ProxyTest:
  return proxy_evaluation.ProxyTest(
    opened.model,
    objectives.PROXY_TASKS[opened.settings.proxy_task],
    opened.views,
    opened.data.source.test,
    opened.settings.pretraining_rounds,
  )


def _diversity_meter(opened) -> diversity.Meter:
  settings = opened.settings
  return diversity.Meter(
    opened.over_data,
    building.build_reader(opened.data),
    rounds_between=settings.rounds_per_gradient_diversity,
    total_rounds=settings.total_rounds,
    seed=settings.seed,
  )


def _privacy_loss(
  opened, folder, first_round
) -> privacy_loss.PrivacyLoss | None:
  settings = opened.settings
  account = cohort.account(settings, opened.data.partition.num_clients)
  if account is None:
    return None
  return privacy_loss.PrivacyLoss(
    account,
    folder.path,
    rounds_done=first_round,
    first_round=cohort.first_private_round(settings),
    target_epsilon=settings.target_epsilon,
  )
