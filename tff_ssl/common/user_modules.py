"""A user's own parts, named by where they stand: `my_package.module:NAME`."""

import contextlib
import contextvars
import importlib
import sys
import traceback
from collections.abc import Collection, Iterator
from typing import Any

# Of `only_of`: the names that may be imported, and what is said of others;
# `None` where whoever names a module is its user.
_allowed: contextvars.ContextVar[tuple[frozenset[str], str] | None] = (
  contextvars.ContextVar('allowed', default=None)
)


def is_reference(name: str) -> bool:
  """Returns whether a name is `module:NAME`, and not one of a registry."""
  return ':' in str(name)


@contextlib.contextmanager
def only_of(names: Collection[str], remedy: str) -> Iterator[None]:
  """Within, only functions of some names are found, and no module is imported.

  For whatever reads names from a file that may be somebody else's: what a file
  says is no reason to run code. Records (`kind`) of modules that are imported
  already are found, too: to read one calls nothing.

  `names` are those that the user has given; `remedy` is what to do about
  another one, as the end of an error message.
  """
  token = _allowed.set((frozenset(names), remedy))
  try:
    yield
  finally:
    _allowed.reset(token)


def load(argument: str, name: str, kind: type | None = None) -> Any:
  """Imports what a name, `module:NAME`, stands for.

  What cannot be imported, must not be (`only_of`), or is not of the kind (by
  default, a function) is a `ValueError`, which names the argument that has the
  name as its value.
  """
  wanted = 'function' if kind is None else kind.__name__
  module_name, _, attribute = name.partition(':')
  names, remedy = _allowed.get() or ((), '')
  is_called = kind is None or module_name not in sys.modules
  if remedy and name not in names and is_called:
    raise ValueError(
      f'{argument}={name!r} stands in a file, and no code is run for what a '
      f'file says: {remedy}.'
    )
  module = _import(f'{argument}={name!r}', module_name)
  if not hasattr(module, attribute):
    raise ValueError(
      f'{argument}={name!r}: the module {module_name!r} has no {attribute!r}: '
      f'give the name of its {wanted}.'
    )
  found = getattr(module, attribute)
  if not (callable(found) if kind is None else isinstance(found, kind)):
    raise ValueError(
      f'{argument}={name!r} is no {wanted}, but of the type '
      f'{type(found).__name__}: give the name of a {wanted}.'
    )
  return found


@contextlib.contextmanager
def mistakes(
  part: str, function: str, may_refuse: bool = False
) -> Iterator[None]:
  """Turns what a function of a user's own part raises into a `ValueError`.

  Its one sentence names the part and the function. With `may_refuse`, a
  `ValueError` of the function is no mistake, and stays as it is.
  """
  try:
    yield
  except Exception as error:
    if may_refuse and isinstance(error, ValueError):
      raise
    raise ValueError(
      f'{part}: {function} stops at {describe(error)}: repair that.'
    ) from error


def describe(error: Exception) -> str:
  """Returns where a user's code stopped, and the error, in one line."""
  if isinstance(error, SyntaxError):
    place = f'{error.filename}:{error.lineno}'
  else:
    frames = traceback.extract_tb(error.__traceback__)
    # Of what it calls, only the error matters.
    own = [f for f in frames if 'site-packages' not in f.filename]
    last = (own or frames)[-1]
    place = f'{last.filename}:{last.lineno}'
  return f'{place} with {type(error).__name__}: {" ".join(str(error).split())}'


def _import(given: str, name: str):
  """Returns a module; `given` says in messages who asks for it."""
  parts = name.split('.')
  if not all(part.isidentifier() for part in parts):
    raise ValueError(
      f'{given}: {name!r} is no name of a module: write my_module:NAME, or '
      'my_package.my_module:NAME.'
    )
  parents = {'.'.join(parts[: i + 1]) for i in range(len(parts))}
  try:
    return importlib.import_module(name)
  # Whatever a user's file raises.
  except Exception as error:
    if isinstance(error, ModuleNotFoundError) and error.name in parents:
      raise ValueError(
        f'{given}: there is no module {name!r} ({error}): correct its name, or '
        'put its folder on PYTHONPATH.'
      ) from error
    raise ValueError(
      f'{given}: the import of {name!r} stops at '
      f'{describe(error)}: repair that.'
    ) from error
