"""The page of runs, read back by a parser of HTML, its charts by bokeh."""

import html
import html.parser
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
import run_folders
from bokeh import document, models

from experiments import report
from experiments.config.command_line import UsageError
from experiments.reporting import run_groups, run_page

HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)>"\'&'
# Elements without an end.
_VOID = {'meta', 'img', 'link', 'br', 'hr', 'input'}


class Page(html.parser.HTMLParser):
  """Elements with their attributes, and the text outside scripts and styles.

  Attributes:
    elements: (tag, attributes), in order.
    text: Of the page.
    sections: The ids of its sections, in order.
    open: Tags that were opened and not closed.
  """

  def __init__(self, text):
    super().__init__()
    self.elements, self.open, self._texts = [], [], []
    self.feed(text)
    self.close()
    self.text = ' '.join(' '.join(self._texts).split())
    self.sections = [
      attributes['id'] for tag, attributes in self.elements if tag == 'section'
    ]

  def handle_starttag(self, tag, attrs):
    self.elements.append((tag, dict(attrs)))
    if tag not in _VOID:
      self.open.append(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    if self.open and self.open[-1] not in ('script', 'style'):
      self._texts.append(data)


def charts_of(text, y_label=None):
  """Returns the figures of a page, as bokeh itself reads them."""
  (quoted,) = re.findall(r"const docs_json = '(.*?)';\n", text, re.DOTALL)
  documents = json.loads(html.unescape(quoted.replace('\\\\', '\\')))
  (content,) = documents.values()
  charts = document.Document.from_json(content).roots
  return [c for c in charts if c.yaxis[0].axis_label.startswith(y_label or '')]


def glyphs(chart, kind):
  return [r for r in chart.renderers if isinstance(r.glyph, kind)]


def write_run(folder, process, accuracies, seed=0, flags=(), **facts):
  metrics = {
    'round': range(1, len(accuracies) + 1),
    'accuracy': accuracies,
    'test_loss': 1 - np.array(accuracies),
    **facts.pop('metrics', {}),
  }
  flags = {'run_dir': str(folder), **dict(flags)}
  return run_folders.write_run(folder, process, metrics, seed, flags, **facts)


def write_page(tmp_path, runs, against=None):
  path = tmp_path / 'new' / 'page.html'
  report.report(runs, html=path, against=against)
  return path.read_text(encoding='utf-8')


OURS, CONTROL = ('ours', 'grouping', 0.8), ('control', 'server_only', 0.7)


def pair(tmp_path, name='grouping'):
  """Three seeds of two processes, 6 evaluations each."""
  return [
    write_run(
      tmp_path / f'{place}_{seed}',
      process,
      [0.1, *[base + 0.01 * seed + 0.02 * (k == 4) for k in range(5)]],
      seed,
      **({'recipe': f'table:{name}'} if place == 'ours' else {}),
    )
    for place, process, base in (OURS, CONTROL)
    for seed in range(3)
  ]


def test_labels_and_clients_left_out_are_counted(tmp_path):
  labels = {'training_labels': 50, 'unused_labels': 40}
  held_out = {'held_out_clients': 2, 'held_out_examples': 9}
  run = write_run(tmp_path / 'a', 'grouping', [0.5], **labels, **held_out)
  assert '10 of 50 2 (9)' in Page(write_page(tmp_path, [run])).text


def test_the_headline_is_the_mean_of_the_last_evaluations(tmp_path):
  text = write_page(tmp_path, pair(tmp_path), 'server_only')
  page = Page(text)
  # The last 5: 4 of base, 1 of base + .02, so base + .004; seeds .01 apart.
  # Student's t for three values: 4.303 in every table, times .01 / sqrt(3).
  assert 'grouping 0.8140 0.7892 to 0.8388 3' in page.text
  assert '0: 0.8040, 1: 0.8140, 2: 0.8240' in page.text
  assert 'mean of its last 5 evaluations' in page.text
  assert 'grouping +0.1000 +0.1000 to +0.1000 3' in page.text
  assert page.sections == [
    *('headline', 'curves', 'partition', 'classes', 'clients'),
    *('commands', 'versions'),
  ]
  assert not page.open


def test_no_code_is_run_that_a_folder_names(tmp_path, monkeypatch):
  left = tmp_path / 'left'
  (tmp_path / 'canary_of_a_page.py').write_text(
    f'open({str(left)!r}, "w").close()\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  named = 'canary_of_a_page:SPEC'
  foreign = write_run(
    tmp_path / 'a',
    named,
    [0.5, 0.7],
    flags={'process': named, 'partition': named, 'dataset': named},
  )
  text = Page(write_page(tmp_path, [foreign])).text
  assert named in text
  assert not left.exists() and 'canary_of_a_page' not in sys.modules


def test_with_few_evaluations_or_seeds_the_page_says_so(tmp_path):
  runs = [
    write_run(tmp_path / 'a', 'grouping', [0.5, 0.7]),
    write_run(tmp_path / 'b', 'server_only', [0.25, 0.5, 0.75]),
  ]
  page = Page(write_page(tmp_path, runs))
  assert 'mean of its last 2 evaluations' in page.text
  assert 'grouping 0.6000 none below 3 seeds 1' in page.text
  assert 'server_only 0.6250' in page.text
  assert 'No control is named: --against=ROW' in page.text


def test_curves_are_means_over_seeds(tmp_path):
  text = write_page(tmp_path, pair(tmp_path))
  (accuracy,), (loss,) = (
    charts_of(text, label) for label in ('test accuracy', 'test loss')
  )
  lines = {r.name: r.data_source.data for r in glyphs(accuracy, models.Line)}
  assert set(lines) == {'grouping', 'server_only'}
  ours = lines['grouping']
  np.testing.assert_array_equal(ours['round'], range(1, 7))
  np.testing.assert_allclose(ours['mean'], [0.1, *[0.81] * 4, 0.83], rtol=1e-6)
  np.testing.assert_allclose(ours['low'], [0.1, *[0.8] * 4, 0.82], rtol=1e-6)
  np.testing.assert_allclose(ours['high'], [0.1, *[0.82] * 4, 0.84], rtol=1e-6)
  assert loss.y_range.start == 0
  # The same, for those who cannot point at a chart.
  assert '6 0.83 0.73' in Page(text).text


def test_warm_up_is_marked(tmp_path):
  flags = {'server_warmup_rounds': 2}
  run = write_run(tmp_path / 'a', 'grouping', [0.5, 0.6, 0.7], flags=flags)
  text = write_page(tmp_path, [run])
  assert 'Shaded: server warm-up, rounds 1 to 2, of grouping.' in text
  for chart in charts_of(text):
    boxes = chart.select(models.BoxAnnotation)
    assert (0, 2) in {(box.left, box.right) for box in boxes}


@pytest.mark.dear
def test_at_most_six_systems_share_a_panel_each_with_the_control(tmp_path):
  runs = [
    write_run(tmp_path / str(k), 'grouping', [0.5], flags={'num_groups': k})
    for k in range(8)
  ]
  control = 'grouping num_groups=3'
  charts = charts_of(write_page(tmp_path, runs, control), 'test accuracy')
  panels = [[r.name for r in glyphs(c, models.Line)] for c in charts]
  names = [f'grouping num_groups={k}' for k in (0, 1, 2, 4, 5, 6, 7)]
  assert panels == [[control, *names[:5]], [control, *names[5:]]]


@pytest.mark.dear
def test_b7_texts_of_users_are_no_elements(tmp_path):
  (tmp_path / 'plain').mkdir()
  (tmp_path / 'hostile').mkdir()
  found = []
  for name, folder in ((HOSTILE, 'hostile'), ('plain', 'plain')):
    runs = pair(tmp_path / folder, name)
    for run in runs:
      pd.DataFrame([[3, 1], [0, 4]], [name, 'b'], [name, 'b']).to_csv(
        run / 'confusion.csv', index_label='true class'
      )
      pd.DataFrame([[3, 1]], [name], [name, 'b']).to_csv(
        run / 'partition.csv', index_label='client'
      )
      (run / 'versions.json').write_text(
        json.dumps({'python': name, 'platform': name, 'commit': name})
      )
      pd.DataFrame({'client': [0], 'name': [name], 'invited': [2]}).to_csv(
        run / 'participation.csv', index=False
      )
      summary = run_folders.summary_of(run)
      summary['flags']['recipe'] = name
      run_folders.write(run, **{**summary, 'data': name})
    found.append(write_page(tmp_path / folder, runs, 'server_only'))
  hostile, plain = found
  page = Page(hostile)
  tags, expected = ([tag for tag, _ in p.elements] for p in (page, Page(plain)))
  assert tags == expected
  assert not any('onerror' in attributes for _, attributes in page.elements)
  assert '<script>alert' not in hostile and '<img src=x' not in hostile
  # They are to be read, all the same: as a system, a class, a machine.
  assert page.text.count('<script>alert(1)</script>') >= 5
  maps = [r for c in charts_of(hostile) for r in c.select(models.PlainText)]
  assert HOSTILE[:11] in {text.text[:11] for text in maps}


def test_the_page_loads_nothing_and_is_small(tmp_path):
  text = write_page(tmp_path, pair(tmp_path))
  page = Page(text)
  assert len(text) < 3 * 2**20
  for tag, attributes in page.elements:
    assert tag not in ('link', 'iframe', 'object')
    assert not {'src', 'href'} & set(attributes)
  (policy,) = [
    attributes['content']
    for tag, attributes in page.elements
    if attributes.get('http-equiv') == 'Content-Security-Policy'
  ]
  assert "default-src 'none'" in policy and 'http' not in policy


@pytest.mark.runs
def test_a_long_run_is_thinned(tmp_path):
  runs = [write_run(tmp_path / 'a', 'grouping', [0.5] * 3000)]
  text = write_page(tmp_path, runs)
  (line,) = glyphs(charts_of(text)[0], models.Line)
  rounds = line.data_source.data['round']
  assert len(rounds) == 500 and (rounds[0], rounds[-1]) == (1, 3000)


def test_pseudo_labels_by_class_are_sums_over_seeds(tmp_path):
  runs = []
  for seed, right in ((0, 3), (1, 5)):
    masked = {'metrics': {'mask_rate': 0.5}}
    folder = tmp_path / f'{seed}'
    runs.append(write_run(folder, 'grouping', [0.5, 0.6], seed, **masked))
    table = pd.DataFrame(
      {
        'round': [1, 1, 2, 2],
        'class': [0, 1, 0, 1],
        # The class that pandas would take for a missing value.
        'name': ['NA', 'b'] * 2,
        'examples': 10,
        'labelled': [0, 5, 8, 2],
        'right': [0, right, 8, 1],
        'named': [0, 5, 9, 1],
      }
    )
    table.to_csv(folder / 'pseudo_labels.csv', index=False)
  text = write_page(tmp_path, runs)
  share, right = charts_of(text, 'class')
  shown = [
    np.asarray(chart.renderers[0].data_source.data['shown'][0])
    for chart in (share, right)
  ]
  np.testing.assert_allclose(shown[0], [[0, 0.8], [0.5, 0.2]])
  np.testing.assert_allclose(shown[1], [[np.nan, 1], [0.8, 0.5]])
  names = [tick.text for tick in share.yaxis[0].major_label_overrides.values()]
  assert names == ['NA', 'b']
  assert 'Pseudo-labels by class: not recorded' not in Page(text).text


def test_what_a_run_lacks_is_called_not_recorded(tmp_path):
  masked = {'metrics': {'mask_rate': 0.5}}
  run = write_run(tmp_path / 'a', 'grouping', [0.5], **masked)
  text = Page(write_page(tmp_path, [run])).text
  assert 'Pseudo-labels by class: not recorded' in text
  assert '--rounds_per_client_evaluation=10 switches it on' in text
  assert 'not recorded; a run of this version writes it' in text
  assert 'Not recorded: versions.json is missing.' in text
  assert 'grouping, seed 0 not recorded' in text


def test_figures_of_clients_classes_and_code(tmp_path):
  run = write_run(tmp_path / 'a', 'grouping', [0.5], measured_r=0.25)
  pd.DataFrame(
    {'round': [1, 1, 2, 2], 'client': [0, 1] * 2, 'accuracy': [0, 0, 0.5, 1]}
  ).to_csv(run / 'clients.csv', index=False)
  # The class that pandas would take for a missing value.
  pd.DataFrame([[3, 1], [2, 2]], ['NA', 'b'], ['NA', 'b']).to_csv(
    run / 'confusion.csv', index_label='true class'
  )
  commits = ((0, 'abc'), (7, 'def'))
  code = [{'from_round': start, 'commit': commit} for start, commit in commits]
  (run / 'versions.json').write_text(
    json.dumps({'numpy': '1.2', 'commit': 'def', 'code': code})
  )
  text = write_page(tmp_path, [run])
  page = Page(text)
  assert 'Lowest recall: b (0.5000), NA (0.7500).' in page.text
  (confusion,) = charts_of(text, 'true class')
  data = confusion.renderers[0].data_source.data
  # In shares of a true class.
  np.testing.assert_allclose(data['shown'][0], [[0.75, 0.25], [0.5, 0.5]])
  np.testing.assert_allclose(data['examples'][0], [[3, 1], [2, 2]])
  assert 'from round 0: abc; from round 7: def' in page.text
  assert 'numpy 1.2' in page.text and '0.250' in page.text
  is_shown = lambda chart: 'accuracy of a client' in chart.xaxis[0].axis_label
  (chart,) = filter(is_shown, charts_of(text))
  quad, _ = glyphs(chart, models.Quad)
  data = quad.data_source.data
  # The last round alone: one client at .5, one at 1.
  held = np.asarray(data['left'])[np.asarray(data['clients']) > 0]
  np.testing.assert_allclose(held, [0.5025, 0.9525])


def test_an_unknown_control_leaves_no_page(tmp_path):
  run = write_run(tmp_path / 'a', 'grouping', [0.5])
  groups = run_groups.read_groups([run])
  with pytest.raises(UsageError, match='--against=no is unknown'):
    run_page.write(groups, tmp_path / 'x.html', 'no')
  assert not (tmp_path / 'x.html').exists()
