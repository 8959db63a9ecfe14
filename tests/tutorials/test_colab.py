"""Notebooks of a newer Python whose cells run in Python 3.11.

The last tests need a newer Python with ipykernel and nbclient, which
TFF_SSL_OUTER_PYTHON names. The environment with Python 3.11 is built, unless
TFF_SSL_NOTEBOOK_PYTHON names an interpreter that has all.
"""

import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

from tutorials import colab

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path):
  """A folder with the files that an environment is made of."""
  root = tmp_path / 'checkout'
  (root / 'requirements').mkdir(parents=True)
  for name in (*colab._PINS, 'setup.py'):
    (root / name).write_text(f'# {name}')
  return root


class _Runner:
  """Notes the commands, and does what the first step does."""

  def __init__(self, failing='', output=''):
    self.commands = []
    self._failing = failing
    self._output = output

  def __call__(self, command, title):
    self.commands.append(command)
    if self._failing and self._failing in title:
      return 2, self._output
    if 'venv' in command:
      python = pathlib.Path(command[-1]) / 'bin/python'
      python.parent.mkdir(parents=True)
      python.touch()
      (python.parents[1] / 'pyvenv.cfg').touch()
    return 0, ''


class _Shell:
  """What is used of IPython's shell."""

  def __init__(self, silent=False):
    self.input_transformers_cleanup = []
    self.magics = {}
    self.published = []
    self.results = []
    self.cleared = []
    self.displayhook = types.SimpleNamespace(
      exec_result=types.SimpleNamespace(execution_count=7),
      start_displayhook=lambda: None,
      write_output_prompt=lambda: None,
      write_format_data=lambda data, _: self.results.append(data),
      finish_displayhook=lambda: None,
    )
    self.display_pub = types.SimpleNamespace(
      publish=lambda data, _, **others: self.published.append((data, others)),
      clear_output=lambda wait: self.cleared.append(wait),
    )
    self._silent = silent

  def register_magic_function(self, function, kind, name):
    assert kind == 'cell'
    self.magics[name] = function

  def get_parent(self):
    return {'content': {'silent': self._silent}}

  def run(self, cell):
    """Runs a cell as IPython does; returns what it leaves to Python."""
    lines = cell.splitlines(keepends=True)
    for transform in self.input_transformers_cleanup:
      lines = transform(lines)
    code = ''.join(lines)
    if not code.startswith('get_ipython()'):
      return code

    def run_cell_magic(name, line, body):
      self.magics[name](line, body)

    this = types.SimpleNamespace(run_cell_magic=run_cell_magic)
    return eval(code, {'get_ipython': lambda: this})


class _FakeKernel:
  """Answers each cell with the same messages."""

  python = pathlib.Path('/some/python')

  def __init__(self, *messages, status='ok', **reply):
    self.cells = []
    self._messages = [
      *messages,
      ('execute_reply', {'status': status, **reply}),
    ]

  def run(self, code, number):
    self.cells.append((number, code))
    yield from self._messages

  def is_alive(self):
    return True


def _routed(kernel, **kwargs):
  shell = _Shell(**kwargs)
  colab._route(shell, kernel)
  return shell


def test_the_file_needs_the_standard_library_alone():
  program = f"""
import runpy, sys
runpy.run_path({str(_ROOT / 'tutorials/colab.py')!r}, run_name='colab')
print(sorted({{name.partition('.')[0] for name in sys.modules}}))
"""
  done = subprocess.run(
    [sys.executable, '-I', '-S', '-c', program],
    check=True,
    capture_output=True,
    text=True,
  )
  loaded = set(eval(done.stdout))
  assert not loaded - sys.stdlib_module_names - {'__main__'}


def test_steps_of_an_environment(checkout, tmp_path, monkeypatch):
  monkeypatch.setattr('shutil.which', lambda _: '/bin/uv')
  runner, folder = _Runner(), tmp_path / 'env'
  python = colab.build_environment(folder, root=checkout, run=runner)
  assert python == folder / 'bin/python'
  install = f'/bin/uv pip install --python {python} --no-deps'
  assert [' '.join(command) for command in runner.commands] == [
    f'/bin/uv venv --seed --python 3.11 {folder}',
    f'{install} -r {checkout / "requirements/runtime.txt"} '
    f'-r {checkout / "requirements/notebooks.txt"}',
    f'{install} --no-build-isolation -e {checkout}',
  ]


