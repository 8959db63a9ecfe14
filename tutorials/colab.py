"""A notebook of any Python whose cells run in Python 3.11, as in Google Colab.

TensorFlow Federated 0.87 has wheels for Python 3.11 only, and the kernel of
Colab is newer. The first cell of a notebook is

    ![ -d ~/tff_ssl ] || git clone -q <address of the repository> ~/tff_ssl
    %cd -q ~/tff_ssl
    from tutorials import colab; colab.start()

It builds an environment with Python 3.11 beside the checkout, once, and starts
a second kernel in it. From then on all cells run there, with their pictures,
tables, progress bars, errors and interrupts. A cell whose first line is
`%%local` runs in the notebook's own kernel: for `google.colab`, say, which is
not in the environment. In a kernel that has TensorFlow Federated already,
`start` does nothing but say so, so a notebook runs unchanged in Jupyter.

Widgets, `input()` and completion are not relayed: completion knows the names of
the notebook's own kernel only.

This file needs the standard library, and what each notebook kernel has: IPython
and jupyter_client. `%run tutorials/colab.py` does for the last line, too.
"""

import asyncio
import atexit
import contextlib
import hashlib
import importlib.util
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PYTHON = '3.11'
_FOLDER = '.venv-notebooks'
_STAMP = '.tff_ssl_stamp'
_PINS = ('requirements/runtime.txt', 'requirements/notebooks.txt')
_START_LIMIT_S = 120
_LOCAL = '%%local'
_MAGIC = 'tff_ssl_relay'

# Colab sets those of uv, for its own Python; the others lead to its packages.
_FOREIGN_VARIABLES = (
  'PYTHONHOME',
  'PYTHONPATH',
  'UV_BUILD_CONSTRAINT',
  'UV_CONSTRAINT',
  'UV_OVERRIDE',
  'UV_PRERELEASE',
  'UV_SYSTEM_PYTHON',
  'VIRTUAL_ENV',
)

# What a failed step prints, what that means, and what to do about it.
_REMEDIES = (
  (
    'No space left',
    'the disk is full',
    'free about 4 GB and run this cell again',
  ),
  (
    'error sending request|dns error|Failed to fetch|Failed to download'
    '|tcp connect error|timed out|NewConnectionError|from versions: none'
    '|network was disabled',
    'a download did not succeed',
    'check the internet connection and run this cell again',
  ),
  (
    'No interpreter found|No download found|No Python at',
    'there is no Python 3.11 here, and none to download',
    "install one and name it: start(python='/path/to/python3.11')",
  ),
)

_PROBE = """
import importlib.util, sys
names = ('ipykernel', 'tensorflow_federated')
print('%d.%d' % sys.version_info[:2], *(
  name for name in names if not importlib.util.find_spec(name)
))
"""

# Without any configuration: that of Colab names classes that are not there.
_KERNEL = """
from ipykernel.kernelapp import IPKernelApp
class App(IPKernelApp):
  def load_config_file(self, *args, **kwargs): pass
App.launch_instance()
"""

_Run = Callable[[list[str], str], tuple[int, str]]


class NotebookError(RuntimeError):
  """What a user can mend; a notebook shows its sentence alone."""

  def _render_traceback_(self) -> list[str]:
    return [f'{type(self).__name__}: {self}']


class _CellError(Exception):
  """An error of a cell, which a notebook shows as the other kernel does."""

  traceback: tuple[str, ...] = ()

  def _render_traceback_(self) -> list[str]:
    return list(self.traceback)


