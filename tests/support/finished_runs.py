"""Folders of runs that look finished, in which nothing was trained."""

import json
import pathlib

from experiments.preparing import data


def write(settings, **facts):
  """Writes the summary that a run would leave.

  Args:
    settings: Of the run.
    **facts: What else the summary says, or says otherwise.
  """
  folder = pathlib.Path(settings.run_dir)
  folder.mkdir(parents=True)
  request = data.DataRequest.of_run(settings, settings.parts.process.labels_at)
  summary = {
    'process': settings.process,
    'seed': settings.seed,
    'rounds': settings.total_rounds,
    'flags': {**settings.used, 'run_dir': 'elsewhere'},
    'partition_digest': data.digest(request),
  }
  (folder / 'summary.json').write_text(json.dumps(summary | facts))
