"""A user's tables: CSV and Parquet files, read by pyarrow.

A CSV file is UTF-8, or UTF-16 with its mark; commas, semicolons, tabs or bars
part its columns. Where commas do not, they may be decimal. All cells stay as
they are written until `numbers` reads a column, so that 007 is not 7 and NA may
be a word.
"""

from __future__ import annotations

import csv
import dataclasses
import decimal
import functools
import io
import os
import re
from collections.abc import Mapping, Sequence

import numpy as np
import psutil
from etils import epy

from datasets.files.npz_files import wrong
from datasets.sources.own import rows as rows_lib
from datasets.sources.own.rows import CLIENT, NUMBER, SPLITS, TEST, TRAIN, Rows

# They take a second to import, which --help does not need.
with epy.lazy_imports():
  import pyarrow as pa
  from pyarrow import compute, parquet
  from pyarrow import csv as arrow_csv

LABEL = 'label'
ENDINGS = ('.csv', '.parquet')
# What folders of tables hold.
SIGNS = tuple((f'{TRAIN}{ending}',) for ending in ENDINGS)
_SEPARATORS = ',;\t|'
# Signs, or a currency; digits of any kind, maybe with groups of thousands (007
# is a code); a unit such as mg/dl, or a second number, as in 120/80.
_LIKE_NUMBER = re.compile(
  r'(?:\W{0,3}|(?:[a-z]{0,2}[$\xa3\u20ac]|usd|eur|gbp|chf|jpy|cny|inr)\s*)'
  r'[+-]?(?!0\d+(?![.,\d]))(?P<number>\d[\d.,\'\u2019\s]*(?:_\d{3})*)'
  r'(?:e[+-]?\d+)?\s*'
  r'(?P<unit>[+%\xb0]?\s*[^\W\d_]+(?:[ /.^*\xb7]{1,2}[^\W\d_]+){0,3}'
  r'((?<=m)[23])?)?'
  r'(?:(?:\xb1|\+/-|[/(]|[x^*\xd7]\s*10\^)\s*\d[\d.,]*)?\W{0,2}|0x[\da-f]+',
  re.IGNORECASE,
)
_ORDINAL = re.compile('(st|nd|rd|th)\\b', re.IGNORECASE)
_MONTH = (
  '(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|'
  'sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)'
)
_DATE = re.compile(
  r'\d{4}[-/.](\d\d?|W\d\d)([-/.]\d\d?([T ].*)?)?|[0-3]?\d/[0-3]?\d|'
  r'\d\d?[./-]\d\d?[./-]\d{2,4}.*|\d\d?(:\d\d|h\d\d?)(:\d\d)?\b.*|'
  rf'(\d\d?\W{{0,2}})?{_MONTH}[\W_]*\d.*|\d\d?[. -]{{0,2}}({_MONTH}|'
  r'[^\W\d_]{3,9}[. -]{1,2}\d{4})(?![^\W\d_]).*',
  re.IGNORECASE,
)
# From so many different numbers on, they are no codes of classes; of so many
# marks beside them, each stands for what is no number; so many units are mixed.
_SEVERAL, _MOST_MARKS, _MOST_UNITS = 5, 5, 3
# In any case, and in one form.
_TRUTH = ('true', 'false')
# What pyarrow raises where bytes make no sense to it.
_UNREADABLE = (
  *(ValueError, TypeError, LookupError, OSError, RecursionError),
  csv.Error,  # Of a header of one very long name.
)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
  """A table; cells are text, or numbers where the file has a type for them.

  Attributes:
    columns: By name, `float64 [N]` with NaN for an empty cell, or N strings as
      a `pa.DictionaryArray`, where a cell is null if it is empty or of blanks.
    separator: What parts cells; where commas do not, they may be decimal.
  """

  path: str
  columns: Mapping[str, np.ndarray | pa.DictionaryArray]
  separator: str = ','

  @functools.cached_property
  def has_decimal_commas(self) -> bool:
    """Whether a cell is a number with a comma."""
    return any(
      compute.any(
        compute.match_substring_regex(c.dictionary, r'^[+-]?\d+,\d+$')
      ).as_py()
      for c in self.columns.values()
      if not isinstance(c, np.ndarray)
    )

  def wrong(self, name: str, found: str, remedy: str) -> ValueError:
    """Returns the error about a column."""
    return wrong(self.path, f'column {name!r}', found, remedy)

  def __len__(self):
    return len(next(iter(self.columns.values()), ()))

  def distinct(self, name: str) -> tuple[list[str | None], np.ndarray]:
    """Returns the different cells of a column as text, and which each row has.

    The last cell, an empty one, is `None`.
    """
    column = self.columns[name]
    if isinstance(column, np.ndarray):
      cells, index = np.unique(column, return_inverse=True)
      cells = [None if np.isnan(c) else _plain(c) for c in cells.tolist()]
      return [*cells, None], index
    cells = column.dictionary.to_pylist()
    index = column.indices.fill_null(len(cells)).to_numpy()
    return [*cells, None], index

  def texts(self, name: str) -> list[str | None]:
    """Returns a column as text; `None` for an empty cell, or one of blanks."""
    cells, index = self.distinct(name)
    return [cells[i] for i in index.tolist()]