def start(
  folder: str | os.PathLike | None = None,
  *,
  python: str | os.PathLike | None = None,
) -> None:
  """Makes the cells of this notebook run in Python 3.11.

  Args:
    folder: Where the environment is, or is built. By default `.venv-notebooks`
      in the checkout.
    python: An interpreter of an environment that you have, with ipykernel and
      TensorFlow Federated. Nothing is built then.

  Raises:
    NotebookError: If this is no notebook, or there is no such kernel to be had.
  """
  shell = _current_shell()
  if _runs_here():
    print('This kernel has TensorFlow Federated: cells run in it as they are.')
    if shell:
      _route(shell, None)
    return
  if shell is None:
    raise NotebookError(
      f'start() is for notebooks: without one, run Python {_PYTHON} itself.'
    )
  running = getattr(shell, _MAGIC, None)
  if running and running.kernel and running.kernel.is_alive():
    print(f'Cells run in {running.kernel.python} already.')
    return
  began = time.monotonic()
  if python is None:
    path = build_environment(folder)
  else:
    path = _check_interpreter(pathlib.Path(python).expanduser().absolute())
  kernel = _Kernel(path)
  atexit.register(kernel.stop)
  _route(shell, kernel)
  print(
    f'Ready after {time.monotonic() - began:.0f} s: cells now run in Python '
    f'{_PYTHON} ({path}). One whose first line is {_LOCAL} runs in the '
    "notebook's own kernel."
  )


def build_environment(
  folder: str | os.PathLike | None = None,
  *,
  root: pathlib.Path = _ROOT,
  run: _Run | None = None,
) -> pathlib.Path:
  """Builds the environment with Python 3.11, unless it is complete.

  Args:
    folder: Where; by default `.venv-notebooks` in the checkout.
    root: The checkout.
    run: Runs a command, under a title, and returns its exit status and what it
      prints. By default as a process, with a line of progress.

  Returns:
    The path of its interpreter.

  Raises:
    NotebookError: If a step fails, or the folder holds something else.
  """
  run = run or _run_with_progress
  folder = pathlib.Path(folder or root / _FOLDER).expanduser().absolute()
  python = folder / 'bin' / 'python'
  try:
    # All that an environment is made of.
    parts = [(root / name).read_bytes() for name in (*_PINS, 'setup.py')]
  except FileNotFoundError as error:
    raise NotebookError(
      f'{error.filename} is missing: clone the repository and import '
      'tutorials.colab from there.'
    ) from None
  stamp = hashlib.sha256(b''.join([str(root).encode(), *parts])).hexdigest()
  with contextlib.suppress(OSError):
    if (folder / _STAMP).read_text() == stamp and python.exists():
      print(f'The environment in {folder} is complete.')
      return python
  if folder.exists() and any(folder.iterdir()):
    # Nothing is removed but an environment, or what is left of ours.
    if folder != root / _FOLDER and not (folder / 'pyvenv.cfg').exists():
      raise NotebookError(
        f'{folder} is no environment: name an empty folder, or a new one.'
      )
    shutil.rmtree(folder)
  print(
    f'TensorFlow Federated needs Python {_PYTHON}, and this is '
    f'{sys.version_info[0]}.{sys.version_info[1]}. So an environment is built '
    f'in {folder}, once: about 3 GB, in a few minutes.'
  )
  uv = _uv(run)
  # The pinned files are the whole set (docs/how_to/install.md).
  install = [*uv, 'pip', 'install', '--python', str(python), '--no-deps']
  pins = [part for name in _PINS for part in ('-r', str(root / name))]
  # With pip, so that `!pip` in a cell installs there.
  environment = [*uv, 'venv', '--seed', '--python', _PYTHON, str(folder)]
  _run_step(run, f'Python {_PYTHON}', environment)
  _run_step(run, 'TensorFlow Federated and what it needs', [*install, *pins])
  ours = [*install, '--no-build-isolation', '-e', str(root)]
  _run_step(run, 'tff_ssl', ours)
  (folder / _STAMP).write_text(stamp)
  return python


def _uv(run: _Run) -> list[str]:
  """Returns the command of uv, which is installed where there is none."""
  if program := shutil.which('uv'):
    return [program]
  if not importlib.util.find_spec('uv'):
    pip = [sys.executable, '-m', 'pip', 'install', '--quiet', 'uv']
    _run_step(run, 'uv, which builds environments', pip)
  return [sys.executable, '-m', 'uv']


