"""The label-hungry round compares what it says, at the paper's sizes."""

import dataclasses
import json

import numpy as np
import pytest
import stores

from benchmarks import candidates, label_hungry, measurement, rounds, workloads

TINY = label_hungry.LabelHungry(
  clients=3, fewest=6, most=10, epochs=2, batch_size=4, mask_ratio=0.5
)
NAMES = {'fsl', 'stock_tff', 'fsl_masked', 'ssjo', 'sspt_pretraining'}


def parts_of(store):
  return [stores.read(store, k) for k in range(store.num_clients)]


@pytest.mark.runs
def test_json_holds_every_field(monkeypatch, capsys):
  """With times that are given."""
  seconds = dict.fromkeys(NAMES, [0.006, 0.003, 0.009])
  seconds['stock_tff'] = [0.012, 0.015, 0.018]
  timed = {}

  def time_rounds(rounds_by_name, repetitions):
    assert repetitions == 3
    timed.update(rounds_by_name)
    return seconds

  monkeypatch.setattr(label_hungry.SECTION, 'workload', TINY)
  monkeypatch.setattr(measurement, 'time_rounds', time_rounds)
  monkeypatch.setattr(
    candidates, 'rounds_over_store', lambda build, store, clients: clients
  )
  monkeypatch.setattr(
    candidates, 'rounds_of_stock_tff', lambda *given, **_: given[-1]
  )
  rounds.main(['--json', '--only=label_hungry', '--repetitions=3'])
  assert timed == dict.fromkeys(NAMES, TINY.clients)
  results = json.loads(capsys.readouterr().out)

  assert set(results) == {'machine', 'label_hungry'}
  # Milliseconds of one of three clients: the best, and the median.
  best = dict.fromkeys(NAMES, 1.0) | {'stock_tff': 4.0}
  assert results['label_hungry'] == {
    **dataclasses.asdict(TINY),
    **{f'{name}_ms': ms for name, ms in best.items()},
    'median_ms': dict.fromkeys(NAMES, 2.0) | {'stock_tff': 5.0},
    'fsl_over_stock': 0.25,
  }


def test_clients_have_sizes_between_and_a_mask_leaves_few_labels(tmp_path):
  workload = label_hungry.SECTION.workload
  plain = parts_of(workload.build_store(str(tmp_path)))
  masked = parts_of(workload.build_store(str(tmp_path), workload.mask_ratio))
  assert len(plain) == len(masked) == 100
  for parts in (plain, masked):
    sizes = sorted(len(part.y) for part in parts)
    assert (sizes[0], sizes[-1]) == (76, 101)
    # A hundred clients at equal distances: about four of each size.
    assert np.unique(sizes, return_counts=True)[1].max() == 4
  assert all((part.y >= 0).all() for part in plain)
  for part in masked:
    n = len(part.y)
    assert (part.y >= 0).sum() == n - int(0.9 * n)


@pytest.mark.runs
def test_stock_tff_passes_over_the_same_examples_as_often(
  tmp_path, monkeypatch
):
  given = {}

  def record(process, arguments, threads_per_op):
    del process, threads_per_op
    given['datasets'] = next(arguments)

  monkeypatch.setattr(candidates, '_rounds_of', record)
  store = TINY.build_store(str(tmp_path))
  candidates.rounds_of_stock_tff(
    label_hungry.build_keras_model,
    store,
    TINY.clients,
    batch_size=TINY.batch_size,
    epochs=TINY.epochs,
    client_optimizer=label_hungry._optimizer(),
  )
  for dataset, part in zip(given['datasets'], parts_of(store), strict=True):
    batches = list(dataset.as_numpy_iterator())
    # Two passes without a cut: full minibatches but for the last one.
    sizes = [len(labels) for _, labels in batches]
    assert set(sizes[:-1]) == {4} and sum(sizes) == 2 * len(part.true_y)
    pixels = np.concatenate([images for images, _ in batches])
    twice = np.concatenate([part.examples, part.examples]) / 255
    np.testing.assert_allclose(
      np.sort(pixels.sum((1, 2, 3))), np.sort(twice.sum((1, 2, 3))), rtol=1e-5
    )


def test_the_network_is_that_of_the_paper():
  model = label_hungry.build_keras_model()
  assert model.count_params() == 784 * 256 + 256 + 256 * 10 + 10
  assert model.output_shape == (None, workloads.NUM_CLASSES)


def test_all_five_are_built_with_the_settings_of_the_paper(
  tmp_path, monkeypatch
):
  built = []
  monkeypatch.setattr(
    candidates,
    'rounds_over_store',
    lambda build, store, clients: built.append((store, clients)),
  )
  monkeypatch.setattr(
    candidates, 'rounds_of_stock_tff', lambda *_, **given: built.append(given)
  )
  found = label_hungry.build_all(TINY, str(tmp_path))
  assert set(found) == NAMES
  stock = built.pop(1)
  assert (stock['batch_size'], stock['epochs']) == (4, 2)
  hparams = stock['client_optimizer'].get_hparams(
    stock['client_optimizer'].initialize([])
  )
  assert hparams['learning_rate'] == pytest.approx(0.001)
  assert hparams['momentum'] == pytest.approx(0.99)
  labelled = [
    sum((part.y >= 0).sum() for part in parts_of(store)) for store, _ in built
  ]
  # 6, 8 and 10 examples; the mask takes half of each.
  assert labelled == [24, 12, 12, 12]
  assert [clients for _, clients in built] == [3] * 4
