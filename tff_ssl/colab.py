"""A notebook of any Python whose cells run in Python 3.11, as in Google Colab.

TensorFlow Federated 0.87 has wheels for Python 3.11 only, and the kernel of
Colab is newer. The first cell of a notebook is

    ![ -d ~/tff_ssl ] || git clone -q <address of the repository> ~/tff_ssl
    %cd -q ~/tff_ssl
    from tff_ssl import colab; colab.start()

It builds an environment with Python 3.11 beside the checkout, once, and starts
a second kernel in it. From then on all cells run there, with their pictures,
tables, progress bars, errors and interrupts. A cell whose first line is
`%%local` runs in the notebook's own kernel: for `google.colab`, say, which is
not in the environment. In a kernel that has TensorFlow Federated already,
`start` does nothing but say so, so a notebook runs unchanged in Jupyter.

Widgets, `input()` and completion are not relayed: completion knows the names of
the notebook's own kernel only.

This file needs the standard library, and what each notebook kernel has: IPython
and jupyter_client. It imports nothing of tff_ssl, so `%run tff_ssl/colab.py`
does for the last line, too.
"""

import atexit
import contextlib
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

# Run by `exec`, a file does not know where it lies.
_ROOT = (
  pathlib.Path(__file__).resolve().parents[1]
  if '__file__' in globals()
  else pathlib.Path.cwd()
)
_PYTHON = (3, 11)
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

# What a failed step prints, and what to do about it; the first that fits.
_REMEDIES = (
  (
    ('No space left',),
    'the disk is full',
    'free about 4 GB and run this cell again',
  ),
  (
    (
      'error sending request',
      'dns error',
      'Failed to fetch',
      'Failed to download',
      'tcp connect error',
      'timed out',
      'NewConnectionError',
      'from versions: none',
      'network was disabled',
    ),
    'a download did not succeed',
    'check the internet connection and run this cell again',
  ),
  (
    ('No interpreter found', 'No download found', 'No Python at'),
    'there is no Python 3.11 here, and none to download',
    "install one and name it: start(python='/path/to/python3.11')",
  ),
)