def test_uv_is_installed_where_there_is_none(monkeypatch):
  monkeypatch.setattr('shutil.which', lambda _: None)
  monkeypatch.setattr('importlib.util.find_spec', lambda _: None)
  runner = _Runner()
  assert colab._uv(runner) == [sys.executable, '-m', 'uv']
  assert runner.commands == [
    [sys.executable, '-m', 'pip', 'install', '--quiet', 'uv']
  ]


def test_a_complete_environment_is_used_again(checkout, tmp_path, capsys):
  folder, again = tmp_path / 'env', _Runner()
  colab.build_environment(folder, root=checkout, run=_Runner())
  colab.build_environment(folder, root=checkout, run=again)
  assert not again.commands
  assert f'The environment in {folder} is complete.' in capsys.readouterr().out

  (checkout / 'requirements/notebooks.txt').write_text('ipykernel==7')
  (folder / 'old').touch()
  colab.build_environment(folder, root=checkout, run=again)
  assert again.commands
  assert not (folder / 'old').exists()


def test_an_incomplete_environment_is_built_anew(checkout):
  with pytest.raises(colab.NotebookError):
    colab.build_environment(root=checkout, run=_Runner(failing='Federated'))
  runner = _Runner()
  python = colab.build_environment(root=checkout, run=runner)
  assert python == checkout / '.venv-notebooks/bin/python'
  assert len(runner.commands) >= 3


def test_places_where_no_environment_can_be(checkout, tmp_path):
  folder = tmp_path / 'photos'
  folder.mkdir()
  (folder / 'me.png').touch()
  with pytest.raises(colab.NotebookError, match='photos is no environment'):
    colab.build_environment(folder, root=checkout, run=_Runner())
  assert (folder / 'me.png').exists()
  with pytest.raises(colab.NotebookError, match='clone the repository'):
    colab.build_environment(root=tmp_path, run=_Runner())


@pytest.mark.parametrize(
  ('step', 'output', 'sentence'),
  [
    (
      'Federated',
      'error: Request failed after 3 retries\n'
      '  cause: error sending request for url (https://pypi.org/simple/jax/)\n'
      '  \x1b[1mcause:\x1b[0m dns error\n',
      'Installing TensorFlow Federated and what it needs failed, for a '
      'download did not succeed: check the internet connection and run this '
      'cell again (it said: cause: dns error).',
    ),
    (
      'Python',
      'error: No interpreter found for Python 3.11 in search path\n',
      'Installing Python 3.11 failed, for there is no Python 3.11 here, and '
      'none to download: install one and name it: '
      "start(python='/path/to/python3.11') (it said: error: No interpreter "
      'found for Python 3.11 in search path).',
    ),
    (
      'Federated',
      'error: failed to write: No space left on device (os error 28)',
      'free about 4 GB and run this cell again',
    ),
    ('tff_ssl', '', 'failed, for exit status 2: run it in a terminal to see'),
  ],
)
def test_a_failed_step_is_a_sentence_with_a_remedy(
  checkout, step, output, sentence
):
  runner = _Runner(failing=step, output=output)
  with pytest.raises(colab.NotebookError) as caught:
    colab.build_environment(root=checkout, run=runner)
  assert sentence in str(caught.value)
  assert caught.value._render_traceback_() == [f'NotebookError: {caught.value}']


def test_a_step_shows_its_seconds(capsys):
  program = 'import sys; print("why"); sys.exit(3)'
  done = colab._run_with_progress([sys.executable, '-c', program], 'a thing')
  assert done == (3, 'why\n')
  assert capsys.readouterr().out.endswith('\rInstalling a thing ... 0 s\n')


def test_variables_of_another_python_are_dropped(monkeypatch):
  monkeypatch.setenv('UV_CONSTRAINT', '/not/there')
  monkeypatch.setenv('UV_SYSTEM_PYTHON', 'true')
  monkeypatch.setenv('PYTHONPATH', '/env/python')
  monkeypatch.setenv('MPLBACKEND', 'module://of.colab')
  monkeypatch.setenv('PATH', '/usr/bin')
  monkeypatch.delenv('TF_CPP_MIN_LOG_LEVEL', raising=False)
  found = colab._kernel_environment(pathlib.Path('/env/bin/python'))
  assert not {'UV_CONSTRAINT', 'UV_SYSTEM_PYTHON', 'PYTHONPATH'} & found.keys()
  assert found['MPLBACKEND'] == 'module://matplotlib_inline.backend_inline'
  assert found['PATH'] == '/env/bin:/usr/bin'
  assert found['TF_CPP_MIN_LOG_LEVEL'] == '3'


