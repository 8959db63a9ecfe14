"""Equations of docstrings, set by the browser: plain text -> LaTeX -> MathML.

A docstring has them as one reads them in a terminal, in a block that begins
with three backticks and `math`:

    w_avg,i <- (w_s + sum_{k in G_i} w_k) / (|G_i| + 1)   (Eq. 7)

Greek letters have their names, two spaces part columns, and a line that begins
with two has nothing in the first one. Words are set as text. Whoever reads the
page needs no network and no script.
"""

import re

from docutils import nodes
from latex2mathml import converter

_GREEK = {
  *('alpha', 'beta', 'gamma', 'delta', 'eta', 'lambda', 'mu', 'pi', 'Pi'),
  *('kappa', 'psi', 'rho', 'sigma', 'tau'),
}
_OPERATORS = {
  *('argmax', 'Beta', 'CE', 'diag', 'exp', 'KL', 'log', 'logsumexp'),
  *('max', 'mean', 'min'),
}
_SHORT_WORDS = {'as', 'at', 'by', 'do', 'if', 'is', 'of', 'on', 'or', 'to'}
_SIGNS = {
  '<-': r'\leftarrow ',
  '>=': r'\ge ',
  '...': r'\dots ',
  '||': r'\| ',
  '1[': r'\mathbf{1}[',
  '*': r'\cdot ',
  '~': r'\sim ',
  'in': r'\in ',
  'sum': r'\sum ',
}
_TOKEN = re.compile(
  r'(?P<note>\((?:Eqs?\.|option )[^)]*\))'
  r'|[_^]\{(?P<group>[^}]*)\}'
  r'|(?P<accent>(?<![A-Za-z])\w)_(?P<kind>bar|hat)(?![a-z])'
  r'|\^(?P<power>\*|[-+]?\w+|[-+])'
  r'|_(?P<index>\w+(?:,[a-z]\b)?)'
  r'|(?P<sign><-|>=|\.\.\.|\|\||\b1\[|[*~]|\b(?:in|sum)(?![a-z]))'
  r'|(?P<word>[A-Za-z]+(?:-[A-Za-z]+)*)'
)


def to_latex(text: str) -> str:
  """Returns the LaTeX of a block of equations in plain text."""
  rows = [re.split(r' {2,}', line.rstrip()) for line in text.splitlines()]
  width = max(map(len, rows))
  lines = [' & '.join(_cell(cell) for cell in row) for row in rows]
  if len(rows) == width == 1:
    return lines[0]
  body = r' \\ '.join(lines)
  return rf'\begin{{array}}{{{"l" * width}}} {body} \end{{array}}'


def _cell(text: str) -> str:
  latex = _TOKEN.sub(_translated, text)
  # Words that follow each other are one text, with no space inside brackets.
  latex = re.sub(r' \} ?\\text\{ ', ' ', latex)
  latex = re.sub(r' \}(?=[(),;:.])', '}', latex)
  return re.sub(r'\(\\text\{ ', r'(\\text{', latex)


def _translated(token: re.Match) -> str:
  kind = token.lastgroup
  if kind == 'note':
    return rf'\text{{{token[0]}}}'
  if kind == 'group':
    return f'{token[0][0]}{{{_cell(token["group"])}}}'
  if kind == 'kind':
    return rf'\{token["kind"]}{{{token["accent"]}}}'
  if kind == 'power':
    return f'^{{{_word(token["power"])}}}'
  if kind == 'index':
    return f'_{{{",".join(map(_word, token["index"].split(",")))}}}'
  if kind == 'sign':
    return _SIGNS[token[0]]
  word = _word(token[0])
  return word.replace('{', '{ ').replace('}', ' }') if 'text' in word else word


def _word(word: str) -> str:
  if word in _GREEK:
    return rf'\{word} '
  if word in _OPERATORS:
    return rf'\operatorname{{{word}}}'
  # Two letters are two indices, as in A_mk, and three are a word.
  if len(word) < 3 and word not in _SHORT_WORDS:
    return word
  return rf'\text{{{word}}}'


def _visit_block(translator, node):
  mathml = converter.convert(node.astext(), display='block')
  translator.body.append(f'<div class="equation">{mathml}</div>')
  raise nodes.SkipNode


def _visit_inline(translator, node):
  translator.body.append(converter.convert(node.astext()))
  raise nodes.SkipNode


def setup(app):
  """Registers the renderer; Sphinx calls this."""
  app.add_html_math_renderer(
    'mathml', (_visit_inline, None), (_visit_block, None)
  )
  return {'parallel_read_safe': True}
