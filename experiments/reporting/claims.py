"""The claims of the papers, what came out here, and a verdict on each.

`results/claims.toml` says what is compared. The figures are read from
`results/*_curves.csv` and from the recipes, and the verdict follows from them
by a rule (`Verdict`), so that neither can drift from what was run.
"""

import dataclasses
import enum
import functools
import pathlib
import tomllib
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from experiments.reporting import stored_curves
from experiments.tables import recipes, seeds

COMMAND = 'python -m experiments.claims'
RESULTS = stored_curves.RESULTS

# How near to the published figures ours must be to reproduce them.
_WITHIN = 0.03
# How near two systems must be for "hardly differs".
_LEVEL = 0.03
_MIN_SEEDS = 3
_EXPECTED = ('above', 'level')
# Below so many times the accuracy of guessing, a run has not begun to learn.
_TIMES_CHANCE = 2


class Verdict(enum.StrEnum):
  """What our runs say of a claim.

  The page says what each one means (`page`).
  """

  REPRODUCED = 'reproduced'
  ORDER = 'order only'
  HOLDS = 'holds'
  OPEN = 'open'
  NOT_YET = 'not at this scale'
  CONTRADICTED = 'contradicted'
  NOT_RUN = 'not run'


@dataclasses.dataclass(frozen=True)
class Claim:
  """A claim of a paper, as `claims.toml` has it.

  Attributes:
    key: Its name, by which an answer quotes its figures.
    paper: Key of the paper.
    text: The claim, in words.
    setting: What was run here: data, network, length.
    page: The page of `results/` that has more, without `.md`.
    curves: Files of `results/`, without `_curves.csv`; none if it was not run.
    system: The run that the claim is about; FILE:RUN where another run of the
      files has that name, too.
    control: The run that it is compared with, likewise.
    published: TABLE:ROW of the recipes that have the published figures of
      `system` and `control`; empty where there are none.
    expects: `above`, or `level` for "hardly differs".
    is_finished: Whether training here had ended, so that the other order
      contradicts.
    in_published_setting: Whether the published figures can be reached here.
    num_classes: Classes of the data, which tell what guessing gives.
  """

  key: str
  paper: str
  text: str
  setting: str
  page: str
  curves: tuple[str, ...] = ()
  system: str = ''
  control: str = ''
  published: tuple[str, ...] = ()
  expects: str = 'above'
  is_finished: bool = False
  in_published_setting: bool = False
  num_classes: int = 10


@dataclasses.dataclass(frozen=True)
class Paper:
  """A paper, and the answer in a few sentences.

  Attributes:
    key: Its name.
    title: Heading.
    answer: Text with fields such as `{KEY.system}`, where `KEY` is a claim.
  """

  key: str
  title: str
  answer: str


@dataclasses.dataclass(frozen=True)
class Figures:
  """What the runs of a claim show.

  Attributes:
    num_seeds: Number of seeds that both runs have.
    system: Mean accuracy of the system at the end, over these seeds.
    control: The same of the control.
    difference: Mean of the differences, paired by seed.
    low: Lower end of its 95% interval by Student's t; `None` below three seeds.
    high: Upper end.
  """

  num_seeds: int
  system: float
  control: float
  difference: float
  low: float | None
  high: float | None


def load(
  folder: pathlib.Path = RESULTS,
) -> tuple[Sequence[Paper], Sequence[Claim]]:
  """Returns the papers and their claims, in the order of the file.

  Args:
    folder: Where `claims.toml` lies.

  Raises:
    ValueError: If a claim has a field that is not known, names a paper that
      the file does not have, expects something else than `above` or `level`, or
      has another number of published figures than none or two.
  """
  path = folder / 'claims.toml'
  content = tomllib.loads(path.read_text(encoding='utf-8'))
  papers = [Paper(key, **value) for key, value in content['papers'].items()]
  known = {field.name for field in dataclasses.fields(Claim)}
  claims = []
  for key, fields in content['claims'].items():
    if unknown := fields.keys() - known:
      raise ValueError(f'{path}: claims.{key} has unknown {sorted(unknown)}.')
    if fields['paper'] not in content['papers']:
      raise ValueError(f'{path}: claims.{key}: no paper {fields["paper"]!r}.')
    lists = {k: tuple(v) for k, v in fields.items() if isinstance(v, list)}
    claim = Claim(key, **{**fields, **lists})
    if claim.expects not in _EXPECTED:
      raise ValueError(
        f'{path}: claims.{key}: expects={claim.expects!r} must be one of '
        f'{_EXPECTED}.'
      )
    if len(claim.published) not in (0, 2):
      raise ValueError(
        f'{path}: claims.{key}: published={claim.published} must name the rows '
        'of system and control, or nothing.'
      )
    claims.append(claim)
  return papers, claims


