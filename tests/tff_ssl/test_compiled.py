"""A process in a file computes as before; secure sums run in a simulation."""

import collections
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tensorflow_federated as tff

import tff_ssl
from tff_ssl import aggregators, compiled
from tff_ssl.simulation import divided_context
from tff_ssl.testing import TinyProblem, assertions


@pytest.fixture(scope='module')
def problem(tff_context):
  return TinyProblem(tff_ssl.PROCESSES['grouping'])


@pytest.fixture(scope='module')
def path(problem, tmp_path_factory):
  path = tmp_path_factory.mktemp('saved') / 'grouping.zip'
  compiled.save_process(problem.process, path)
  return path


def _assert_equal(found, expected):
  # Whatever the containers are.
  assertions.require_equal(found, expected, 'The file must compute the same.')


@pytest.mark.dear
def test_rounds_of_the_file_are_those_of_the_process(problem, path):
  saved = compiled.load_process(path)
  clients = problem.clients()
  expected = problem.process.next(problem.initial_state, clients)
  output = saved.next(saved.initialize(), clients)
  _assert_equal(output, [expected.state, expected.metrics])
  _assert_equal(
    saved.get_model_weights(output['state']),
    problem.process.get_model_weights(expected.state),
  )
  rebuilt = (
    tff.backends.mapreduce.get_computation_for_distribute_aggregate_form(
      saved.form
    )
  )
  _assert_equal(
    rebuilt(saved.initialize(), clients), [expected.state, expected.metrics]
  )


@pytest.mark.parts
def test_tff_alone_reads_it(path, tmp_path):
  """Another program, with no other name of this library's than the reader."""
  code = (
    'import sys, zipfile\n'
    'import tensorflow_federated as tff\n'
    'from tensorflow_federated.proto.v0 import computation_pb2\n'
    'content = zipfile.ZipFile(sys.argv[1]).read("initialize.pb")\n'
    'proto = computation_pb2.Computation.FromString(content)\n'
    'print(tff.framework.deserialize_computation(proto).type_signature)\n'
    'print("tff_ssl" in sys.modules)\n'
  )
  finished = subprocess.run(
    [sys.executable, '-c', code, str(path)],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=True,
  )
  type_signature, is_imported = finished.stdout.splitlines()
  assert type_signature.startswith('( -> <global_model_weights=')
  assert is_imported == 'False'


def _with_manifest(path, target, **changes):
  with zipfile.ZipFile(path) as archive:
    contents = {name: archive.read(name) for name in archive.namelist()}
  manifest = {**json.loads(contents['manifest.json']), **changes}
  contents['manifest.json'] = json.dumps(manifest).encode()
  with zipfile.ZipFile(target, 'w') as archive:
    for name, content in contents.items():
      archive.writestr(name, content)
  return target


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'format': 2}, 'has the format 2, and this version reads 1: save it'),
    ({'tensorflow_federated': '0.1'}, r'is of TFF 0\.1, and .* is installed'),
    ({'sha256': {}}, 'is no process that tff_ssl.save_process wrote'),
    ({'sha256': 3}, 'is no process that tff_ssl.save_process wrote'),
    (
      {'sha256': dict.fromkeys(compiled._OF_PROCESS, '0')},
      r'is damaged, in initialize\.pb',
    ),
  ],
)
def test_other_files_are_refused(path, tmp_path, changes, message):
  file = _with_manifest(path, tmp_path / 'other.zip', **changes)
  with pytest.raises(ValueError, match=message):
    compiled.load_process(file)


def test_a_file_of_another_kind_is_refused(tmp_path):
  file = tmp_path / 'text.zip'
  file.write_text('no archive')
  with pytest.raises(ValueError, match='is no process that tff_ssl'):
    compiled.load_process(file)
  with pytest.raises(FileNotFoundError):
    compiled.load_process(tmp_path / 'nothing.zip')


@pytest.mark.dear
def test_damage_anywhere_is_a_value_error(path, tmp_path):
  """A bit turned, or the end cut off; few bits of an archive say nothing."""
  content = path.read_bytes()
  rng = np.random.default_rng(0)
  places = rng.integers(0, len(content), 60)
  ends = [0, 1, *rng.integers(1, len(content), 10), len(content) - 1]
  mutants = [content[:end] for end in ends]
  for place in [*range(40), *places]:
    changed = bytearray(content)
    changed[place] ^= 1 << int(rng.integers(8))
    mutants.append(bytes(changed))
  file, refused = tmp_path / 'mutant.zip', 0
  for mutant in mutants:
    file.write_bytes(mutant)
    try:
      compiled.load_process(file)
    except ValueError as error:
      assert str(file) in str(error)
      refused += 1
  assert refused > 0.6 * len(mutants)