def paths_of(dataset: str, data_dir: str | None) -> dict[str, str]:
  """Returns the files by split; refuses two, or none for training or test."""
  needed = 'train.csv and test.csv'
  if data_dir is None:
    raise ValueError(
      f'dataset={dataset!r} needs data_dir: the folder that holds {needed}.'
    )
  paths = {split: _path(data_dir, split) for split in SPLITS}
  for split in (TRAIN, TEST):
    if paths[split] is None:
      raise ValueError(
        f'{os.path.join(data_dir, split)}.csv: no such file; data_dir must '
        f'hold {needed}, or the same as .parquet.'
      )
  return {split: path for split, path in paths.items() if path is not None}


def _path(folder: str, split: str) -> str | None:
  found = [
    path
    for ending in ENDINGS
    if os.path.lexists(path := os.path.join(folder, f'{split}{ending}'))
  ]
  if len(found) > 1:
    raise ValueError(f'{found[0]} and {found[1]} are there: remove one.')
  return found[0] if found else None


def _find(folder: str, split: str) -> Table:
  """Reads the table of a split; it is empty where there is none."""
  path = _path(folder, split)
  return Table('', {}) if path is None else read(path)


def count_rows(split: str, folder: str) -> int:
  """Returns how many rows the file of a split has; 0 without one."""
  return len(_find(folder, split))


def count_owners(folder: str) -> int:
  """Returns how many owners the training table names."""
  table = _find(folder, TRAIN)
  if CLIENT not in table.columns:
    return 0
  names = filter(None, table.distinct(CLIENT)[0])
  return len(set(map(rows_lib.class_of, names)))


def has_column(name: str, folder: str) -> bool:
  """Returns whether the training table has a column."""
  return name in _find(folder, TRAIN).columns


def rows_of(
  paths: Mapping[str, str], known: Sequence[str] = ()
) -> tuple[dict[str, Table], dict[str, Rows]]:
  """Reads all tables and their rows; of other columns, `known` are read."""
  tables = {split: read(path) for split, path in paths.items()}
  found = {}
  for split, table in tables.items():
    names = list(table.columns)
    if LABEL not in names and not (split == TRAIN and rows_lib.SERVER in paths):
      raise ValueError(
        f'{table.path} has no column {LABEL!r}, but {names[:5]}: call the '
        f'column of the classes {LABEL!r}.'
      )
    rows_lib.check_no_owners(table.path, names, (LABEL, *known))
    found[split] = Rows(
      table.path,
      table,
      table.texts(LABEL) if LABEL in names else [None] * len(table),
      [c or '' for c in table.texts(CLIENT)] if CLIENT in names else None,
      # The header is the first row.
      place=lambda row: f'row {row + 2}',
      label_field=f'column {LABEL!r}',
      owner_field=f'column {CLIENT!r}',
    )
  return tables, found


