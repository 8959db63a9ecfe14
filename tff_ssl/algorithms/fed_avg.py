"""FedAvg and FedProx with any client objective; labels at clients by default.

McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data (arXiv 1602.05629), Algorithm 1, in the form of Reddi et al.
(arXiv 2003.00295): the mean of the clients' model deltas, weighted by their
examples, is a gradient for the server optimizer,

```
delta_k = w_k - w,   w <- ServerOptimizer(w, -sum_k n_k delta_k / sum_k n_k)
```

and SGD with learning rate 1 at the server gives FedAvg. FedProx (Li et al.,
arXiv 1812.06127) adds mu/2 ||w_k - w||^2 to the clients' objective.
"""

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, objectives, optimizers
from tff_ssl.templates import client_work as client_work_lib
from tff_ssl.templates import (
  composition,
  finalizers,
  local_training,
)


def build_fed_avg(
  model,
  *,
  data_spec,
  views,
  client_objective=None,
  proximal_strength: float = 0.0,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  batch_size: int = 64,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  client_weighting: str = 'examples',
  schedule=None,
  model_distributor: tff.learning.templates.DistributionProcess | None = None,
  model_aggregator: tff.aggregators.WeightedAggregationFactory
  | tff.aggregators.UnweightedAggregationFactory
  | None = None,
  metrics_aggregator=None,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Builds FedAvg, or FedProx where `proximal_strength` is above 0.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    client_objective: By default `tff_ssl.objectives.Supervised(views)`.
    proximal_strength: mu of FedProx, >= 0.
    client_optimizer: By default SGD with learning rate 0.03, Nesterov momentum
      0.9 and coupled weight decay 1e-4, as in paper 1.
    server_optimizer: By default SGD with learning rate 1.
    batch_size: Examples in a client's minibatch.
    local_steps: Steps of a client in a round; 16 if neither this nor
      `local_epochs` is given.
    local_epochs: Instead of `local_steps`, passes over the client's examples.
    client_weighting: 'examples' (processed in the round, repetitions counted:
      with `local_epochs` in proportion to n_k, with `local_steps` the same for
      all) or 'uniform'.
    schedule: Function of the global step to a factor on the clients' rate; it
      needs `local_steps`.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: By default `tff.aggregators.MeanFactory()`. Unweighted
      factories (differential privacy) need `client_weighting='uniform'`.
    metrics_aggregator: As in TFF's builders.
    seed: Root of all randomness, in [0, 2**31).

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and client data do not fit each other.
  """
  data_spec.check_model(model)
  checks.integers_at_least(
    1,
    batch_size=batch_size,
    local_steps=local_steps,
    local_epochs=local_epochs,
  )
  checks.numbers_at_least(0, proximal_strength=proximal_strength)
  checks.choice(client_weighting=client_weighting)
  objective = client_objective or objectives.Supervised(views)
  if proximal_strength != 0:
    objective = objectives.Proximal(objective, proximal_strength)
  training = local_training.LocalTraining(
    model,
    objective,
    client_optimizer or optimizers.build_paper_sgd(),
    batch_size,
    **local_training.steps_or_epochs(local_steps, local_epochs),
    schedule=schedule,
  )

  def local_update(task):
    result = training.run(
      task.weights,
      task.examples,
      seed=task.client_seed,
      round_num=task.round,
      hparams=task.hparams,
    )
    weight = (
      result.num_examples
      if client_weighting == 'examples'
      else tf.constant(1.0)
    )
    update = client_work_lib.LocalUpdate(
      client_work_lib.subtract(result.weights, task.weights),
      weight,
      result.metrics,
      tf.constant(False),
    )
    return update, None

  initial_weights = composition.initial_weights_computation(model, seed)
  weights_type = initial_weights.type_signature.result
  client_work = client_work_lib.build_client_work(
    local_update,
    data_spec=data_spec,
    weights_type=weights_type,
    initial_hparams=training.initial_hparams,
    metrics_aggregator=metrics_aggregator,
  )
  result_type = client_work.next.type_signature.result.result.member
  return composition.compose(
    initial_weights,
    seed=seed,
    distributor=model_distributor,
    client_work=client_work,
    aggregator=_weighted_aggregator(
      model_aggregator or tff.aggregators.MeanFactory(no_nan_division=True),
      client_weighting,
      result_type,
    ),
    finalizer=finalizers.build_apply_mean_delta(
      server_optimizer or tff.learning.optimizers.build_sgdm(1.0),
      weights_type,
      model.weights_spec.trainable,
    ),
    parts=composition.Parts(
      training,
      local_update,
      lambda task: task.weights,
      data_spec,
      weights_type,
    ),
  )


def _weighted_aggregator(factory, client_weighting, result_type):
  if isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
    if client_weighting != 'uniform':
      raise ValueError(
        'model_aggregator ignores weights (it is unweighted), but '
        f"client_weighting is {client_weighting!r}: use 'uniform'."
      )
    factory = tff.aggregators.as_weighted_aggregator(factory)
  return factory.create(result_type.update, result_type.update_weight)