def measure(claim: Claim, folder: pathlib.Path = RESULTS) -> Figures | None:
  """Returns what its runs show; `None` if it was not run.

  Args:
    claim: The claim.
    folder: Where the curves lie.

  Raises:
    ValueError: If no seed has both runs, or several files have a run that is
      named without its file.
  """
  if not claim.curves:
    return None
  ends = pd.concat(
    {name: _ends(name, folder) for name in claim.curves},
    names=['file'],
  )
  ours, theirs = (_of_run(ends, run) for run in (claim.system, claim.control))
  pairs = pd.concat([ours, theirs], axis=1, keys=['system', 'control']).dropna()
  if pairs.empty:
    raise ValueError(
      f'claims.{claim.key}: {claim.system!r} and {claim.control!r} have no '
      f'seed in common in {", ".join(claim.curves)}.'
    )
  spread = seeds.spread(pairs['system'] - pairs['control'])
  return Figures(
    spread.n,
    pairs['system'].mean(),
    pairs['control'].mean(),
    spread.mean,
    spread.low,
    spread.high,
  )


def verdict(
  claim: Claim, figures: Figures | None, published: Sequence[float]
) -> Verdict:
  """Returns the verdict that follows from the figures.

  Args:
    claim: The claim.
    figures: As `measure` has them.
    published: The published figures of system and control, if any.
  """
  if figures is None:
    return Verdict.NOT_RUN
  ours = (figures.system, figures.control)
  has_begun = min(ours) >= _TIMES_CHANCE / claim.num_classes
  if figures.num_seeds < _MIN_SEEDS or not has_begun:
    return Verdict.OPEN
  if claim.expects == 'level':
    holds = figures.low > -_LEVEL and figures.high < _LEVEL
    fails = figures.high < -_LEVEL or figures.low > _LEVEL
  else:
    holds, fails = figures.low > 0, figures.high < 0
  if fails:
    return Verdict.CONTRADICTED if claim.is_finished else Verdict.NOT_YET
  if not holds:
    return Verdict.OPEN
  if not published:
    return Verdict.HOLDS
  is_near = np.allclose(ours, published, rtol=0, atol=_WITHIN)
  if claim.in_published_setting and is_near:
    return Verdict.REPRODUCED
  return Verdict.ORDER


_METHOD = (
  '## How to read it',
  '',
  f'- **Ours** is test accuracy, the mean of the last {stored_curves.LAST} '
  'evaluations, over the seeds: first the system, then what it is compared '
  'with. '
  '**Difference** is paired by seed; in brackets stands the 95% interval of '
  "its mean by Student's t.",
  '- **reproduced**: the published order, and both figures within '
  f'{stored_curves.share(_WITHIN)} of the published ones, in the published '
  'setting.',
  '- **order only**: the published order; the interval excludes zero.',
  '- **holds**: the order that is claimed, where no figures were published; '
  'the interval excludes zero.',
  f'- **open**: fewer than {_MIN_SEEDS} seeds; or the interval reaches to both '
  f'sides; or one of the two is below {_TIMES_CHANCE} times what guessing '
  'gives, and has not begun to learn.',
  '- **not at this scale**: the other order, where training had not ended or '
  'the network is smaller than the published one.',
  '- **contradicted**: the other order, where training had ended.',
  '- **not run**: nobody has run it here. Its recipe is there '
  '(`python -m experiments.reproduce --list`).',
  f'- A claim that two systems hardly differ holds if the interval lies '
  f'within {stored_curves.share(_LEVEL)} of zero.',
)