def read(path: str) -> Table:
  """Reads a table; the ending of the file says what it is."""
  try:
    if not os.path.isfile(path):  # Who opens a pipe waits for ever.
      is_folder = os.path.isdir(path)
      raise OSError('a folder, write one file' if is_folder else 'no such file')
    status = os.stat(path)
    return _read(path, (status.st_mtime_ns, status.st_size, status.st_ino))
  except _UNREADABLE as error:
    if type(error) is ValueError and path in str(error):
      raise
    reason = ' '.join(str(error).split()).rstrip('.')
    raise ValueError(f'{path} cannot be read as a table: {reason}.') from error


def forget() -> None:
  """Frees the memory of the tables that were read last."""
  _read.cache_clear()


# Defaults are asked for before the data are read.
@functools.lru_cache(maxsize=4)
def _read(path: str, version) -> Table:
  del version
  is_csv = path.lower().endswith('.csv')
  columns, separator = _read_csv(path) if is_csv else _read_parquet(path)
  if not columns or not len(next(iter(columns.values()))):
    raise ValueError(f'{path} has no row: add some.')
  return Table(path, columns, separator)


def _words(column) -> pa.DictionaryArray:
  """Returns the texts of an Arrow column, each held once."""
  column.validate(full=True)  # Parquet files may hold what is no UTF-8.
  column = compute.utf8_trim_whitespace(column)
  is_blank = compute.equal(column, '')
  column = compute.if_else(is_blank, pa.scalar(None, column.type), column)
  lower = compute.utf8_lower(column)
  # True of CSV is true of Parquet, whatever stands in other cells.
  is_truth = compute.is_in(lower, pa.array(_TRUTH))
  column = compute.if_else(is_truth, lower, column)
  encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
  if compute.all(compute.string_is_ascii(encoded.dictionary)).as_py():
    return encoded
  # Arrow 16 decomposes accents where it is asked to compose them.
  names = map(rows_lib.name_of, encoded.dictionary.to_pylist())
  again = pa.array(names, pa.string()).dictionary_encode()
  return pa.DictionaryArray.from_arrays(
    again.indices.take(encoded.indices), again.dictionary
  )


def _check_names(path: str, names: Sequence[str]) -> None:
  folded = {}
  for name in names:
    if not name.strip():
      raise ValueError(
        f'{path} has a column without a name: give each column one in the '
        'first line, and leave row numbers out (index=False).'
      )
    key = rows_lib.name_of(name).casefold()
    if key in folded:
      raise ValueError(
        f'{path} has the columns {folded[key]!r} and {name!r}: two columns of '
        'one name, but for case and blanks; rename or remove one.'
      )
    folded[key] = name


def _decoded(path: str) -> str:
  """Returns the text of a CSV file, with the line ends of Unix."""
  with open(path, 'rb') as file:
    content = file.read()
  is_wide = content[:2] in (b'\xff\xfe', b'\xfe\xff')
  try:
    text = content.decode('utf-16' if is_wide else 'utf-8-sig')
  except UnicodeDecodeError as error:
    raise ValueError(
      f'{path} is no UTF-8 (byte {error.start}): save it as "CSV UTF-8", or '
      "read it with the encoding that it has, such as 'cp1252', and write it "
      'anew.'
    ) from error
  if '\0' in text:
    raise ValueError(f'{path} holds a NUL byte: write the file anew.')
  return text.replace('\r\n', '\n').replace('\r', '\n')  # Within cells, too.


