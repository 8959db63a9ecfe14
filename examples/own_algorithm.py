"""A federated algorithm of your own, as good as the library's, in one file.

FedAvg whose clients send delta_k = top_s(w_k - w): the largest entries, a share
s, of each weight tensor (Aji and Heafield, arXiv 1704.05021, of gradients).

    python -m experiments.run --process=examples.own_algorithm:SPEC \\
        --dataset=digits --sent_share=0.05
    python -m tff_ssl.testing examples.own_algorithm:SPEC
"""

from etils import epy

import tff_ssl
from tff_ssl import shared_settings
from tff_ssl.algorithms import Needs, ProcessSpec, fed_avg
from tff_ssl.common.setting import Setting, check_arguments

with epy.lazy_imports():  # When they are used: help and errors come at once.
  import tensorflow as tf

  from tff_ssl.templates import averaging

SENT_SHARE = Setting('sent_share', float, 'Share sent.', above=0, at_most=1)


def largest_entries(tensor, share):
  """Returns `tensor` with 0 in place of all but its largest entries."""
  count = max(1, round(share * tensor.shape.num_elements()))
  least = tf.math.top_k(tf.abs(tf.reshape(tensor, [-1])), count)[0][-1]
  # NaN is not below anything, and stays: the round leaves such a client out.
  return tf.where(tf.abs(tensor) < least, 0.0, tensor)


def build(model, *, data_spec, wiring=tff_ssl.Wiring(), sent_share=0.1, **more):
  """Builds the process.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: `tff_ssl.ClientDataSpec`.
    wiring: `tff_ssl.Wiring`: distributor, aggregators and seed.
    sent_share: s, in (0, 1]; with 1 it is FedAvg.
    **more: `views`, and how clients train, as in `tff_ssl.build_fed_avg`.
  """
  check_arguments([SENT_SHARE], locals())
  training = fed_avg.build_training(model, data_spec=data_spec, **more)

  def train(task):  # What a client does with what it is sent.
    result = training.run_task(task)
    update = averaging.update_from(task, result, 'examples')
    delta = update.delta
    sent = [largest_entries(each, sent_share) for each in delta.trainable]
    return update._replace(delta=type(delta)(sent, delta.non_trainable))

  return averaging.compose(  # The server's part is FedAvg's.
    training,
    train=train,
    data_spec=data_spec,
    client_weighting='examples',
    wiring=wiring,
  )


SPEC = ProcessSpec(
  'sparse_fed_avg',
  'FedAvg of the largest entries of updates, all labels at clients.',
  build,
  (SENT_SHARE, *shared_settings.LOCAL),
  source='Aji and Heafield 2017, arXiv 1704.05021',
  needs=Needs(labels_at='clients', views='weak'),
  has_gradient_diversity=False,
)
