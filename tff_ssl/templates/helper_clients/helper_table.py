"""Who helps whom: the table of helper clients that the server keeps.

FedMatch (Jeong et al., arXiv 2006.12097, Section 3.1) compares client models by
their outputs on a fixed input of Gaussian noise. The H clients nearest to a
client are its helpers. The server keeps a row for each client: the outputs that
its model gave when it took part last. Before every R-th round the server
chooses anew. Distances are Euclidean; of equal distances, the first row counts
as nearer.

A client that has not taken part helps nobody and has no helpers. If fewer than
H others are known, all of them are helpers.

Each client sends its row in a table of zeros (`stacks.scatter`), and the server
gets the sum of these tables. So it sees every participant's outputs on the
noise, whatever `model_aggregator` hides of the models.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tff_ssl import checks
from tff_ssl.templates import client_task, faults, memories, stacks

_NOBODY = -1
_FIELD = 'shared'


@dataclasses.dataclass(frozen=True)
class HelperTable:
  """How the server chooses helpers.

  Attributes:
    num_clients: K, clients there are; the number of rows.
    width: Numbers in a row.
    num_helpers: H >= 1, below K.
    interval: R >= 1: helpers are chosen before rounds R, 2R, ..., counted
      from 1.
    first_round: Rounds before which clients do not train and so are not known.
    by_index: Whether a client is known by its index below K. If not, because
      client data have no context, its row is its fingerprint modulo K. Of
      several clients with one row, the last one is known.
  """

  num_clients: int
  width: int
  num_helpers: int = 2
  interval: int = 10
  first_round: int = 0
  by_index: bool = True

  def __post_init__(self):
    if self.num_clients is None:
      raise ValueError(
        'num_clients=None leaves open whom helpers are chosen among: give the '
        'number of all that may ever take part.'
      )
    checks.integers_at_least(
      1,
      num_clients=self.num_clients,
      num_helpers=self.num_helpers,
      helper_interval=self.interval,
    )
    if self.num_helpers >= self.num_clients:
      raise ValueError(
        f'num_helpers={self.num_helpers} needs as many other clients, but '
        f'num_clients={self.num_clients} leaves {self.num_clients - 1}: lower '
        'num_helpers, or take more clients.'
      )

  def initial(self) -> collections.OrderedDict[str, Any]:
    """Returns the server's state before the first round: nobody is known."""
    shape = [self.num_clients]
    return collections.OrderedDict(
      rows=collections.OrderedDict(
        outputs=tf.zeros([*shape, self.width]), owner=tf.fill(shape, _NOBODY)
      ),
      round=tf.constant(0),
      chosen=collections.OrderedDict(
        owner=tf.fill(shape, _NOBODY),
        helpers=tf.fill([*shape, self.num_helpers], _NOBODY),
      ),
    )

  def is_missing(self, client: tf.Tensor) -> tf.Tensor:
    """Returns whether there is no such client, `bool` scalar."""
    if self.by_index:
      return stacks.is_missing(client, self.num_clients)
    return tf.constant(False)

  def helpers_of(
    self, chosen: Mapping[str, tf.Tensor], client: tf.Tensor
  ) -> tf.Tensor:
    """Returns a client's helpers, `int32 [H]`, -1 in the place of each missing.

    Args:
      chosen: `chosen` of the server's state.
      client: `int32` scalar.
    """
    row = self._row(client)
    is_own = tf.equal(chosen['owner'][row], client)
    return tf.where(is_own, chosen['helpers'][row], _NOBODY)

  def scatter(
    self, client: tf.Tensor, outputs: tf.Tensor
  ) -> tuple[collections.OrderedDict[str, tf.Tensor], tf.Tensor]:
    """Returns what a client sends, to be summed over clients for `merge`.

    Args:
      client: `int32` scalar.
      outputs: `float32 [width]`, of its model on the noise.
    """
    row = collections.OrderedDict(outputs=outputs, owner=client)
    return stacks.scatter(
      row, self._row(client), self.num_clients, tf.constant(True)
    )

  def merge(
    self, state: Mapping[str, Any], sums: tuple[Any, tf.Tensor]
  ) -> collections.OrderedDict[str, Any]:
    """Returns the server's state after a round.

    Args:
      state: That before it.
      sums: What clients sent (`scatter`), summed over those that count.
    """
    rows, taken = sums
    joined = tf.cast(state['round'] >= self.first_round, tf.float32)
    rows = stacks.merge(state['rows'], rows, joined * taken)
    done = state['round'] + 1
    chosen = tf.cond(
      tf.equal((done + 1) % self.interval, 0),
      lambda: self._choose(rows),
      lambda: tf.nest.map_structure(tf.identity, state['chosen']),
    )
    return collections.OrderedDict(rows=rows, round=done, chosen=chosen)

  def _row(self, client):
    return tf.math.floormod(client, self.num_clients)

  def _choose(self, rows):
    """Returns for each row its owner and the owners of those nearest to it."""
    outputs, owner = rows['outputs'], rows['owner']
    indices = tf.range(self.num_clients)

    def nearest(row):
      distances = tf.reduce_sum(tf.square(outputs - outputs[row]), axis=1)
      is_other = (owner > _NOBODY) & tf.not_equal(indices, row)
      order = tf.argsort(
        tf.where(is_other, distances, float('inf')), stable=True
      )[: self.num_helpers]
      counts = tf.gather(is_other, order) & (owner[row] > _NOBODY)
      return tf.where(counts, tf.gather(owner, order), _NOBODY)

    # Row by row: all distances at once are K times as much memory.
    helpers = tf.map_fn(
      nearest,
      indices,
      fn_output_signature=tf.TensorSpec([self.num_helpers], tf.int32),
    )
    return collections.OrderedDict(
      owner=owner,
      helpers=tf.ensure_shape(helpers, [self.num_clients, self.num_helpers]),
    )


@dataclasses.dataclass(frozen=True)
class TableMemory:
  """The table as a `Memory`, of which clients see who helps whom.

  A client leaves its row (`HelperTable.scatter`) as the `shared_change` of its
  `LocalUpdate`. A table that would not be finite stays as it was.

  Attributes:
    table: The table.
  """

  table: HelperTable

  in_the_clear = 'the outputs by which helpers are chosen'

  def initial(self) -> memories.Fields:
    """See `Memory.initial`."""
    return collections.OrderedDict([(_FIELD, self.table.initial())])

  def send(self, state: memories.Fields) -> memories.Fields:
    """Sends who helps whom; see `Memory.send`."""
    return collections.OrderedDict([(_FIELD, state[_FIELD]['chosen'])])

  def read(
    self, task: client_task.ClientTask, sent: memories.Fields
  ) -> tuple[client_task.ClientTask, tf.Tensor]:
    """Puts who helps whom into `shared_state`."""
    missing = self.table.is_missing(task.client)
    return task._replace(shared_state=sent[_FIELD]), missing

  def leave(
    self,
    task: client_task.ClientTask,
    update: client_task.LocalUpdate,
    counts: tf.Tensor,
  ) -> memories.Kept:
    """Leaves the client's row."""
    row = faults.zero_unless(counts, update.shared_change)
    return memories.Kept(collections.OrderedDict([(_FIELD, row)]))

  def merge(
    self, state: memories.Fields, sums: memories.Fields
  ) -> memories.Fields:
    """See `Memory.merge`."""
    new = self.table.merge(state[_FIELD], sums[_FIELD])
    return collections.OrderedDict(
      [(_FIELD, faults.if_finite(new, state[_FIELD]))]
    )
