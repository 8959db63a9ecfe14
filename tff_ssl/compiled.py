"""A process compiled: the forms of its round, and processes in files.

In a compiled form a client's part of a round is one graph. TFF has two such
forms. `DistributeAggregateForm` is for sums; it takes no
`tff.federated_aggregate`, with which an aggregator collects the clients'
values, as `tff_ssl.MedianFactory` does. `MapReduceForm` is for both, and makes
one aggregation of them all.

A file is for a platform that has none of this library: a zip archive of
serialized TFF computations (protos of `computation.proto`), with a manifest of
their SHA-256. It holds no pickled object, and reading it runs no code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import logging
import os
import zipfile
from typing import TypeAlias

import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2

import tff_ssl
from tff_ssl import compat
from tff_ssl.aggregators import inspection
from tff_ssl.common import whole_files

_LOG = logging.getLogger(__name__)
_forms = tff.backends.mapreduce

Form: TypeAlias = (
  tff.backends.mapreduce.DistributeAggregateForm
  | tff.backends.mapreduce.MapReduceForm
)

# As TFF writes it into a computation that has one.
_FEDERATED_AGGREGATE = b'federated_aggregate'
_FORMAT = 1
_MANIFEST = 'manifest.json'
_OF_PROCESS = ('initialize', 'next', 'get_model_weights')
_OF_FORM = (
  'server_prepare',
  'server_to_client_broadcast',
  'client_work',
  'client_to_server_aggregation',
  'server_result',
)


def form_of(round_computation: compat.Computation) -> Form:
  """Compiles a round, `(<S@SERVER, {D}@CLIENTS> -> <S@SERVER, R@SERVER>)`.

  That takes seconds, and gives its `DistributeAggregateForm`, or where it has
  none, its `MapReduceForm`.
  """
  proto = compat.serialize_computation(round_computation)
  if _FEDERATED_AGGREGATE in proto.SerializeToString():
    return _forms.get_map_reduce_form_for_computation(round_computation)
  return _forms.get_distribute_aggregate_form_for_computation(round_computation)


def computation_of(form: Form) -> compat.Computation:
  """Returns the round of a form; its results have no Python containers."""
  if isinstance(form, _forms.MapReduceForm):
    computation = _forms.get_computation_for_map_reduce_form(form)
    if form.securely_aggregates_tensors:
      return computation
    # The form always has secure sums, here of nothing.
    return _with_plain_sums(computation)
  return _forms.get_computation_for_distribute_aggregate_form(form)


def _with_plain_sums(computation: compat.Computation) -> compat.Computation:
  """Returns a computation with plain sums in the place of secure ones."""
  plain = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
  # Replacing loses the Python containers of the result.
  return compat.ConcreteComputation.with_type(plain, computation.type_signature)


def simulate_secure_sums(computation: compat.Computation) -> compat.Computation:
  """Replaces secure sums, if there are any, by plain ones, and says so.

  What simulates has no cryptography for TFF's secure sums, such as those of
  `tff.learning.secure_aggregator()`: TFF's own contexts end with `Cannot embed
  a federated value`. Plain sums of the same numbers, quantised and clipped in
  the same way, give the result that a platform with secure sums would give, and
  protect nothing: who computes them sees each client's value.
  """
  # Replacing takes a fifth of the whole compilation where there are none.
  if not inspection.has_secure_sums(computation):
    return computation
  _LOG.warning(
    'Secure sums are simulated: the same arithmetic, but no cryptography. '
    "Who computes them sees each client's values."
  )
  return _with_plain_sums(computation)


def messages(form: Form) -> tuple[compat.Type, compat.Type]:
  """Returns the types of what a client is sent, and of what it sends back."""
  if isinstance(form, _forms.MapReduceForm):
    return form.prepare.type_signature.result, form.work.type_signature.result
  return (
    form.server_to_client_broadcast.type_signature.result,
    form.client_work.type_signature.result,
  )


@dataclasses.dataclass(frozen=True)
class SavedProcess:
  """A process as it comes out of a file.

  The computations have the types of those that were saved, without their
  containers of Python: the fields of a state are the keys of a dict.

  Attributes:
    initialize: `( -> S@SERVER)`.
    next: `(<S@SERVER, {D}@CLIENTS> -> <state=S, metrics=M>@SERVER)`.
    get_model_weights: `(S -> W)`.
    form: `next` as a DistributeAggregateForm.
  """

  initialize: compat.Computation
  next: compat.Computation
  get_model_weights: compat.Computation
  form: tff.backends.mapreduce.DistributeAggregateForm


def save_process(
  process: tff.learning.templates.LearningProcess, path: str | os.PathLike
) -> None:
  """Writes a process and its DistributeAggregateForm into a file.

  Args:
    process: Over clients' data, not over keys that a reader of this machine
      takes.
    path: The file; one that is there is replaced.

  Raises:
    OSError: If it cannot be written.
  """
  form = _forms.get_distribute_aggregate_form_for_computation(process.next)
  computations = {
    **{name: getattr(process, name) for name in _OF_PROCESS},
    **{name: getattr(form, name) for name in _OF_FORM},
  }
  contents = {
    name: compat.serialize_computation(computation).SerializeToString()
    for name, computation in computations.items()
  }
  manifest = {
    'format': _FORMAT,
    'tff_ssl': tff_ssl.__version__,
    'tensorflow_federated': tff.__version__,
    'sha256': {
      name: hashlib.sha256(content).hexdigest()
      for name, content in contents.items()
    },
  }
  with (
    whole_files.replacing(path) as file,
    zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive,
  ):
    archive.writestr(_MANIFEST, json.dumps(manifest, indent=2))
    for name, content in contents.items():
      archive.writestr(f'{name}.pb', content)


class _RefusedError(ValueError):
  """The file says what is wrong with it."""


def load_process(path: str | os.PathLike) -> SavedProcess:
  """Reads what `save_process` wrote.

  Args:
    path: The file.

  Returns:
    The `SavedProcess`.

  Raises:
    OSError: If there is no such file.
    ValueError: If it is damaged, of another format, or of another version of
      TFF than the installed one.
  """
  # Outside, where an error is that of the file and not of its content.
  with open(path, 'rb') as file:
    whole = io.BytesIO(file.read())
  try:
    with zipfile.ZipFile(whole) as archive:
      manifest = json.loads(archive.read(_MANIFEST))
      _check_versions(path, manifest)
      loaded = {}
      for name in (*_OF_PROCESS, *_OF_FORM):
        content = archive.read(f'{name}.pb')
        if hashlib.sha256(content).hexdigest() != manifest['sha256'][name]:
          raise _RefusedError(
            f'{path} is damaged, in {name}.pb: save it again.'
          )
        loaded[name] = compat.deserialize_computation(
          computation_pb2.Computation.FromString(content)
        )
  except (MemoryError, _RefusedError):
    raise
  # The readers of zip, JSON and protocol buffers raise a dozen types where
  # bytes make no sense to them.
  except Exception as error:
    raise ValueError(
      f'{path} is no process that tff_ssl.save_process wrote ({error}).'
    ) from error
  parts = {name: loaded.pop(name) for name in _OF_FORM}
  form = _forms.DistributeAggregateForm(loaded['next'].type_signature, **parts)
  return SavedProcess(form=form, **loaded)


def _check_versions(path, manifest) -> None:
  if manifest['format'] != _FORMAT:
    raise _RefusedError(
      f'{path} has the format {manifest["format"]}, and this version reads '
      f'{_FORMAT}: save it again with tff_ssl {tff_ssl.__version__}.'
    )
  # Serialized computations are no stable format of TFF's.
  if manifest['tensorflow_federated'] != tff.__version__:
    raise _RefusedError(
      f'{path} is of TFF {manifest["tensorflow_federated"]}, and '
      f'{tff.__version__} is installed: save it again with that.'
    )