def _read_csv(path: str) -> tuple[dict[str, pa.DictionaryArray], str]:
  text = _decoded(path)
  # Blank lines, and the mark of a spreadsheet.
  start = re.match(r'(\s*\n)? *(sep=.\n)?', text)[0]
  text = text[len(start) :]
  separator, names = _header(path, text)
  _check_names(path, names)
  ends = re.escape(separator) + '\n'
  # As Arrow reads: marks within other cells are text.
  quoted = rf'(?<![^{ends}])"([^"]*(?:""[^"]*)*)("[^{ends}]*)?'
  broken = []

  def hide(found):
    if found[2] != '"' or '\n' in found[1]:
      broken.append(found)
    return '"' * len(found[0])

  plain = re.sub(quoted, hide, text)
  where = path, start.count('\n'), separator, broken
  _check_quotes(*where, {})
  _check_cells(path, text, plain, separator, len(names))
  encoded = text.encode()
  table = arrow_csv.read_csv(
    io.BytesIO(encoded),
    arrow_csv.ReadOptions(
      use_threads=False, block_size=min(len(encoded) + 1, 2**31 - 1)
    ),
    arrow_csv.ParseOptions(
      delimiter=separator,
      newlines_in_values=True,
      invalid_row_handler=lambda row: 'error' if row.text.strip() else 'skip',
    ),
    arrow_csv.ConvertOptions(
      column_types=dict.fromkeys(names, pa.string()), null_values=['']
    ),
  )
  columns = {name: _words(table.column(name)) for name in names}
  _check_header_once(path, columns)
  _check_quotes(*where, columns)
  return columns, separator


def _check_cells(path, text, plain, separator, expected) -> None:
  """Refuses rows of more or fewer cells than columns, but for blank lines.

  `plain` is the text with other characters in the place of quoted cells.
  """
  # Arrow does not count empty lines.
  for place, line in enumerate(filter(None, plain.split('\n'))):
    cells = line.count(separator) + 1
    # Arrow 16 writes beyond its memory where a row is too long
    # (github.com/apache/arrow/issues/45497).
    if cells != expected and (cells > expected or line.strip()):
      begin, end = [*re.finditer('.+', plain)][place].span()
      raise ValueError(
        f'{path}: row {place + 1} has {cells} cells under {expected} columns '
        f'({text[begin:end][:60]!r}): correct it, and write cells that hold '
        f'{separator!r} in quotes.'
      )


def _check_quotes(path, skipped, separator, cells, columns) -> None:
  """Refuses quotes that do not end with their cell, or have swallowed rows.

  `cells` are matches in the text without the `skipped` lines at its beginning.
  """
  seen = [set(c.dictionary.to_pylist()) for c in columns.values() if cells]
  for found in cells:
    lines = [line.split(separator) for line in found[1].split('\n')]
    first, last = ([''] * (len(seen) - len(lines[i]) + 1) for i in (0, -1))
    rows = [first + lines[0][1:], *lines[1:-1], lines[-1][:-1] + last]
    # Lines of texts may have as many commas, but not a class or an owner.
    are_rows = len(seen) > 1 and all(len(row) == len(seen) for row in rows)
    is_closed = found[2] and not found[2][1:].strip()
    if not is_closed or (
      are_rows
      and any(c and c in s for r in rows for c, s in zip(r, seen, strict=True))
    ):
      line = 1 + skipped + found.string.count('\n', 0, found.start())
      raise ValueError(
        f'{path}: line {line}: the quotation mark of {found[0][:60]!r} is not '
        'closed where the cell ends: put a cell that holds quotation marks or '
        'line breaks in quotes, with the marks within it twice (""); if this '
        'is one text, write its lines in one.'
      )


def _header(path: str, text: str) -> tuple[str, list[str]]:
  """Returns what parts the cells of a CSV file, and the names of columns."""
  line, found = re.split('[\r\n]', text, maxsplit=1)[0], []
  if line.count('"') % 2:
    raise ValueError(
      f'{path} has a line break within the name of a column, or a quotation '
      'mark that is not closed: write the names in one line, in quotes.'
    )
  for separator in _SEPARATORS:
    names = next(csv.reader([line], delimiter=separator), [])
    is_known = any(rows_lib.name_of(n) in (LABEL, CLIENT) for n in names)
    found.append((is_known, len(names), separator, names))
  # The first of equals.
  _, count, separator, names = max(found, key=lambda one: one[:2])
  # A single column has nothing to part: texts may hold commas.
  return separator if count > 1 else '\x1f', names


