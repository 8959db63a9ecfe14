"""The user's own tables: `<data_dir>/train.csv` and `<data_dir>/test.csv`.

Parquet files (`train.parquet`) do as well. There may be a validation file, and
a file `server` with the labelled rows of the server, which then takes none from
the clients. A row is an example:

* `label`: the class, a number or a word; in the training file it may be empty;
* `client_id` (optional): the owner of the row. It is in all files, or in the
  training file alone;
* all other columns are features. Columns of numbers are standardised by their
  mean and standard deviation in the training file, and an empty cell is their
  mean. Columns of words become one feature for each word of the training file,
  1 or 0; of an empty cell or an unknown word all are 0.
"""

import functools

from datasets.files import npz_files
from datasets.sources import run_profiles
from datasets.sources.own import features, rows, tables
from datasets.sources.own.rows import CLIENT, SERVER, TRAIN
from datasets.sources.source import Source


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the tables.

  Args:
    data_dir: The folder with the files.
    cache_dir: Ignored: the files are read in place.

  Returns:
    The source. A training row may lack a label (`UNKNOWN`).

  Raises:
    ValueError: If a file is absent or unreadable, or the tables are not as
      described above.
  """
  del cache_dir
  paths = tables.paths_of('table', data_dir)
  found, rows_of = tables.rows_of(paths)
  labelled = rows.read(rows_of)
  beside = (tables.LABEL, CLIENT)
  encoding = features.Encoding.of(
    found[TRAIN], found[TRAIN].columns.keys() - set(beside)
  )
  examples = {
    name: encoding.encode(table, beside) for name, table in found.items()
  }
  mean, stddev = features.moments(examples[TRAIN], len(encoding.numbers))
  return labelled.source(
    'tables',
    data_dir,
    examples,
    name='table',
    version=f'table-{npz_files.digest(paths.values())}',
    mean=mean,
    stddev=stddev,
    background=0,
    columns=encoding.columns,
    notes=(*encoding.notes, *_unusual(encoding, found)),
    facts=encoding.facts,
    preprocessing={
      'kind': 'table',
      'numbers': dict(encoding.numbers),
      'words': {name: list(words) for name, words in encoding.words.items()},
      'ranges': {name: list(ends) for name, ends in encoding.ranges.items()},
    },
  )


def _unusual(encoding, found):
  """Names values of the other files that the training file lacks."""
  for split, table in found.items():
    if split == TRAIN:
      continue
    said = [one for one in encoding.unusual(table) if one]
    if said:
      yield (
        f'{table.path}: {len(said):,} of {len(table):,} rows have values that '
        f'{TRAIN} lacks, such as {said[0][0]}.'
      )


SPEC = rows.spec(
  run_profiles.OWN_TABLE,
  tables.count_owners,
  functools.partial(tables.count_rows, SERVER),
  name='table',
  description='your own rows of numbers and words, <data_dir>/train.csv and '
  'test.csv, or .parquet',
  load=load,
  check_files=functools.partial(tables.paths_of, 'table'),
  form='vectors',
)
