"""Says what was understood of a user's data, without training anything.

See `python -m experiments.check_data --help`.
"""

import pathlib
import shlex
import sys

from datasets.sources import catalogue
from experiments.artifacts import run_folder
from experiments.config import catalogue as catalogue_lib
from experiments.config import command_line, side_commands
from experiments.config.command_line import UsageError
from tff_ssl.common.setting import Setting

# The exit code of --strict where something looks odd.
ODD = 3
COMMAND = side_commands.Command(
  'check_data',
  'Reads data of your own and says what was understood, and what looks odd. '
  'Nothing is trained.',
  'FOLDER',
  (
    Setting(
      'dataset',
      str,
      'The data set that reads the folder; by default the one that fits what '
      'is in it.',
    ),
    Setting(
      'strict',
      bool,
      f'Ends with exit code {ODD} where something looks odd.',
      default=False,
    ),
    side_commands.CACHE_DIR,
    side_commands.JSON,
  ),
  arguments='FOLDER',
  kinds=('the folder of your data',),
)


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  return COMMAND.main(argv, _run)


def _run(values, arguments: list[str]) -> int:
  folder = pathlib.Path(arguments[0]).expanduser()
  cache_dir = str(pathlib.Path(values.cache_dir).expanduser())
  try:
    dataset = values.dataset or catalogue.recognise(folder)
    catalogue_lib.find('dataset', dataset)
    print(f'Read as --dataset={dataset}.')
    with run_folder.cache_folder(cache_dir):
      source = catalogue.load(
        dataset, data_dir=str(folder), cache_dir=cache_dir
      )
  except (ValueError, TypeError, OSError) as error:
    raise UsageError(str(error)) from error
  from datasets.records import source_report

  facts = source_report.facts(source)
  odd = source_report.oddities(source)
  values.found.update(
    dataset=dataset,
    form=source.form,
    shape=source.train.examples.shape[1:],
    splits=source_report.sizes_of_splits(source),
    facts=facts,
    odd=odd,
  )
  print(*facts, sep='\n')
  print('', *(f'Look at: {line}' for line in odd), sep='\n')
  if not odd:
    print('Nothing looks odd.')
  print(
    f'Next: python -m experiments.run --process=recommended '
    f'--dataset={dataset} --data_dir={shlex.quote(str(folder))}'
  )
  return ODD if odd and values.strict else 0


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