def _run_step(run: _Run, title: str, command: list[str]) -> None:
  """Runs a step of the installation; a failure is a sentence."""
  status, output = run(command, title)
  if not status:
    return
  # In notebooks, programs are told to print in colours.
  output = re.sub(r'\x1b\[[0-9;]*m', '', output)
  said = output.strip().splitlines() or [f'exit status {status}']
  reason = f'exit status {status}'
  remedy = f'run it in a terminal to see why: {" ".join(command)}'
  for signs, meaning, known in _REMEDIES:
    if re.search(signs, output):
      reason, remedy = meaning, known
      break
  raise NotebookError(
    f'Installing {title} failed, for {reason}: {remedy} (it said: '
    f'{said[-1].strip()}).'
  )


def _run_with_progress(command: list[str], title: str) -> tuple[int, str]:
  """Runs a command, with its seconds in a line that is written over."""
  began = time.monotonic()

  def say(end: str) -> None:
    seconds = time.monotonic() - began
    print(f'\rInstalling {title} ... {seconds:.0f} s', end=end, flush=True)

  with tempfile.TemporaryFile() as output:
    process = subprocess.Popen(
      command,
      env=_environment(),
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=subprocess.STDOUT,
    )
    try:
      while process.poll() is None:
        say('')
        with contextlib.suppress(subprocess.TimeoutExpired):
          process.wait(timeout=1)
    finally:
      # Where the cell was interrupted.
      process.kill()
      process.wait()
    say('\n')
    output.seek(0)
    return process.returncode, output.read().decode(errors='replace')


def _environment() -> dict[str, str]:
  """Returns the variables of this process that hold in another Python."""
  return {k: v for k, v in os.environ.items() if k not in _FOREIGN_VARIABLES}


def _check_interpreter(python: pathlib.Path) -> pathlib.Path:
  """Returns a user's interpreter, if cells can run in it."""
  try:
    done = subprocess.run(
      [str(python), '-c', _PROBE],
      env=_environment(),
      check=True,
      capture_output=True,
      text=True,
    )
  except (OSError, subprocess.CalledProcessError) as error:
    raise NotebookError(
      f'{python} does not run ({error}): name the interpreter of an '
      f'environment with Python {_PYTHON}.'
    ) from error
  version, *missing = done.stdout.split()
  if version != _PYTHON:
    raise NotebookError(
      f'{python} is Python {version}: name one of {_PYTHON}, or none, and an '
      'environment is built.'
    )
  if missing:
    pins = ' '.join(f'-r {_ROOT / name}' for name in _PINS)
    raise NotebookError(
      f'{python} has no {" and no ".join(missing)}: run `{python} -m pip '
      f'install --no-deps {pins}`.'
    )
  return python


def _runs_here() -> bool:
  """Returns whether this Python has TensorFlow Federated itself."""
  has_tff = importlib.util.find_spec('tensorflow_federated') is not None
  return has_tff and sys.version.startswith(f'{_PYTHON}.')


def _current_shell():
  """Returns the IPython shell that cells run in, or None outside of any."""
  if 'IPython' not in sys.modules:
    return None
  from IPython import get_ipython

  return get_ipython()


