"""What a person reads of a run before it begins: data, rounds and costs."""

import numpy as np
import tensorflow as tf

from datasets.records import partition_report, source_report
from experiments.artifacts import run_folder
from tff_ssl import metrics


def lines_of_data(data) -> list[str]:
  """Returns what is said of the data: source, clients and labels."""
  facts = data.describe()
  lines = [
    data.source.title,
    f'{facts["clients"]} clients with {facts["min_examples"]}/'
    f'{facts["median_examples"]:g}/{facts["max_examples"]} examples '
    f'(min/median/max), {_classes(facts)}.',
    _labels(facts),
    *partition_report.lines(data.source, data.partition),
    *_oddities(data),
    *data.notes,
  ]
  if data.partition.in_sets:
    lines += partition_report.lines_of_sets(data.partition)
  if 'min_labels' in facts:
    lines.append(
      f'Each client has {facts["min_labels"]}/{facts["median_labels"]:g}/'
      f'{facts["max_labels"]} labels (min/median/max)'
      + (', others in every pass' if data.redrawn_ratio else '')
      + f'; {facts["clients_without_labels"]} clients have none, '
      f'{facts["clients_without_unlabelled"]} have all.'
    )
  return lines


def _oddities(data) -> list[str]:
  """Returns what is said of public data, or odd about a user's own."""
  if not data.is_of_user:
    return list(data.source.notes)
  return [f'Look at: {line}' for line in source_report.oddities(data.source)]


def lines_of_folder(settings) -> list[str]:
  """Returns what a run would do with what its folder holds."""
  done, total = run_folder.rounds_done(settings), settings.total_rounds
  if not done:
    said = 'the run would begin there with round 1.'
  elif done < total:
    said = f'the run there would be resumed after round {done} of {total}.'
  else:
    said = (
      f'the run there has done all its {total} rounds, and would write its '
      'results once more; to go on, raise --total_rounds.'
    )
  return [f'{settings.run_dir}: {said}']


def lines_of_warmup(settings) -> list[str]:
  """Returns a note where clients do not train at all."""
  warmup = settings.server_warmup_rounds or 0
  if not settings.clients_per_round or warmup < settings.total_rounds:
    return []
  return [
    f'Note: clients do not train in this run: its {settings.total_rounds} '
    f'rounds are all among the first {warmup} of the server alone '
    '(--server_warmup_rounds).'
  ]


def lines_of_aggregator(settings) -> list[str]:
  """Returns a note where an aggregator changes how clients train."""
  changes = [
    f'--{name}={settings.used[name]} in the place of {before}'
    for name, before in settings.replaced.items()
    if settings.origins.get(name) == '--aggregator'
    and settings.used[name] != before
  ]
  if not changes:
    return []
  return [
    f'Note: --aggregator={settings.aggregator} takes {", ".join(changes)}: '
    'figures of --aggregator=mean are of another configuration.'
  ]


def lines_of_cohort(settings) -> list[str]:
  """Returns a note where not as many clients take part as settings say."""
  asked = settings.used.get('clients_per_round')
  count = settings.clients_per_round
  if asked == count:
    return []
  why = 'more than there are'
  if asked < count:
    why = f'less, and --process={settings.process} needs all'
  return [
    f'Note: all clients, {count}, take part in each round; the default '
    f'--clients_per_round={asked} is {why}.'
  ]


def communication(settings, process, weights) -> dict[str, int]:
  """Returns the bytes that a client gets and sends in a round, if any do."""
  if not settings.clients_per_round:
    return {}
  measured = metrics.measure_communication(process, process.form)
  # Models of helpers, which a simulation reads from its disk.
  helpers = (settings.num_helpers or 0) * num_bytes(weights)
  return {
    'bytes_down_per_client': measured.down + helpers,
    'bytes_up_per_client': measured.up,
  }


def lines_of_costs(run, sent) -> list[str]:
  """Returns what a round costs, as settings and `communication` tell."""
  settings = run.settings
  lines = [f'{settings.total_rounds} rounds']
  if not settings.clients_per_round:
    return [f'{lines[0]}, in which the server alone trains.']
  lines[0] += f' with {settings.clients_per_round} clients each.'
  lines.append(
    f'A client gets {_mib(sent["bytes_down_per_client"])} in a round, and '
    f'sends {_mib(sent["bytes_up_per_client"])}.'
  )
  sizes = run.data.partition.client_sizes
  if settings.local_steps:
    count = settings.local_steps * settings.batch_size
    lines.append(
      f'It takes {settings.local_steps} steps of {settings.batch_size} '
      f'examples: {count:,} go forward and back through the network.'
    )
  elif settings.local_epochs:
    epochs = settings.local_epochs
    low, high = int(sizes.min()) * epochs, int(sizes.max()) * epochs
    times = 'once' if epochs == 1 else f'{epochs} times'
    lines.append(
      f'It goes over its examples {times}: {low:,} to '
      f'{high:,} go forward and back through the network.'
    )
  more = []
  if settings.chosen['process'].makes_pseudo_labels:
    more.append('pseudo-labels')
  if settings.labelled_batch_size:
    more.append('labelled minibatches')
  if more:
    lines.append(
      f'{" and ".join(more).capitalize()} come on top; metrics.csv counts all '
      'passes.'
    )
  return lines


def num_bytes(structure) -> int:
  """Returns the size of a structure of arrays."""
  return sum(np.asarray(value).nbytes for value in tf.nest.flatten(structure))


def _classes(facts) -> str:
  if facts['measured_r'] is None:
    return 'classes of no example known'
  return f'{facts["classes"]} classes, measured R {facts["measured_r"]:.3f}'


def _labels(facts) -> str:
  """Says how many of the labels that there are training uses, and where."""
  known, unused = facts['training_labels'], facts['unused_labels']
  if not known:
    return 'The training examples have no labels.'
  used = f'{known - unused:,} of the' if unused else 'all'
  rest = f'; {unused:,} are not used' if unused else ''
  return (
    f'Training uses {used} {known:,} labels of the training examples '
    f'({facts["server_examples"]:,} at the server, '
    f'{facts["labelled_client_examples"]:,} at clients){rest}.'
  )


def _mib(count: int) -> str:
  return f'{count / 2**20:,.2f} MiB'