_SERVER = tff.FederatedType(np.float32, tff.SERVER)
_CLIENTS = tff.FederatedType(np.float32, tff.CLIENTS)


@tff.tensorflow.computation(np.float32, np.float32)
def _add(a, b):
  return a + b


def _round(factory):
  process = factory.create(_CLIENTS.member, _CLIENTS.member)

  @tff.federated_computation(_SERVER, _CLIENTS)
  def next_fn(state, values):
    sent = tff.federated_broadcast(state)
    moved = tff.federated_map(_add, (sent, values))
    found = process.next(process.initialize(), moved, values).result
    return tff.federated_map(_add, (state, found)), tff.federated_sum(values)

  return next_fn


@pytest.mark.dear
@pytest.mark.parametrize(
  'factory, form_type, state',
  [
    # Weighted by the values themselves.
    (
      tff.aggregators.MeanFactory(),
      tff.backends.mapreduce.DistributeAggregateForm,
      10 + (10 + (1 + 4 + 49) / 10),
    ),
    (
      aggregators.MedianFactory(),
      tff.backends.mapreduce.MapReduceForm,
      10 + (10 + 2),
    ),
  ],
)
def test_forms_give_the_round(tff_context, factory, form_type, state):
  form = compiled.form_of(_round(factory))
  assert isinstance(form, form_type)
  computation = compiled.computation_of(form)
  tff.test.assert_not_contains_secure_aggregation(computation)
  found, total = computation(10.0, [1.0, 2.0, 7.0, 0.0])
  assert (found, total) == (pytest.approx(state), 10)


@pytest.mark.parts
def test_messages_of_both_forms(tff_context):
  """One float down, and up what is aggregated."""
  for factory, up in (
    # Value and weight for the mean, and the other sum.
    (tff.aggregators.MeanFactory(), [np.float32] * 3),
    # Value, group and whether it counts, for the median.
    (aggregators.MedianFactory(), [np.float32, np.int32, np.bool_, np.float32]),
  ):
    down_type, up_type = compiled.messages(compiled.form_of(_round(factory)))
    assert _dtypes(down_type) == [np.float32]
    assert sorted(map(str, _dtypes(up_type))) == sorted(
      str(np.dtype(each)) for each in up
    )


def _dtypes(type_):
  if isinstance(type_, tff.FederatedType):
    return _dtypes(type_.member)
  if isinstance(type_, tff.TensorType):
    return [np.dtype(type_.dtype)]
  return sum((_dtypes(t) for _, t in tff.structure.iter_elements(type_)), [])


_VALUES = [-1.5, 0.25, 7.0]


def _aggregation(factory):
  """Returns a computation with a result that has a container of Python."""
  process = factory.create(tff.types.to_type(np.float32))

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def aggregate(values):
    output = process.next(process.initialize(), values)
    return collections.OrderedDict(
      total=output.result, measurements=output.measurements
    )

  return aggregate


@pytest.fixture(scope='module')
def secure_sum():
  return _aggregation(tff.aggregators.SecureSumFactory(4.0, -4.0))


def test_p9_a_secure_sum_is_clipped_and_quantised(
  tff_context, secure_sum, caplog
):
  result = secure_sum(_VALUES)
  # Of 32 bits the step is 8 / 2**32.
  assert result['total'] == pytest.approx(-1.5 + 0.25 + 4.0, abs=1e-6)
  assert result['measurements']['secure_upper_clipped_count'] == 1
  assert 'Secure sums are simulated' in caplog.text
  assert 'no cryptography' in caplog.text


def test_it_is_divided_into_parts(tff_context, secure_sum):
  context = tff.framework.get_context_stack().current
  divided = divided_context.DividedContext(
    context, lambda comp, parts: [context.invoke(comp, x) for x in parts], 2
  )
  with tff.framework.get_context_stack().install(divided):
    result = secure_sum(_VALUES)
  assert result['total'] == pytest.approx(2.75, abs=1e-6)
  assert result['measurements']['secure_upper_clipped_count'] == 1


def test_nothing_secure_is_left(secure_sum):
  tff.test.assert_contains_secure_aggregation(secure_sum)
  plain = compiled.simulate_secure_sums(secure_sum)
  tff.test.assert_not_contains_secure_aggregation(plain)
  assert plain.type_signature == secure_sum.type_signature


def test_a_computation_without_secure_sums_stays_as_it_is(caplog):
  comp = _aggregation(tff.aggregators.SumFactory())
  assert compiled.simulate_secure_sums(comp) is comp
  assert not caplog.text
