"""The runner's flags: one table, grouped by what they belong to.

Flags of the group "process" are the settings of the builders in
`tff_ssl.algorithms`, under the same names. No flag has a default here: what is
not given comes from `experiments.defaults`, by data set.
"""

import dataclasses
import textwrap

from absl import flags


class UsageError(ValueError):
  """A command line that cannot be run; its text is one sentence."""


@dataclasses.dataclass(frozen=True)
class Flag:
  """A flag of the runner.

  Attributes:
    name: Its name.
    kind: 'string', 'integer', 'float' or 'boolean'.
    help: What it does, with its unit.
  """

  name: str
  kind: str
  help: str


GROUPS: dict[str, tuple[Flag, ...]] = {
  'data': (
    Flag('dataset', 'string', 'Name of the data set (--list names them).'),
    Flag(
      'data_dir',
      'string',
      'Folder of the data files; by default TFF_SSL_DATA_DIR, or else the '
      'download folders of TFF and TFDS.',
    ),
    Flag(
      'cache_dir',
      'string',
      'Folder of unpacked data and client stores; by default ~/.cache/tff_ssl.',
    ),
    Flag(
      'emnist_only_digits',
      'boolean',
      'Data set emnist: digits alone (10 classes), not letters as well (62).',
    ),
  ),
  'partition': (
    Flag(
      'partition',
      'string',
      'How clients get data: native, r, dirichlet or pooled.',
    ),
    Flag(
      'num_clients',
      'integer',
      'K, number of clients; by default all there are of a native split.',
    ),
    Flag('noniid_r', 'float', 'R of the r-partition, in [0, 1].'),
    Flag(
      'dirichlet_alpha',
      'float',
      'alpha of the Dirichlet partition, in [0.001, 1e6]; small is uneven.',
    ),
    Flag(
      'min_client_examples',
      'integer',
      'Dirichlet partition: the least number of examples of a client.',
    ),
    Flag('server_examples', 'integer', 'N_s, labelled examples at the server.'),
    Flag(
      'labelled_examples',
      'integer',
      'N_s of a process without labels at the server: labelled examples, dealt '
      'to the clients evenly.',
    ),
    Flag(
      'server_writers',
      'string',
      "Native split: the server's examples come from writers who are held_out "
      'afterwards, or from everyone.',
    ),
  ),
  'process': (
    Flag('process', 'string', 'Name of the process (--list names them).'),
    Flag('model', 'string', 'Name of the model (--list names them).'),
    Flag('norm', 'string', 'Normalisation: none, batch or group.'),
    Flag('num_groups', 'integer', 'S, number of groups.'),
    Flag('threshold', 'float', 'tau, confidence of pseudo-labels, in [0, 1].'),
    Flag(
      'server_weight', 'float', 'Weight of the server model in each average.'
    ),
    Flag('proximal_strength', 'float', 'mu of FedProx.'),
    Flag(
      'client_weighting', 'string', 'Weights of clients: examples or uniform.'
    ),
    Flag('augment_flip', 'boolean', 'Whether images are mirrored at random.'),
  ),
  'client optimiser': (
    Flag('batch_size', 'integer', 'B, examples in a minibatch.'),
    Flag('local_steps', 'integer', 'T, steps of a client in a round.'),
    Flag(
      'local_epochs',
      'integer',
      "Passes over a client's examples in a round, instead of --local_steps.",
    ),
    Flag('learning_rate', 'float', "The clients' learning rate."),
    Flag('momentum', 'float', 'Nesterov momentum, in [0, 1).'),
    Flag('weight_decay', 'float', 'Coupled weight decay.'),
    Flag('schedule', 'string', 'Learning rate: constant or cosine (Eq. 11).'),
    Flag(
      'schedule_steps', 'integer', 'Cosine: steps EM/B of the whole schedule.'
    ),
    Flag('schedule_coefficient', 'float', 'Cosine: the coefficient c.'),
    Flag('schedule_warmup_steps', 'integer', 'Cosine: steps of warm-up eM/B.'),
    Flag('schedule_scale', 'float', 'Stretches the schedule by this factor.'),
  ),
  'server': (
    Flag('server_steps', 'integer', 'Labelled steps of the server in a round.'),
    Flag('server_batch_size', 'integer', "Examples in the server's minibatch."),
    Flag(
      'server_learning_rate',
      'float',
      "The server's learning rate; by default --learning_rate.",
    ),
    Flag(
      'server_warmup_rounds',
      'integer',
      'First rounds, in which only the server trains.',
    ),
  ),
  'run': (
    Flag('total_rounds', 'integer', 'Rounds to train.'),
    Flag('clients_per_round', 'integer', 'C, participating clients.'),
    Flag('rounds_per_evaluation', 'integer', 'Rounds between evaluations.'),
    Flag('rounds_per_checkpoint', 'integer', 'Rounds between checkpoints.'),
    Flag('seed', 'integer', 'Root of all randomness.'),
    Flag('precision', 'string', 'float32 or bfloat16.'),
    Flag(
      'run_dir',
      'string',
      'Folder of the results; a run that is there is resumed. By default '
      'runs/<process>_<dataset>_seed<seed>.',
    ),
    Flag('list', 'boolean', 'Lists processes, data sets and models, and ends.'),
  ),
}

_DEFINE = {
  'string': flags.DEFINE_string,
  'integer': flags.DEFINE_integer,
  'float': flags.DEFINE_float,
  'boolean': flags.DEFINE_boolean,
}


def parse(argv: list[str]) -> dict[str, object]:
  """Parses a command line.

  Args:
    argv: The command line, the program's name first. `--flagfile=PATH` reads
      flags from a file, such as a run folder's flags.txt.

  Returns:
    The values of the flags that were given, by name.

  Raises:
    UsageError: If a flag is unknown or its value is of the wrong kind, or there
      is an argument that is no flag.
  """
  values = flags.FlagValues()
  for group in GROUPS.values():
    for flag in group:
      _DEFINE[flag.kind](flag.name, None, flag.help, flag_values=values)
  flags.DEFINE_string('flagfile', '', 'File of flags.', flag_values=values)
  try:
    rest = values(argv)
  except flags.Error as error:
    raise UsageError(' '.join(str(error).split())) from error
  except UnicodeDecodeError as error:
    raise UsageError(
      f'--flagfile names a file that is not UTF-8 text ({error}): give one '
      'with a flag in each line.'
    ) from error
  if len(rest) > 1:
    raise UsageError(f'{rest[1]!r} is no flag: flags are written --name=value.')
  given = values.flag_values_dict()
  del given['flagfile']
  return {name: value for name, value in given.items() if value is not None}


def help_text() -> str:
  """Returns the text of --help."""
  lines = [
    'python -m experiments.run --process=NAME --dataset=NAME [flags]',
    '',
    'Trains a process on a data set. What is not given depends on the data',
    'set. --flagfile=PATH reads flags from a file; --list names what there is.',
  ]
  for group, members in GROUPS.items():
    lines += ['', f'{group}:']
    for flag in members:
      lines.append(f'  --{flag.name} ({flag.kind})')
      lines += textwrap.wrap(
        flag.help, 74, initial_indent=' ' * 6, subsequent_indent=' ' * 6
      )
  return '\n'.join(lines)
