"""Writes `results/README.md`: the papers' claims, and what came out here.

python -m tools.claims

`results/claims.toml` says what is compared. The figures are read from
`results/*_curves.csv` and from the recipes, and the verdict follows from them
by a rule (`verdict`), so that neither can drift from what was run.
"""

import dataclasses
import functools
import tomllib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.config import command_line
from experiments.tables import seeds
from tools import stored_results
from tools.stored_results import share

COMMAND = 'python -m tools.claims'

# How near to the published figures ours must be to reproduce them.
_WITHIN = 0.03
# How near two systems must be for "hardly differs".
_LEVEL = 0.03
_MIN_SEEDS = 3
_EXPECTED = ('above', 'level')
# A run still trains if it gains so much in the last fifth of its rounds, or if
# a longer run does.
_STILL_GAINS = 0.01
# Below so many times the accuracy of guessing, a run has not begun to learn.
_TIMES_CHANCE = 2


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
      `system` and `control`, or these figures where no recipe has them; empty
      where there are none.
    expects: `above`, or `level` for "hardly differs".
    longer: FILE:RUN of a longer run of `system`, of `control` or of both, where
      there is one: a rate that falls with the rounds ends the gain of a shorter
      one early.
    in_published_setting: Whether the published figures can be reached here.
    num_classes: Classes of the data, which tell what guessing gives.
  """

  key: str
  paper: str
  text: str
  setting: str
  page: str
  curves: Sequence[str] = ()
  system: str = ''
  control: str = ''
  published: Sequence[str | float] = ()
  expects: str = 'above'
  longer: Mapping[str, str] = dataclasses.field(default_factory=dict)
  in_published_setting: bool = False
  num_classes: int = 10


@dataclasses.dataclass(frozen=True)
class Figures:
  """What the runs of a claim show.

  Attributes:
    system: Mean accuracy of the system at the end, over the seeds that both
      runs have.
    control: The same of the control.
    lead: The differences of both, paired by seed.
    has_ended: Whether the training of both had ended, so that the other order
      contradicts.
  """

  system: float
  control: float
  lead: seeds.Spread
  has_ended: bool = False


def load() -> tuple[Mapping[str, Mapping[str, str]], Sequence[Claim]]:
  """Returns title and answer of each paper, and the claims."""
  path = stored_results.RESULTS / 'claims.toml'
  content = tomllib.loads(path.read_text(encoding='utf-8'))
  known = {field.name for field in dataclasses.fields(Claim)}
  claims = []
  for key, fields in content['claims'].items():
    if unknown := fields.keys() - known:
      raise ValueError(f'{path}: claims.{key} has unknown {sorted(unknown)}.')
    if fields['paper'] not in content['papers']:
      raise ValueError(f'{path}: claims.{key}: no paper {fields["paper"]!r}.')
    claim = Claim(key, **fields)
    if claim.expects not in _EXPECTED:
      raise ValueError(
        f'{path}: claims.{key}: expects={claim.expects!r} must be one of '
        f'{_EXPECTED}.'
      )
    if len(claim.published) not in (0, 2):
      raise ValueError(
        f'{path}: claims.{key}: published={claim.published} must name the rows '
        'of system and control, give their figures, or be empty.'
      )
    claims.append(claim)
  return content['papers'], claims


def measure(claim: Claim) -> Figures | None:
  """Returns what its runs show; `None` if it was not run.

  Raises:
    ValueError: If no seed has both runs, a longer run is not there, or several
      files have a run that is named without its file.
  """
  if not claim.curves:
    return None
  curves = {
    key: _of_run(claim.curves, run)
    for key, run in (('system', claim.system), ('control', claim.control))
  }
  last, last_gain = stored_results.last, stored_results.last_gain
  ends = {key: last(of_run) for key, of_run in curves.items()}
  pairs = pd.concat(ends, axis=1).dropna()
  if pairs.empty:
    raise ValueError(
      f'claims.{claim.key}: {claim.system!r} and {claim.control!r} have no '
      f'seed in common in {", ".join(claim.curves)}.'
    )
  lead = seeds.spread(pairs['system'] - pairs['control'])
  means = pairs.mean()
  gains = [last_gain(of_run).mean() for of_run in curves.values()]
  for key, run in claim.longer.items():
    longer = _of_run([run.partition(':')[0]], run)
    if key not in curves or longer.empty:
      raise ValueError(
        f'claims.{claim.key}: longer.{key}={run!r} is no stored run of the '
        'system or the control.'
      )
    gains.append(last(longer).mean() - means[key])
  return Figures(**means, lead=lead, has_ended=max(gains) < _STILL_GAINS)


@functools.cache
def _curves(name: str, folder) -> pd.DataFrame:
  del folder  # Only for the cache.
  return stored_results.curves(name)


def _of_run(files: Sequence[str], run: str) -> pd.DataFrame:
  """Returns the curves of a run in files, a column for each seed."""
  file, _, name = run.rpartition(':')
  tables = [
    _curves(each, stored_results.RESULTS)
    for each in files
    if file in ('', each)
  ]
  found = pd.concat(
    [pd.DataFrame(), *(table[name] for table in tables if name in table)],
    axis=1,
  )
  if found.columns.has_duplicates:
    raise ValueError(
      f'several files have a run {run!r} of the same seed: name it as FILE:RUN.'
    )
  return found


def verdict(
  claim: Claim, figures: Figures | None, published: Sequence[float]
) -> str:
  """Returns the verdict that follows from the figures (`_METHOD`)."""
  if figures is None:
    return 'not run'
  ours, lead = (figures.system, figures.control), figures.lead
  has_begun = min(ours) >= _TIMES_CHANCE / claim.num_classes
  if lead.n < _MIN_SEEDS or not has_begun:
    return 'open'
  if claim.expects == 'level':
    holds = lead.low > -_LEVEL and lead.high < _LEVEL
    fails = lead.high < -_LEVEL or lead.low > _LEVEL
  else:
    holds, fails = lead.low > 0, lead.high < 0
  if fails:
    return 'contradicted' if figures.has_ended else 'not at this scale'
  if not holds:
    return 'open'
  if not published:
    return 'holds'
  is_near = np.allclose(ours, published, rtol=0, atol=_WITHIN)
  is_reproduced = claim.in_published_setting and is_near
  return 'reproduced' if is_reproduced else 'order only'


_METHOD = (
  '## How to read it',
  '',
  f'- **Ours** is test accuracy, the mean of the last {stored_results.LAST} '
  'evaluations, over the seeds: first the system, then what it is compared '
  'with. '
  '**Difference** is paired by seed; in brackets stands the 95% interval of '
  "its mean by Student's t.",
  '- **reproduced**: the published order, and both figures within '
  f'{share(_WITHIN)} of the published ones, in the published setting.',
  '- **order only**: the published order; the interval excludes zero.',
  '- **holds**: the order that is claimed, where no figures were published; '
  'the interval excludes zero.',
  f'- **open**: fewer than {_MIN_SEEDS} seeds; or the interval reaches to both '
  f'sides; or one of the two is below {_TIMES_CHANCE} times what guessing '
  'gives, and has not begun to learn.',
  '- **not at this scale**: the other order, where training had not ended.',
  '- **contradicted**: the other order, where training had ended: neither '
  f'gains {share(_STILL_GAINS)} in the last fifth of its rounds, by a straight '
  'line through at least as many evaluations as are averaged, nor in a longer '
  'run that is stored.',
  '- **not run**: nobody has run it here. Its recipe is there '
  '(`python -m experiments.reproduce --list`).',
  f'- A claim that two systems hardly differ holds if the interval lies '
  f'within {share(_LEVEL)} of zero.',
)
_COLUMNS = (
  *('claim', 'published', 'ours', 'difference', 'setting here', 'seeds'),
  'verdict',
)


def page() -> str:
  """Returns the page of all claims."""
  papers, claims = load()
  figures = {claim.key: measure(claim) for claim in claims}
  lines = ['# Do the methods work? The claims of the papers', '']
  for key, paper in papers.items():
    lines.append(f'- {_answer(key, paper["answer"], figures)}')
  lines += [
    '',
    f'`{COMMAND}` writes this page from [`claims.toml`](claims.toml), the '
    '`*_curves.csv` beside it and the recipes; the verdicts follow from the '
    'figures. [How to read it](#how-to-read-it) has the rule.',
  ]
  for key, paper in papers.items():
    rows = [_row(c, figures[c.key]) for c in claims if c.paper == key]
    table = stored_results.table(_COLUMNS, rows)
    lines += ['', f'## {paper["title"]}', '', table]
  return '\n'.join([*lines, '', *_METHOD]) + '\n'


def _answer(
  paper: str, answer: str, figures: Mapping[str, Figures | None]
) -> str:
  """Returns the answer with the figures that it quotes, as {CLAIM.system}."""
  quotable = {
    key: types.SimpleNamespace(
      system=share(found.system),
      control=share(found.control),
      difference=stored_results.signed(found.lead.mean),
      seeds=str(found.lead.n),
    )
    for key, found in figures.items()
    if found is not None
  }
  try:
    return ' '.join(answer.format_map(quotable).split())
  except (KeyError, AttributeError) as error:
    raise ValueError(
      f'papers.{paper}: its answer quotes {error}, which is no figure of a '
      'claim that was run.'
    ) from error


def _row(claim: Claim, figures: Figures | None) -> Sequence[Any]:
  published = [
    stored_results.published(row) if isinstance(row, str) else row
    for row in claim.published
  ]
  ours = lead = seeds_of_both = ''
  if figures is not None:
    ours = ', '.join(map(share, (figures.system, figures.control)))
    lead = stored_results.lead(figures.lead)
    seeds_of_both = figures.lead.n
  return (
    f'[{claim.text}]({claim.page}.md)' if claim.page else claim.text,
    ', '.join(map(share, published)),
    *(ours, lead, claim.setting, seeds_of_both),
    f'**{verdict(claim, figures, published)}**',
  )


def main() -> int:
  """Writes the page, and returns the exit code."""
  path = stored_results.RESULTS / 'README.md'
  path.write_text(page(), encoding='utf-8')
  print(f'{path} is written.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
