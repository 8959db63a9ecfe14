"""Damaged files: what a disk, an editor or an enemy makes of a sound one.

`BYTES`, `TEXT`, `NPY`, `NPZ` and `PNG` are mutators by name, functions from the
bytes of a sound file to those of a damaged one; `json_types` makes some.
`try_all` tries them: a reader refuses a file in a sentence, or reads what the
sound file holds.
"""

import copy
import io
import json
import os
import pathlib
import pickle
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np

# A reader may take so long with a damaged file, CPU seconds.
_PATIENCE = 2.0
# Nothing of it may be allocated: a machine may have that much memory.
_HUGE = 2 * 2**30
_OF_JSON = (None, True, -1, 1e999, 10**400, '', 'a', [], {}, [[]], [None])


Mutators = Mapping[str, Callable[[bytes], bytes]]


class _Canary:
  """Writes a file where it is unpickled."""

  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return pathlib.Path.touch, (self._path,)


def _cut(share):
  return lambda content: content[: int(len(content) * share)]


def _flip(seed):
  def mutate(content):
    rng = np.random.default_rng(seed)
    changed = bytearray(content)
    changed[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    return bytes(changed)

  return mutate


def _inside(what):
  """Puts something in the middle of a file."""
  return lambda content: (
    content[: len(content) // 2] + what + content[len(content) // 2 :]
  )


def _zeros(content):
  third = len(content) // 3
  return content[:third] + bytes(third) + content[2 * third :]


CUT = {
  'empty': _cut(0),
  'a byte': lambda content: content[:1],
  'a quarter': _cut(1 / 4),
  'a half': _cut(1 / 2),
  'three quarters': _cut(3 / 4),
  'a byte less': lambda content: content[:-1],
}
FLIPPED = {f'flip {seed}': _flip(seed) for seed in range(12)}
BYTES = {
  **CUT,
  **FLIPPED,
  'zeros inside': _zeros,
  'zeros': lambda content: bytes(len(content)),
  'NUL bytes': _inside(b'\0\0'),
  'no UTF-8': _inside(b'\xff\xfe\xe9'),
  'twice': lambda content: content * 2,
  'BOM': lambda content: b'\xef\xbb\xbf' + content,
  'CRLF': lambda content: content.replace(b'\n', b'\r\n'),
  'more': lambda content: content + b'more',
}
TEXT = {
  **BYTES,
  'UTF-16': lambda content: content.decode().encode('utf-16'),
  'CR': lambda content: content.replace(b'\n', b'\r'),
  'a long line': _inside(b'x' * 2**20),
  'a quote': _inside(b'"'),
  'a long line of commas': _inside(b',' * 2**16),
  'brackets': lambda content: b'[' * 10**5,
  'braces': lambda content: b'{"a":' * 10**5,
  'a lone surrogate': _inside('\ud800'.encode('utf-8', 'surrogatepass')),
  'control characters': _inside(b'\x1a\x07\x1b[2J'),
}


def _column_twice(content):
  lines = content.split(b'\n')
  return b'\n'.join(line and line + b',' + line for line in lines)


CSV = {
  **TEXT,
  'columns twice': _column_twice,
  'the header alone': lambda content: content.split(b'\n')[0] + b'\n',
  'no header': lambda content: content.partition(b'\n')[2],
  'a cell more': lambda content: content.rstrip(b'\n') + b',x\n',
  'a cell less': lambda content: (
    content.rstrip(b'\n').rpartition(b',')[0] + b'\n'
  ),
  'semicolons': lambda content: content.replace(b',', b';'),
}


def npy(array: np.ndarray, **header: object) -> bytes:
  """Returns an npy file; parts of its header may be others.

  Args:
    array: What it holds.
    **header: Instead of the true `descr`, `fortran_order` or `shape`.
  """
  stream = io.BytesIO()
  true = np.lib.format.header_data_from_array_1_0(array)
  np.lib.format.write_array_header_1_0(stream, {**true, **header})
  return stream.getvalue() + array.tobytes()


def _declared(text):
  """Returns an npy file with this text for a header."""
  size = struct.pack('<H', len(text))
  return b'\x93NUMPY\x01\x00' + size + text.encode('latin-1') + bytes(64)


def _npy_with(**header):
  return lambda content: npy(np.load(io.BytesIO(content)), **header)


def _npy_text(text):
  return lambda content: _declared(text)


NPY = {
  **BYTES,
  **{
    f'shape {shape}': _npy_with(shape=shape)
    for shape in (
      *((_HUGE,), (_HUGE, 4, 4, 1), (2**40, 2**40), (-1, 4), (), (0,)),
      *((10**30,), (True, 4), (1,) * 40, (2**62, 4, 0)),
    )
  },
  **{
    f'type {kind}': _npy_with(descr=kind)
    for kind in (
      *('|O', '<U4', '|V8', '|S0', '<f4', '|b1', '<c8', 'M8[s]', 'x', ''),
      *([('a', '<i4'), ('b', '|O')], [], 3),
    )
  },
  **{
    f'header {text[:20]}': _npy_text(text)
    for text in (
      *('', '{}', '[]', '{', "{'descr': '|u1'}", '\xff', '\0' * 9),
      *('(' * 9_000, '-' * 60_000, '1+' * 30_000 + '1', '[' * 60_000),
      "{'descr': '|u1', 'fortran_order': 0, 'shape': 'abc'}",
      "{'descr': __import__('os'), 'fortran_order': 0, 'shape': ()}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (2.0, 4)}",
      "{'descr': '|u1', 'fortran_order': False, 'shape': [4]}",
      '{[]: 0}',
    )
  },
  **{
    f'version {version}': lambda content, version=version: (
      content[:6] + bytes([version]) + content[7:]
    )
    for version in (0, 2, 3, 9)
  },
}


def pickles(canary: pathlib.Path) -> Mutators:
  """Returns mutators of npz files that put pickles there.

  Args:
    canary: A file that is written where one is unpickled.
  """
  array = np.array([_Canary(canary)] * 4, object)
  stream = io.BytesIO()
  np.save(stream, array)
  return {
    'a pickle': lambda content: pickle.dumps(array),
    'objects': lambda content: stream.getvalue(),
    'arrays of objects': _each(lambda content: stream.getvalue()),
  }


def members(content: bytes) -> dict[str, bytes]:
  """Returns the content of the members of a zip file by name.

  Args:
    content: Of the file.
  """
  with zipfile.ZipFile(io.BytesIO(content)) as archive:
    return {name: archive.read(name) for name in archive.namelist()}


def _zipped(pairs, compression=zipfile.ZIP_STORED):
  stream = io.BytesIO()
  with zipfile.ZipFile(stream, 'w', compression) as archive:
    for name, content in pairs:
      # What has its name already would be warned of.
      info = zipfile.ZipInfo(name)
      info.compress_type = compression
      archive.NameToInfo.pop(name, None)
      archive.writestr(info, content)
  return stream.getvalue()


def _members(change, compression=zipfile.ZIP_STORED):
  """A mutator that changes the list of members, names with contents."""
  return lambda content: _zipped(
    change(list(members(content).items())), compression
  )


def _each(mutate):
  return _members(lambda pairs: [(n, mutate(c)) for n, c in pairs])


def _bomb(pairs):
  name, content = pairs[0]
  return [(name, content + bytes(8 * 2**20)), *pairs[1:]]


def _in_directory(offset, form, value, local=None):
  """Sets a field of the first member in the zip's directory."""

  def mutate(content):
    changed = bytearray(content)
    struct.pack_into(form, changed, changed.index(b'PK\1\2') + offset, value)
    if local is not None:
      struct.pack_into(form, changed, changed.index(b'PK\3\4') + local, value)
    return bytes(changed)

  return mutate


def _in_end(offset, form, value):
  def mutate(content):
    changed = bytearray(content)
    struct.pack_into(form, changed, changed.rindex(b'PK\5\6') + offset, value)
    return bytes(changed)

  return mutate


ZIP = {
  **BYTES,
  'no member': _members(lambda pairs: []),
  'a member less': _members(lambda pairs: pairs[1:]),
  'a member twice': _members(lambda pairs: [*pairs, pairs[0]]),
  'another name': _members(lambda pairs: [('../x', pairs[0][1]), *pairs[1:]]),
  'a folder in it': _members(lambda pairs: [('x/', b''), *pairs]),
  'empty members': _each(lambda content: b''),
  'claims 2 GiB': _in_directory(24, '<I', _HUGE),
  'claims 2 GiB, packed': _in_directory(20, '<I', _HUGE),
  'claims nothing': _in_directory(24, '<I', 0),
  'claims 4 GiB': _in_directory(24, '<I', 2**32 - 1),
  'encrypted': _in_directory(8, '<H', 1, 6),
  **{
    f'compression {kind}': _in_directory(10, '<H', kind, 8)
    for kind in (1, 8, 9, 12, 14, 99)
  },
  'version 99': _in_directory(6, '<H', 99),
  'a long name': _in_directory(28, '<H', 2**16 - 1),
  'a long extra field': _in_directory(30, '<H', 2**16 - 1),
  'lies elsewhere': _in_directory(42, '<I', 2**31),
  'a negative place': _in_end(16, '<I', 2**32 - 1),
  'many members': _in_end(10, '<H', 2**16 - 1),
  'the directory elsewhere': _in_end(16, '<I', 5),
  'the directory large': _in_end(12, '<I', 2**31),
  'a name that is no UTF-8': lambda content: _in_directory(8, '<H', 0x800, 6)(
    content
  ).replace(b'images', b'im\xffges'),
  'a bomb': _members(_bomb, zipfile.ZIP_DEFLATED),
}
NPZ = {
  **ZIP,
  **{
    f'arrays: {name}': _each(mutate)
    for name, mutate in NPY.items()
    if name.startswith(('header', 'shape', 'type', 'version'))
  },
  'an npy file': lambda content: next(iter(members(content).values())),
}


def _chunk(kind, content):
  crc = zlib.crc32(kind + content)
  return (
    struct.pack('>I', len(content)) + kind + content + struct.pack('>I', crc)
  )


def _header(place, form, value):
  """Sets a field of a PNG file's header, whose checksum is right."""

  def mutate(content):
    header = bytearray(content[16:29])
    struct.pack_into(form, header, place, value)
    return content[:8] + _chunk(b'IHDR', bytes(header)) + content[33:]

  return mutate


def _before_pixels(*chunks):
  def mutate(content):
    place = content.index(b'IDAT') - 4
    return content[:place] + b''.join(chunks) + content[place:]

  return mutate


def _size(width, height):
  return lambda content: _header(4, '>I', height)(
    _header(0, '>I', width)(content)
  )


PNG = {
  **BYTES,
  **{
    f'{size[0]} x {size[1]}': _size(*size)
    for size in (
      *((60_000, 60_000), (2**31 - 1, 1), (1, 2**31 - 1), (0, 0), (13_000, 9)),
      *((2**32 - 1, 2**32 - 1), (30_000, 1_000)),
    )
  },
  **{f'{bits} bits': _header(8, '>B', bits) for bits in (0, 1, 4, 16, 99)},
  **{f'colours {kind}': _header(9, '>B', kind) for kind in (1, 2, 3, 4, 6, 99)},
  'interlaced': _header(12, '>B', 1),
  'no pixels': lambda content: (
    content[: content.index(b'IDAT') - 4] + _chunk(b'IEND', b'')
  ),
  'a text that grows': _before_pixels(
    _chunk(b'zTXt', b'a\0\0' + zlib.compress(bytes(4 * 2**20)))
  ),
  'a profile that grows': _before_pixels(
    _chunk(b'iCCP', b'a\0\0' + zlib.compress(bytes(4 * 2**20)))
  ),
  'a broken EXIF': _before_pixels(_chunk(b'eXIf', b'MM\0*\xff\xff\xff\xff')),
  'a broken palette': _before_pixels(_chunk(b'PLTE', b'ab')),
  'an empty pHYs': _before_pixels(_chunk(b'pHYs', b'')),
  'a broken animation': _before_pixels(_chunk(b'acTL', b'\0')),
  'a long chunk': _before_pixels(b'\x7f\xff\xff\xff' + b'tEXt'),
}
JPEG = {
  **BYTES,
  **{f'flip {seed}': _flip(seed) for seed in range(40)},
  '65535 x 65535': lambda content: content.replace(
    content[(p := content.index(b'\xff\xc0') + 5) : p + 4], b'\xff' * 4, 1
  ),
}


def json_types(content: bytes) -> Mutators:
  """Returns mutators that put other types at each key of a JSON file.

  Args:
    content: Of the file.
  """
  found = {}
  for place in _places(json.loads(content)):
    found[f'without {place}'] = _at(place, None, drop=True)
    for value in _OF_JSON:
      found[f'{place} = {str(value)[:9]}'] = _at(place, value)
  return found


def _places(value, path=()):
  yield path
  if isinstance(value, dict | list):
    items = value.items() if isinstance(value, dict) else enumerate(value[:2])
    for key, one in items:
      yield from _places(one, (*path, key))


def _at(place, value, drop=False):
  def mutate(content):
    root = [json.loads(content)]
    *way, last = (0, *place)
    inner = root
    for key in way:
      inner = inner[key]
    if drop:
      del inner[last]
    else:
      inner[last] = copy.copy(value)
    return json.dumps(root[0] if root else None).encode()

  return mutate


# What may be in a file's place.
PLACES = {
  'a folder': lambda path: path.mkdir(),
  'a pipe': os.mkfifo,
  'a link to nowhere': lambda path: path.symlink_to(path.with_name('nowhere')),
  'a link to itself': lambda path: path.symlink_to(path),
}


def try_all(
  path: pathlib.Path,
  read: Callable[[], object],
  mutators: Mutators,
  *,
  may_differ: Iterable[str] = (),
  names: Iterable[str] = (),
  places: Iterable[str] = tuple(PLACES),
) -> None:
  """Asserts that a reader refuses damaged files in a sentence.

  What it does not refuse it reads as the sound file, and it takes little time.

  Args:
    path: A sound file, which is restored.
    read: Reads it, and returns something that can be compared.
    mutators: By name.
    may_differ: The names, or their beginnings, of mutants that may be read as
      other data: nothing tells them from a sound file.
    names: Of what a refusal names one; the path by default.
    places: Of `PLACES`, what to try in the file's place.

  Raises:
    AssertionError: With a line for each mutant that the reader fails at.
  """
  content, sound = path.read_bytes(), read()
  wrong = []

  def attempt(name):
    began = time.process_time()
    try:
      found = read()
    except ValueError as error:
      said = str(error)
      if type(error) in (UnicodeDecodeError, UnicodeEncodeError):
        wrong.append(f'{name}: {error!r}')
      elif not any(each in said for each in names or [str(path)]):
        wrong.append(f'{name}: does not name the file: {said[:200]}')
      elif '\n' in said:
        wrong.append(f'{name}: not a line: {said[:300]!r}')
    except Exception as error:  # Whatever it is, it is no sentence.
      wrong.append(f'{name}: {error!r:.300}')
    else:
      if found != sound and not name.startswith(tuple(may_differ)):
        wrong.append(f'{name}: read as other data: {str(found)[:300]}')
    if (took := time.process_time() - began) > _PATIENCE:
      wrong.append(f'{name}: took {took:.1f} s')

  for name, mutate in mutators.items():
    path.write_bytes(mutate(content))
    attempt(name)
  path.unlink()
  for name in places:
    PLACES[name](path)
    attempt(name)
    path.rmdir() if name == 'a folder' else path.unlink()
  path.write_bytes(content)
  assert read() == sound
  assert not wrong, '\n'.join(wrong)