class _Kernel:
  """A kernel in another Python.

  Jupyter's client needs an event loop, and that of the notebook is busy with
  the very cell that waits: so it has one of its own, in a thread.
  """

  def __init__(self, python: pathlib.Path):
    """Starts the kernel and waits until it answers, or raises NotebookError."""
    from jupyter_client import AsyncKernelManager, kernelspec

    self.python = python
    self._loop = asyncio.new_event_loop()
    threading.Thread(target=self._loop.run_forever, daemon=True).start()
    self._manager = AsyncKernelManager()
    # No file of this folder (-P) stands in for a module of the kernel, and two
    # kernels must not write one file of history.
    command = [str(python), '-P', '-c', _KERNEL, '-f', '{connection_file}']
    history = '--HistoryManager.hist_file=:memory:'
    spec = kernelspec.KernelSpec(argv=[*command, history])
    # Where the manager would look for a kernel by its name.
    self._manager._kernel_spec = spec
    try:
      self._do(self._start()).result()
    except BaseException:
      self.stop()
      raise

  async def _start(self) -> None:
    with tempfile.TemporaryFile() as log:
      await self._manager.start_kernel(
        env=_kernel_environment(self.python),
        stdout=log,
        stderr=subprocess.STDOUT,
      )
      self._client = self._manager.client()
      # A cell that prints fast must not lose what says that it has ended.
      self._client.context.rcvhwm = 0
      self._client.start_channels()
      try:
        await self._client.wait_for_ready(timeout=_START_LIMIT_S)
      except RuntimeError as error:
        log.seek(0)
        lines = log.read().decode(errors='replace').strip().splitlines()
        raise NotebookError(
          f'The kernel in {self.python} does not start (it says: '
          f'{lines[-1] if lines else "nothing"}): remove its environment and '
          'run this cell again.'
        ) from error

  def _do(self, coroutine):
    """Begins a coroutine in the thread of the client; returns its future."""
    return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

  def is_alive(self) -> bool:
    """Returns whether the process runs."""
    return self._do(self._manager.is_alive()).result()

  def interrupt(self) -> None:
    """Raises a KeyboardInterrupt in the cell that runs."""
    # Not waited for: this runs in a handler of signals.
    self._do(self._manager.interrupt_kernel())

  def run(self, code: str, number: int | None) -> Iterator[tuple[str, dict]]:
    """Runs a cell.

    Args:
      code: The cell.
      number: Of the cell in the notebook, as tracebacks name it; None where it
        has none.

    Yields:
      Kind and content of each message on what the cell shows, and as the last
      the `execute_reply`.

    Raises:
      NotebookError: If the kernel has ended, or ends.
    """
    shown = queue.SimpleQueue()
    running = self._do(self._run(code, number, shown.put))
    running.add_done_callback(lambda _: shown.put(None))
    yield from iter(shown.get, None)
    yield 'execute_reply', running.result()

  async def _run(self, code, number, show) -> dict:
    """Runs a cell, shows its messages, and returns the reply."""
    if number is not None:
      count = f'get_ipython().execution_count = {number}'
      self._client.execute(count, silent=True)
    request = self._client.execute(code, allow_stdin=False)
    reply = asyncio.ensure_future(self._reply_to(request))
    while True:
      try:
        message = await self._client.get_iopub_msg(timeout=1)
      except queue.Empty:
        # What says that the cell is done may be lost.
        if reply.done():
          return reply.result()
        if not await self._manager.is_alive():
          reply.cancel()
          raise NotebookError(
            f'The Python {_PYTHON} kernel has ended, most often for want of '
            'memory, and what it held is lost: restart the session (in Colab: '
            'Runtime, Restart session) and run the cells again from the first '
            'one.'
          ) from None
        continue
      kind, content = message['header']['msg_type'], message['content']
      if kind != 'status':
        show((kind, content))
      elif (
        content['execution_state'] == 'idle'
        and message['parent_header'].get('msg_id') == request
      ):
        return await reply

  async def _reply_to(self, request: str) -> dict:
    while True:
      message = await self._client.get_shell_msg()
      if message['parent_header'].get('msg_id') == request:
        return message['content']

  def stop(self) -> None:
    """Ends the kernel; it has some seconds to end by itself."""
    self._do(self._manager.shutdown_kernel()).result()