def _check_header_once(path: str, columns) -> None:
  """Refuses files that were joined with their headers."""
  rows = None
  for name, column in columns.items():
    number = column.dictionary.index(rows_lib.name_of(name)).as_py()
    same = column.indices.fill_null(-2).to_numpy() == number
    rows = same if rows is None else rows & same
  if rows is not None and np.any(rows):
    raise ValueError(
      f'{path}: row {int(np.argmax(rows)) + 2} repeats the names of the '
      'columns: give each row once.'
    )


def _read_parquet(path: str):
  with parquet.ParquetFile(path) as file:
    schema, num_rows = file.schema_arrow, file.metadata.num_rows
    names = schema.names
    _check_names(path, names)
    # A byte may stand for millions of equal cells.
    needed = 8 * num_rows * len(names)
    free = psutil.virtual_memory().available
    if needed > free:
      raise ValueError(
        f'{path}: {num_rows:,} rows take {needed / 1e9:.3g} GB or more, and '
        f'{free / 1e9:.3g} GB of memory are free: give fewer.'
      )
    table = file.read()
  columns = {}
  for name in names:
    if re.fullmatch('__index_level_[0-9]+__', name):
      # Row numbers are no data; names are.
      if not pa.types.is_integer(table.schema.field(name).type):
        raise wrong(
          path, 'its index', 'words', 'make it a column (reset_index)'
        )
      continue
    columns[name] = _of_arrow(path, name, table.column(name))
  return columns, ','


def _of_arrow(path: str, name: str, column) -> np.ndarray | pa.DictionaryArray:
  kind = column.type
  if pa.types.is_dictionary(kind):
    column = column.cast(kind.value_type)
    kind = column.type
  if pa.types.is_boolean(kind) or pa.types.is_null(kind):
    column = column.cast(pa.string())
    kind = column.type
  if pa.types.is_integer(kind) and name in (LABEL, CLIENT):
    return _words(column.cast(pa.string()))  # To the last digit.
  if pa.types.is_float32(kind) and name in (LABEL, CLIENT):
    column = column.cast(pa.string()).cast(pa.float64())  # As they are written.
  if pa.types.is_integer(kind) or pa.types.is_floating(kind):
    return column.to_pandas().to_numpy(np.float64, na_value=np.nan)
  if pa.types.is_decimal(kind):
    texts = column.cast(pa.string())
    return _words(
      compute.replace_substring_regex(texts, r'\.0+$|(\.\d*[1-9])0+$', r'\1')
    )
  if pa.types.is_string(kind) or pa.types.is_large_string(kind):
    return _words(column.cast(pa.string()))
  raise wrong(
    path,
    f'column {name!r}',
    f'cells of the type {kind}',
    'give numbers or words'
    + (', such as the days since a date' if pa.types.is_temporal(kind) else ''),
  )


def numbers(
  table: Table, name: str, *, must: bool = False
) -> np.ndarray | None:
  """Returns a column as numbers, with NaN for none, or `None` if it is words.

  There `must` be numbers where the training file has some.
  """
  column = table.columns[name]
  if isinstance(column, np.ndarray):
    return _finite(table, name, column)
  cells = column.dictionary
  index = column.indices.fill_null(len(cells)).to_numpy()
  counts = np.bincount(index, minlength=len(cells) + 1)
  are_plain = compute.match_substring_regex(cells, f'^(?:{NUMBER.pattern})$')
  plain = np.append(are_plain.to_numpy(zero_copy_only=False), False)
  values = np.full(len(plain), np.nan)
  values[plain] = cells.filter(are_plain).cast(pa.float64())
  others, with_comma, present = {}, {}, int(counts[plain].sum())
  for number in np.flatnonzero(~plain[:-1]):
    text = cells[number].as_py()
    if rows_lib.is_missing(text):
      continue
    present += int(counts[number])
    written = text.strip().translate(rows_lib.MINUS)
    if NUMBER.fullmatch(written):
      values[number], plain[number] = float(written), True
      continue
    others[text] = int(counts[number])
    if table.separator != ',' and NUMBER.fullmatch(written.replace(',', '.')):
      with_comma[number] = written
  if others and len(with_comma) == len(others):
    has_dots = any('.' in cells[i].as_py() for i in np.flatnonzero(plain))
    thousands = (
      re.fullmatch(r'[+-]?\d{1,3},\d{3}', t) for t in with_comma.values()
    )
    if has_dots or all(thousands):
      raise table.wrong(
        name,
        f'{next(iter(with_comma.values()))!r}, where the comma may be decimal '
        'or part thousands',
        'write numbers with a point, and without marks between thousands',
      )
    for number, written in with_comma.items():
      values[number] = float(written.replace(',', '.'))
  elif others and must:
    raise table.wrong(
      name, f'{next(iter(others))!r}', 'the training file has numbers there'
    )
  elif others:
    _check_words(table, name, others, present, int(plain.sum()))
    return None
  if table.separator != ',':
    _check_points(table, name, cells.filter(pa.array(plain[:-1])).to_pylist())
  return _finite(table, name, values[index])