@pytest.mark.parametrize(
  ('prints', 'sentence'),
  [
    ('echo 3.12', 'is Python 3.12: name one of 3.11'),
    ('echo 3.11 ipykernel', 'has no ipykernel: run `'),
    ('exit 1', 'does not run'),
    ('echo 3.11', None),
  ],
)
def test_an_interpreter_in_which_cells_run_or_do_not(
  tmp_path, prints, sentence
):
  python = tmp_path / 'python'
  python.write_text(f'#!/bin/sh\n{prints}\n')
  python.chmod(0o755)
  if sentence is None:
    assert colab._check_interpreter(python) == python
    return
  with pytest.raises(colab.NotebookError, match=sentence):
    colab._check_interpreter(python)


def test_where_tff_is_cells_stay_as_they_are(monkeypatch, capsys):
  colab.start()
  assert 'This kernel has TensorFlow Federated' in capsys.readouterr().out
  shell = _Shell()
  monkeypatch.setattr(colab, '_current_shell', lambda: shell)
  colab.start()
  colab.start()
  assert len(shell.input_transformers_cleanup) == 1
  assert shell.run('!ls\nx = 1\n') == '!ls\nx = 1\n'
  assert shell.run('%%local\nx = 1\n') == 'x = 1\n'


def test_it_starts_once_and_in_a_notebook_alone(monkeypatch, capsys):
  monkeypatch.setattr(colab, '_runs_here', lambda: False)
  with pytest.raises(colab.NotebookError, match='is for notebooks'):
    colab.start()
  shell = _routed(_FakeKernel())
  monkeypatch.setattr(colab, '_current_shell', lambda: shell)
  colab.start()
  assert capsys.readouterr().out == 'Cells run in /some/python already.\n'


@pytest.mark.parametrize(
  ('cell', 'rest', 'silent'),
  [
    *(
      (cell, None, False) for cell in ('x = "it\'s"\nx?', '%%bash\nls\n', '!ls')
    ),
    # These stay.
    ('%%local\nx = 1\n', 'x = 1\n', False),
    ('\n#@title Files\n%%local \n%%bash\nls', '%%bash\nls', False),
    ('# only a remark', '# only a remark', False),
    ('', '', False),
    # What a frontend asks for itself.
    ('x = 1', 'x = 1', True),
  ],
)
def test_a_cell_goes_to_the_kernel_as_it_is_or_stays(cell, rest, silent):
  kernel = _FakeKernel()
  assert _routed(kernel, silent=silent).run(cell) == rest
  assert kernel.cells == ([(7, cell)] if rest is None else [])


def test_what_a_cell_shows(capsys):
  shell = _routed(
    _FakeKernel(
      ('stream', {'name': 'stdout', 'text': '\r50%'}),
      ('stream', {'name': 'stderr', 'text': 'careful'}),
      ('clear_output', {'wait': True}),
      (
        'display_data',
        {'data': {'image/png': 'x'}, 'metadata': {}, 'transient': {'a': 1}},
      ),
      ('update_display_data', {'data': {}, 'metadata': {}}),
      ('execute_result', {'data': {'text/html': 'y'}, 'metadata': {}}),
      ('execute_input', {}),
    )
  )
  shell.run('x')
  assert capsys.readouterr() == ('\r50%', 'careful')
  assert shell.cleared == [True]
  assert shell.published == [
    ({'image/png': 'x'}, {'transient': {'a': 1}, 'update': False}),
    ({}, {'transient': {}, 'update': True}),
  ]
  assert shell.results == [{'text/html': 'y'}]


def test_an_error_of_a_cell_is_raised_under_its_name():
  reply = {'ename': 'KeyError', 'evalue': "'x'", 'traceback': ['line 1', 'x']}
  shell = _routed(_FakeKernel(status='error', **reply))
  with pytest.raises(colab._CellError) as caught:
    shell.run('{}["x"]')
  assert type(caught.value).__name__ == 'KeyError'
  assert str(caught.value) == "'x'"
  assert caught.value._render_traceback_() == ['line 1', 'x']
  # Also where it was not run.
  with pytest.raises(colab.NotebookError, match='run it again'):
    _routed(_FakeKernel(status='aborted')).run('x')


def _outside(program, *arguments, **variables):
  """Runs a program in the newer Python; returns what it prints as JSON."""
  outer = os.environ.get('TFF_SSL_OUTER_PYTHON')
  if not outer:
    pytest.skip('TFF_SSL_OUTER_PYTHON names no Python with nbclient')
  python = os.environ.get('TFF_SSL_NOTEBOOK_PYTHON')
  done = subprocess.run(
    [outer, '-c', program, json.dumps([str(_ROOT), python, *arguments])],
    capture_output=True,
    text=True,
    env={**os.environ, **variables},
  )
  assert not done.returncode, done.stderr
  return json.loads(done.stdout.splitlines()[-1])


