"""What tests of whole runs share."""

import shutil

import pytest


@pytest.fixture
def copy_cut_off():
  """Copies a finished run, as if killed before its last checkpoint was whole.

  The run goes on in the copy, beside its folder, from the checkpoint before
  the last; metrics and client states are ahead of it, as after a crash.
  """

  def copy(folder):
    cut = folder.with_name('cut')
    shutil.copytree(folder, cut)
    (cut / 'summary.json').unlink()
    _, *_, last = sorted((cut / 'checkpoints').glob('round_*'))
    shutil.rmtree(last)
    return cut

  return copy
