"""Who helps whom: the table of helper clients that the server keeps.

FedMatch (Jeong et al., arXiv 2006.12097, Section 3.1) compares client models by
their outputs on a fixed input of Gaussian noise; the H clients nearest to a
client are its helpers. The server keeps a row for each client, what its model
gave on the noise when it took part last, and chooses anew before every R-th
round: helpers are nearest in the Euclidean distance of rows, those of equal
distance in the order of rows.

A client that has not taken part helps nobody and has no helpers; where fewer
than H others are known, they are all helpers.

Rows go to the server scattered, as `slots.scatter` does it: in a sum over
clients, each in its place. So the server sees every participant's outputs on
the noise, whatever `model_aggregator` hides of the models.
"""

import collections
import dataclasses

import tensorflow as tf

from tff_ssl import checks
from tff_ssl.templates import client_work, slots, stacks

_NOBODY = -1


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
    by_index: Whether a client is known by its index below K. If not, as with
      client data without a context, it has the row of its fingerprint modulo K;
      of several in one row the last one is known.
  """

  num_clients: int
  width: int
  num_helpers: int = 2
  interval: int = 10
  first_round: int = 0
  by_index: bool = True

  def __post_init__(self):
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

  def initial(self) -> collections.OrderedDict:
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

  def helpers_of(self, chosen, client: tf.Tensor) -> tf.Tensor:
    """Returns a client's helpers, `int32 [H]`, -1 in the place of each missing.

    Args:
      chosen: `chosen` of the server's state.
      client: `int32` scalar.
    """
    row = self._row(client)
    is_own = tf.equal(chosen['owner'][row], client)
    return tf.where(is_own, chosen['helpers'][row], _NOBODY)

  def scatter(self, client: tf.Tensor, outputs: tf.Tensor):
    """Returns what a client sends, to be summed over clients for `merge`.

    Args:
      client: `int32` scalar.
      outputs: `float32 [width]`, of its model on the noise.
    """
    row = collections.OrderedDict(outputs=outputs, owner=client)
    return slots.scatter(
      row, self._row(client), self.num_clients, tf.constant(True)
    )

  def merge(self, state, sums) -> collections.OrderedDict:
    """Returns the server's state after a round.

    Args:
      state: That before it.
      sums: What clients sent (`scatter`), summed over those that count.
    """
    rows, taken = sums
    joined = tf.cast(state['round'] >= self.first_round, tf.float32)
    rows = slots.merge(state['rows'], rows, joined * taken)
    done = state['round'] + 1
    chosen = tf.cond(
      tf.equal((done + 1) % self.interval, 0),
      lambda: self._choose(rows),
      lambda: tf.nest.map_structure(tf.identity, state['chosen']),
    )
    return collections.OrderedDict(rows=rows, round=done, chosen=chosen)

  def as_shared_state(self) -> client_work.SharedState:
    """Returns the table as what clients share: they see who helps whom."""
    return client_work.SharedState(
      self.initial,
      lambda state, sums, count: self.merge(state, sums),
      send=lambda state: state['chosen'],
      is_missing=self.is_missing,
    )

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