# A notebook, to its first cell that fails.
_OUTER = """
import json, sys
import nbclient, nbformat
root, python, *cells = json.loads(sys.argv[1])
first = f'''%cd -q {root}
from tutorials import colab; colab.start(python={python!r})'''
book = nbformat.v4.new_notebook(
  cells=[nbformat.v4.new_code_cell(cell) for cell in [first, *cells]]
)
client = nbclient.NotebookClient(book, timeout=600, kernel_name='python3')
error = ''
try:
  client.execute()
except nbclient.exceptions.CellExecutionError as failure:
  error = failure.ename
print(json.dumps([error, [cell.outputs for cell in book.cells]]))
"""
_CELLS = (
  'import sys, os; print(sys.version_info[:2])',
  '%%local\nimport sys; print(sys.version_info[:2])',
  'import tensorflow_federated as tff; print(tff.__version__)',
  '!{sys.executable} -m experiments.run --process=grouping --dataset=digits '
  '--total_rounds=2 --run_dir={os.environ["RUN_DIR"]}',
  'import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()',
  'import pandas as pd\npd.DataFrame({"column": [1]})',
  'from IPython import display\n'
  'shown = display.display("before", display_id=True)\n'
  'shown.update("after")',
  'from tqdm import tqdm\nfor _ in tqdm(range(2)): pass',
  'print("gone")\ndisplay.clear_output()\nprint("stays")',
  'def fails():\n  return 1 / 0\n\nfails()',
  'print("not reached")',
)


def test_a_notebook_of_a_newer_python(tmp_path):
  error, (first, *outputs) = _outside(
    _OUTER, *_CELLS, RUN_DIR=str(tmp_path / 'run')
  )
  texts = [
    ''.join(output.get('text', '') for output in cell) for cell in outputs
  ]
  assert 'Ready after' in ''.join(output['text'] for output in first)
  assert texts[0] == '(3, 11)\n'
  assert texts[1] != '(3, 11)\n'
  assert texts[2] == '0.87.0\n'
  assert 'Final test accuracy' in texts[3]
  assert (tmp_path / 'run/summary.json').exists()
  assert outputs[4][0]['output_type'] == 'display_data'
  assert 'image/png' in outputs[4][0]['data']
  assert outputs[5][0]['output_type'] == 'execute_result'
  assert '<th>column</th>' in outputs[5][0]['data']['text/html']
  assert [output['data'] for output in outputs[6]] == [
    {'text/plain': "'after'"}
  ]
  assert '\r100%' in texts[7]
  assert texts[8] == 'stays\n'
  (failure,) = outputs[9]
  assert failure['output_type'] == 'error'
  assert failure['ename'] == error == 'ZeroDivisionError'
  # The number of the cell in the notebook, of which the first is colab's.
  assert 'In[11]' in ''.join(failure['traceback'])
  assert outputs[10] == []


# A cell that is interrupted, one after it, and the death of the notebook.
_SIGNALS = """
import json, os, sys, time
from jupyter_client.manager import start_new_kernel
root, python = json.loads(sys.argv[1])
manager, client = start_new_kernel(kernel_name='python3')

def run(code, while_it_runs=None):
  shown = []

  def note(message):
    content = message['content']
    shown.append(content.get('text') or content.get('ename') or '')
    if 'begins' in shown[-1]:
      while_it_runs()

  status = client.execute_interactive(code, output_hook=note, timeout=600)
  return status['content']['status'], ''.join(shown)

run(f'''%cd -q {root}
from tutorials import colab; colab.start(python={python!r})''')
cell = 'import time; print("begins")\\ntime.sleep(60)'
interrupted = run(cell, manager.interrupt_kernel)
_, pid = run('import os; print(os.getpid())')
os.kill(int(run('%%local\\nimport os; print(os.getpid())')[1]), 9)
deadline = time.monotonic() + 10
while os.path.exists(f'/proc/{int(pid)}') and time.monotonic() < deadline:
  time.sleep(0.1)
print()
print(json.dumps([interrupted, os.path.exists(f'/proc/{int(pid)}')]))
"""


def test_interrupts_and_the_end_of_a_notebook():
  (status, shown), outlives = _outside(_SIGNALS)
  assert status == 'error'
  assert shown == 'begins\nKeyboardInterrupt'
  assert not outlives