_PROBE = """
import importlib.util, sys
names = ('ipykernel', 'tensorflow_federated')
print(*sys.version_info[:2], *(
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
      f'start() is for notebooks: without one, run Python '
      f'{_version(_PYTHON)} itself.'
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
    f'{_version(_PYTHON)} ({path}). One whose first line is {_LOCAL} runs in '
    "the notebook's own kernel."
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
  stamp = _stamp(root)
  with contextlib.suppress(OSError):
    if (folder / _STAMP).read_text() == stamp and python.exists():
      print(f'The environment in {folder} is complete.')
      return python
  if folder.exists() and any(folder.iterdir()):
    # Nothing is removed but an environment, or what is left of ours.
    is_ours = folder == root / _FOLDER or (folder / 'pyvenv.cfg').exists()
    if not is_ours:
      raise NotebookError(
        f'{folder} is no environment: name an empty folder, or a new one.'
      )
    shutil.rmtree(folder)
  print(
    f'TensorFlow Federated needs Python {_version(_PYTHON)}, and this is '
    f'{_version(sys.version_info[:2])}. So an environment is built in '
    f'{folder}, once: about 3 GB, in a few minutes.'
  )
  for title, command in _steps(_uv(run), folder, root):
    _run_step(run, title, command)
  (folder / _STAMP).write_text(stamp)
  return python


def _stamp(root: pathlib.Path) -> str:
  """Returns a hash of all that an environment is made of."""
  digest = hashlib.sha256(str(root).encode())
  try:
    for name in (*_PINS, 'setup.py'):
      digest.update((root / name).read_bytes())
  except FileNotFoundError as error:
    raise NotebookError(
      f'{error.filename} is missing: clone the repository and import '
      'tff_ssl.colab from there.'
    ) from None
  return digest.hexdigest()


def _uv(run: _Run) -> list[str]:
  """Returns the command of uv, which is installed where there is none."""
  program = shutil.which('uv')
  if program:
    return [program]
  if not importlib.util.find_spec('uv'):
    pip = [sys.executable, '-m', 'pip', 'install', '--quiet', 'uv']
    _run_step(run, 'uv, which builds environments', pip)
  return [sys.executable, '-m', 'uv']


def _steps(
  uv: list[str], folder: pathlib.Path, root: pathlib.Path
) -> list[tuple[str, list[str]]]:
  """Returns the commands that build an environment, each under a title."""
  python = str(folder / 'bin' / 'python')
  # The pinned files are the whole set, see README, "Install".
  install = [*uv, 'pip', 'install', '--python', python, '--no-deps']
  pins = [part for name in _PINS for part in ('-r', str(root / name))]
  return [
    (
      f'Python {_version(_PYTHON)}',
      # With pip, so that `!pip` in a cell installs there.
      [*uv, 'venv', '--seed', '--python', _version(_PYTHON), str(folder)],
    ),
    ('TensorFlow Federated and what it needs', [*install, *pins]),
    ('tff_ssl', [*install, '--no-build-isolation', '-e', str(root)]),
  ]


def _run_step(run: _Run, title: str, command: list[str]) -> None:
  """Runs a step of the installation; a failure is a sentence."""
  status, output = run(command, title)
  if not status:
    return
  # In notebooks, programs are told to print in colours.
  output = re.sub(r'\x1b\[[0-9;]*m', '', output)
  lines = [line.strip() for line in output.splitlines() if line.strip()]
  said = lines[-1] if lines else f'exit status {status}'
  reason, remedy = next(
    (
      (reason, remedy)
      for signs, reason, remedy in _REMEDIES
      if any(sign in output for sign in signs)
    ),
    (
      f'exit status {status}',
      f'run it in a terminal to see why: {" ".join(command)}',
    ),
  )
  raise NotebookError(
    f'Installing {title} failed, for {reason}: {remedy} (it said: {said}).'
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
      f'environment with Python {_version(_PYTHON)}.'
    ) from error
  major, minor, *missing = done.stdout.split()
  if (int(major), int(minor)) != _PYTHON:
    raise NotebookError(
      f'{python} is Python {major}.{minor}: name one of '
      f'{_version(_PYTHON)}, or none, and an environment is built.'
    )
  if missing:
    pins = ' '.join(f'-r {_ROOT / name}' for name in _PINS)
    raise NotebookError(
      f'{python} has no {" and no ".join(missing)}: run `{python} -m pip '
      f'install --no-deps {pins}`.'
    )
  return python


def _version(numbers: tuple[int, ...]) -> str:
  return '.'.join(map(str, numbers))


def _runs_here() -> bool:
  """Returns whether this Python has TensorFlow Federated itself."""
  has_tff = importlib.util.find_spec('tensorflow_federated') is not None
  return has_tff and sys.version_info[:2] == _PYTHON


def _current_shell():
  """Returns the IPython shell that cells run in, or None outside of any."""
  if 'IPython' not in sys.modules:
    return None
  from IPython import get_ipython

  return get_ipython()


class _Kernel:
  """A kernel in another Python, by the messages of Jupyter.

  Its sockets are read in the thread that runs the cells. A client of
  jupyter_client would need an event loop there, and that thread's is busy: with
  the very cell that waits.
  """

  def __init__(self, python: pathlib.Path):
    """Starts the kernel and waits until it answers.

    Args:
      python: The interpreter.

    Raises:
      NotebookError: If it does not answer.
    """
    import zmq
    from jupyter_client import connect, session

    self.python = python
    self._folder = tempfile.TemporaryDirectory(prefix='tff_ssl_kernel_')
    folder = pathlib.Path(self._folder.name)
    file, ports = connect.write_connection_file(
      str(folder / 'connection.json'),
      ip='127.0.0.1',
      key=os.urandom(16).hex().encode(),
    )
    self._log = folder / 'log'
    with self._log.open('wb') as log:
      self._process = subprocess.Popen(
        # -P: no file of this folder stands in for a module of the kernel.
        [str(python), '-P', '-c', _KERNEL, '-f', file, *_history_in_memory()],
        env=_kernel_environment(python),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        # An interrupt reaches a whole process group: this is to have it once,
        # from here.
        start_new_session=True,
      )
    self._session = session.Session(
      key=ports['key'].encode(), signature_scheme=ports['signature_scheme']
    )
    self._context = zmq.Context()
    self._shell, self._iopub, self._control = (
      self._context.socket(kind) for kind in (zmq.DEALER, zmq.SUB, zmq.DEALER)
    )
    self._iopub.subscribe(b'')
    # A cell that prints fast must not lose what says that it has ended.
    self._iopub.rcvhwm = 0
    for socket, name in (
      (self._shell, 'shell_port'),
      (self._iopub, 'iopub_port'),
      (self._control, 'control_port'),
    ):
      socket.linger = 0
      socket.connect(f'tcp://127.0.0.1:{ports[name]}')
    self._poller = zmq.Poller()
    for socket in (self._shell, self._iopub):
      self._poller.register(socket, zmq.POLLIN)
    try:
      self._wait_until_ready()
    except BaseException:
      self.stop()
      raise

  def is_alive(self) -> bool:
    """Returns whether the process runs."""
    return self._process.poll() is None

  def interrupt(self) -> None:
    """Raises a KeyboardInterrupt in the cell that runs."""
    # As Jupyter does, for a `%%bash` has processes that it waits for.
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._process.pid, signal.SIGINT)

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
    if number is not None:
      count = f'get_ipython().execution_count = {number}'
      self._send(self._shell, 'execute_request', _execution(count, silent=True))
    request = self._send(self._shell, 'execute_request', _execution(code))
    reply, is_idle = None, False
    while reply is None or not is_idle:
      ready = dict(self._poller.poll(1000))
      if not ready:
        if not self.is_alive():
          raise NotebookError(self._end())
        # The reply came a second ago: what says that the cell is done is lost.
        is_idle = is_idle or reply is not None
      if self._iopub in ready:
        kind, content, parent = self._receive(self._iopub)
        if kind != 'status':
          yield kind, content
        elif content['execution_state'] == 'idle' and parent == request:
          is_idle = True
      if self._shell in ready:
        kind, content, parent = self._receive(self._shell)
        if kind == 'execute_reply' and parent == request:
          reply = content
    yield 'execute_reply', reply

  def stop(self) -> None:
    """Ends the kernel; it has some seconds to end by itself."""
    if self.is_alive():
      self._send(self._control, 'shutdown_request', {'restart': False})
      for end in (lambda: None, self._process.terminate, self._process.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired):
          self._process.wait(timeout=2)
          break
    self._context.destroy(linger=0)
    self._folder.cleanup()

  def _wait_until_ready(self) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    silent = {self._shell, self._iopub}
    while silent:
      if not self.is_alive() or time.monotonic() > deadline:
        lines = self._log.read_text(errors='replace').split('\n')
        said = next((line for line in reversed(lines) if line), 'nothing')
        raise NotebookError(
          f'The kernel in {self.python} does not start (it says: {said}): '
          'remove its environment and run this cell again.'
        )
      # What it publishes before it knows that one listens is lost: it is asked
      # until it is heard.
      self._send(self._shell, 'kernel_info_request', {})
      for socket, _ in self._poller.poll(500):
        self._receive(socket)
        silent.discard(socket)

  def _send(self, socket, kind: str, content: dict) -> str:
    return self._session.send(socket, kind, content)['header']['msg_id']

  def _receive(self, socket) -> tuple[str, dict, str | None]:
    """Returns kind and content of a message, and which request it answers."""
    _, message = self._session.recv(socket, mode=0)
    parent = message['parent_header'].get('msg_id')
    return message['header']['msg_type'], message['content'], parent

  def _end(self) -> str:
    status = self._process.returncode
    why = f'exit status {status}'
    if status < 0:
      why = f'killed by {signal.Signals(-status).name}'
    if status == -signal.SIGKILL:
      why += ', most often for want of memory'
    return (
      f'The Python {_version(_PYTHON)} kernel has ended ({why}), and what it '
      'held is lost: restart the session (in Colab: Runtime, Restart session) '
      'and run the cells again from the first one.'
    )


def _execution(code: str, silent: bool = False) -> dict:
  """Returns the content of a request to run a cell."""
  return {
    'code': code,
    'silent': silent,
    'store_history': not silent,
    'user_expressions': {},
    'allow_stdin': False,
    'stop_on_error': True,
  }


def _history_in_memory() -> list[str]:
  """Options that keep two kernels from writing one file of history."""
  return ['--HistoryManager.hist_file=:memory:']


def _kernel_environment(python: pathlib.Path) -> dict[str, str]:
  """Returns the variables of a kernel in another Python."""
  variables = _environment()
  variables |= {
    # `!python` and `!pip` in a cell are those of the environment.
    'PATH': f'{python.parent}{os.pathsep}{variables.get("PATH", os.defpath)}',
    # Colab's own backend is not there.
    'MPLBACKEND': 'module://matplotlib_inline.backend_inline',
    # By which the kernel ends when the notebook's own is killed.
    'JPY_PARENT_PID': str(os.getpid()),
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
    """An input transformer of IPython, the first.

    Args:
      lines: The cell.

    Returns:
      The same, or one line that runs it in the other kernel.
    """
    first = next(
      (i for i, line in enumerate(lines) if _says_something(line)), None
    )
    if first is None:
      return lines
    if lines[first].strip() == _LOCAL:
      return lines[first + 1 :]
    if self.kernel is None or self._is_of_the_frontend():
      return lines
    cell = ''.join(lines)
    return [f'get_ipython().run_cell_magic({_MAGIC!r}, "", {cell!r})\n']

  def run(self, line: str, cell: str) -> None:
    """A cell magic of IPython: runs a cell in the other kernel.

    Args:
      line: Nothing; magics have it.
      cell: The cell.

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

  def _is_of_the_frontend(self) -> bool:
    """Returns whether this is no cell, but what a frontend asks for itself."""
    parent = getattr(self._shell, 'get_parent', dict)()
    return bool(parent.get('content', {}).get('silent'))

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


def _says_something(line: str) -> bool:
  return bool(line.strip()) and not line.lstrip().startswith('#')


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
  router = getattr(shell, _MAGIC, None)
  if router:
    router.kernel = kernel
    return
  router = _Router(shell, kernel)
  setattr(shell, _MAGIC, router)
  shell.register_magic_function(router.run, 'cell', _MAGIC)
  # Before IPython's own, so that the other kernel gets the cell as it is.
  shell.input_transformers_cleanup.insert(0, router.transform)


if __name__ == '__main__':
  start()