def page(folder: pathlib.Path = RESULTS) -> str:
  """Returns the page of all claims.

  Args:
    folder: Where `claims.toml` and the curves lie.

  Raises:
    ValueError: As `load` and `measure`; if an answer quotes an unknown figure.
  """
  papers, claims = load(folder)
  figures = {claim.key: measure(claim, folder) for claim in claims}
  quotable = {
    key: _Quoted(found) for key, found in figures.items() if found is not None
  }
  lines = [
    '# Do the methods work? The claims of the four papers',
    '',
  ]
  for paper in papers:
    try:
      answer = paper.answer.strip().format_map(quotable)
    except (KeyError, AttributeError) as error:
      raise ValueError(
        f'papers.{paper.key}: its answer quotes {error}, which is no figure of '
        'a claim that was run.'
      ) from error
    lines += [f'- {" ".join(answer.split())}']
  lines += [
    '',
    f'`{COMMAND}` writes this page from [`claims.toml`](claims.toml), the '
    '`*_curves.csv` beside it and the recipes; the verdicts follow from the '
    'figures by the rule below.',
  ]
  for paper in papers:
    lines += [
      '',
      f'## {paper.title}',
      '',
      '| claim | published | ours | difference | setting here | seeds '
      '| verdict |',
      '|---|---|---|---|---|---|---|',
    ]
    for claim in claims:
      if claim.paper == paper.key:
        lines.append(_row(claim, figures[claim.key]))
  lines += ['', *_METHOD]
  return '\n'.join(lines) + '\n'


class _Quoted:
  """The figures of a claim, as a page writes them."""

  def __init__(self, figures: Figures):
    self.system = stored_curves.share(figures.system)
    self.control = stored_curves.share(figures.control)
    self.difference = stored_curves.signed(figures.difference)
    self.seeds = str(figures.num_seeds)


def _row(claim: Claim, figures: Figures | None) -> str:
  published = [published_figure(place) for place in claim.published]
  cells = [
    f'[{claim.text}]({claim.page}.md)' if claim.page else claim.text,
    ', '.join(map(stored_curves.share, published)),
    *_cells(figures),
    claim.setting,
    str(figures.num_seeds) if figures else '',
    f'**{verdict(claim, figures, published)}**',
  ]
  return f'| {" | ".join(cells)} |'


def _cells(figures: Figures | None) -> tuple[str, str]:
  if figures is None:
    return '', ''
  ours = map(stored_curves.share, (figures.system, figures.control))
  return ', '.join(ours), stored_curves.lead(
    figures.difference, figures.low, figures.high
  )


def published_figure(place: str) -> float:
  """Returns the published figure of TABLE:ROW.

  Raises:
    ValueError: If the row has none.
  """
  table, _, row = place.partition(':')
  found = _table(table)[row].published
  if found is None:
    raise ValueError(f'{place} has no published figure.')
  return found


@functools.cache
def _table(name: str) -> Mapping[str, recipes.Recipe]:
  return recipes.load(name)


@functools.cache
def _ends(name: str, folder: pathlib.Path) -> pd.Series:
  """Returns the mean of the last evaluations, by run and seed."""
  return stored_curves.last(stored_curves.read(name, folder=folder))


def _of_run(ends: pd.Series, run: str) -> pd.Series:
  """Returns the ends of a run by seed; none if there is no such run."""
  file, _, name = run.rpartition(':')
  of_name = ends.index.get_level_values('run') == name
  of_file = ends.index.get_level_values('file') == file if file else True
  found = ends[of_name & of_file]
  if found.index.droplevel('file').has_duplicates:
    raise ValueError(
      f'several files have a run {run!r} of the same seed: name it as FILE:RUN.'
    )
  return found.droplevel(['file', 'run'])