def _check_points(table, name, texts) -> None:
  """Refuses points that may part thousands, where commas may be decimal."""
  points = [text for text in texts if '.' in text]
  whole = [text for text in texts if '.' not in text]
  thousands = all(re.fullmatch(r'[+-]?\d{1,3}\.\d{3}', t) for t in points)
  # Where 1000 or 0.123 stands as well, points are decimal; of tabs and bars,
  # English tables are made, too, with three digits behind each point.
  are_decimal = any(t.lstrip('+-')[0] == '0' for t in points) or any(
    len(t.lstrip('+-')) > 3 for t in whole
  )
  may_be = not are_decimal and (whole or table.separator == ';')
  if points and thousands and (table.has_decimal_commas or may_be):
    raise table.wrong(
      name,
      f'{points[0]!r}, where the point may part thousands, since cells are '
      f'parted by {table.separator!r}',
      'write numbers without marks between thousands or, if points are '
      'decimal, part cells by commas',
    )


def _check_words(table, name, others, present, num_plain) -> None:
  """Refuses words of which most look like numbers, or all like dates.

  `others` counts cells that are no number; `present` have a value.
  """
  forms = {t: _LIKE_NUMBER.fullmatch(t.strip()) for t in others}
  units = {
    t: ((m['unit'] or '').strip().lower(), m['number'])
    for t, m in forms.items()
    if m and not _ORDINAL.match(m['unit'] or '')
  }
  kinds, amounts = ({x[i] for x in units.values()} - {''} for i in (0, 1))
  if len(kinds) > (_MOST_UNITS if len(amounts) >= _SEVERAL else 1):
    units = {}  # Such as 1A, 1B and 2A.
  like = present - sum(others.values()) + sum(others[text] for text in units)
  marks = [text for text in others if text not in units]
  odd = marks[0] if len(marks) == 1 else next(iter(others))
  dates = sum(n for t, n in others.items() if _DATE.fullmatch(t.strip()))
  if 2 * dates > present:
    raise table.wrong(
      name,
      f'dates or times such as {odd!r}',
      'give numbers, such as the days since a date, or leave the column out',
    )
  # However often they stand there, few words beside numbers mark what is none.
  are_marked = marks and len(marks) <= _MOST_MARKS
  if 2 * like > present or (are_marked and num_plain + len(units) >= _SEVERAL):
    raise table.wrong(
      name,
      f'{sum(others.values()):,} of {present:,} cells such as {odd!r} in what '
      'looks like numbers',
      'write plain numbers such as -1234.5 without signs, units and marks, '
      'and leave cells without a value empty; if they are words, begin each '
      'with a letter',
    )


def _finite(table, name, values) -> np.ndarray:
  with np.errstate(over='ignore'):
    if np.isinf(values.astype(np.float32)).any():
      raise table.wrong(name, 'an infinite number', 'leave the cell empty')
  return values


def _plain(value: float) -> str:
  """Returns a number as people write it."""
  if value.is_integer():
    return str(int(value))
  return format(decimal.Decimal(repr(value)), 'f')