def _kernel_environment(python: pathlib.Path) -> dict[str, str]:
  """Returns the variables of a kernel in another Python."""
  variables = _environment()
  variables |= {
    # `!python` and `!pip` in a cell are those of the environment.
    'PATH': f'{python.parent}{os.pathsep}{variables.get("PATH", os.defpath)}',
    # Colab's own backend is not there.
    'MPLBACKEND': 'module://matplotlib_inline.backend_inline',
  }
  # TensorFlow 2.14 prints errors about drivers where nothing is wrong.
  variables.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  return variables


class _Router:
  """Sends the cells of a shell to another kernel, and shows what they show."""

  def __init__(self, shell, kernel: _Kernel | None):
    self._shell = shell
    self.kernel = kernel

  def transform(self, lines: list[str]) -> list[str]:
    """An input transformer of IPython: makes a cell one line that relays it."""
    first = next(
      (
        i
        for i, line in enumerate(lines)
        if line.strip() and not line.lstrip().startswith('#')
      ),
      None,
    )
    if first is None:
      return lines
    if lines[first].strip() == _LOCAL:
      return lines[first + 1 :]
    # What a frontend asks for itself is silent, and no cell.
    parent = getattr(self._shell, 'get_parent', dict)()
    if self.kernel is None or parent.get('content', {}).get('silent'):
      return lines
    cell = ''.join(lines)
    return [f'get_ipython().run_cell_magic({_MAGIC!r}, "", {cell!r})\n']

  def run(self, line: str, cell: str) -> None:
    """A cell magic of IPython: runs a cell in the other kernel.

    Raises:
      NotebookError: If the kernel has ended.
      Exception: Of the name that the cell's own error has.
    """
    del line
    # Newer releases of IPython count on before the cell is run.
    number = self._shell.displayhook.exec_result.execution_count
    with _interrupts_go_to(self.kernel):
      for kind, content in self.kernel.run(cell, number):
        self._show(kind, content)
    if content['status'] == 'error':
      error = type(content['ename'], (_CellError,), {})(content['evalue'])
      error.traceback = tuple(content['traceback'])
      raise error
    if content['status'] != 'ok':
      raise NotebookError('The cell was not run: run it again.')

  def _show(self, kind: str, content: dict) -> None:
    if kind == 'stream':
      stream = getattr(sys, content['name'])
      stream.write(content['text'])
      # In the order in which it was written, with what is shown otherwise.
      stream.flush()
    elif kind in ('display_data', 'update_display_data'):
      self._shell.display_pub.publish(
        content['data'],
        content['metadata'],
        transient=content.get('transient', {}),
        update=kind == 'update_display_data',
      )
    elif kind == 'execute_result':
      hook = self._shell.displayhook
      hook.start_displayhook()
      hook.write_output_prompt()
      hook.write_format_data(content['data'], content['metadata'])
      hook.finish_displayhook()
    elif kind == 'clear_output':
      self._shell.display_pub.clear_output(wait=content['wait'])
    elif kind == 'execute_reply':
      for payload in content.get('payload', ()):
        # Help, and the text of a next cell.
        if payload['source'] in ('page', 'set_next_input'):
          self._shell.payload_manager.write_payload(payload)


@contextlib.contextmanager
def _interrupts_go_to(kernel: _Kernel) -> Iterator[None]:
  """Relays interrupts, rather than to stop at any point of a message."""
  try:
    before = signal.signal(signal.SIGINT, lambda *_: kernel.interrupt())
  except ValueError:
    # Not in the main thread, which alone gets signals.
    yield
    return
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, before)


def _route(shell, kernel: _Kernel | None) -> None:
  """Makes cells run in a kernel, or in the shell but for their `%%local`."""
  if router := getattr(shell, _MAGIC, None):
    router.kernel = kernel
    return
  router = _Router(shell, kernel)
  setattr(shell, _MAGIC, router)
  shell.register_magic_function(router.run, 'cell', _MAGIC)
  # Before IPython's own, so that the other kernel gets the cell as it is.
  shell.input_transformers_cleanup.insert(0, router.transform)


if __name__ == '__main__':
  start()
