"""The data of the benchmark of the transition layer."""

import numpy as np
import stores

from benchmarks import fedul, workloads


def test_every_label_is_a_set_with_a_share(tmp_path):
  workload = fedul.SECTION.workload
  store = workloads.build_store(workload.clients, 100, str(tmp_path))
  constants = fedul._constants(workload, store.num_clients)
  assert constants['class_priors'].shape == (workload.clients, 40, 10)
  assert constants['set_shares'].shape == (workload.clients, 40)
  for table in constants.values():
    assert table.dtype == np.float32
    np.testing.assert_allclose(table.sum(axis=-1), 1, rtol=1e-5)
  for client in range(workload.clients):
    labels = stores.read(store, client).y
    assert (constants['set_shares'][client, labels] > 0).all()
