"""Arrays as `np.savez` stores them, read from bytes that are not trusted.

NumPy allocates what a header declares before it reads, and unpacks what is
packed, however large it becomes. Here sizes are compared first; nothing is
unpickled.
"""

import io
import zipfile

import numpy as np

from datasets.files import npz_files


def read(content: bytes) -> dict[str, np.ndarray]:
  """Returns the arrays of a file by name, if `np.savez` made it."""
  try:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
      members = archive.infolist()
      if sum(member.file_size for member in members) > len(content):
        raise ValueError('its parts are larger than the whole')
      for member in members:
        if member.compress_type != zipfile.ZIP_STORED:
          raise ValueError(f'{member.filename} is packed, as np.savez does not')
        _check_size(archive, member)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
      return {name: arrays[name] for name in sorted(arrays.files)}
  except MemoryError:
    raise
  # The readers of zip and npy raise a dozen types where bytes make no sense to
  # them: whatever it is, np.savez did not write the file.
  except Exception as error:
    raise ValueError(f'no file of np.savez: {error}') from error


def _check_size(archive, member) -> None:
  """Compares what the header of an array declares with the array's own size."""
  with archive.open(member) as stream:
    _, _, declared = npz_files.read_npy_header(stream)
  if declared != member.file_size:
    raise ValueError(
      f'{member.filename} declares {declared} bytes and has {member.file_size}'
    )
