"""The compiled form of a round, in which a client's part is one graph.

TFF has two such forms. `DistributeAggregateForm` is for sums; it takes no
`tff.federated_aggregate`, with which an aggregator collects the clients'
values, as `tff_ssl.MedianFactory` does. `MapReduceForm` is for both, and makes
one aggregation of them all.
"""

import tensorflow_federated as tff

_forms = tff.backends.mapreduce

Form = _forms.DistributeAggregateForm | _forms.MapReduceForm

# As TFF writes it into a computation that has one.
_FEDERATED_AGGREGATE = b'federated_aggregate'


def form_of(round_computation: tff.Computation) -> Form:
  """Compiles a round, which takes seconds.

  Args:
    round_computation: `(<S@SERVER, {D}@CLIENTS> -> <S@SERVER, R@SERVER>)`.

  Returns:
    Its `DistributeAggregateForm`, or where it takes none, its `MapReduceForm`.
  """
  proto = tff.framework.serialize_computation(round_computation)
  if _FEDERATED_AGGREGATE in proto.SerializeToString():
    return _forms.get_map_reduce_form_for_computation(round_computation)
  return _forms.get_distribute_aggregate_form_for_computation(round_computation)


def computation_of(form: Form) -> tff.Computation:
  """Returns the round of a form; its results have no Python containers."""
  if isinstance(form, _forms.MapReduceForm):
    computation = _forms.get_computation_for_map_reduce_form(form)
    if form.securely_aggregates_tensors:
      return computation
    # The form always has secure sums, here of nothing.
    plain = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    return tff.framework.ConcreteComputation.with_type(
      plain, computation.type_signature
    )
  return _forms.get_computation_for_distribute_aggregate_form(form)


def messages(form: Form) -> tuple[tff.Type, tff.Type]:
  """Returns the types of what a client is sent, and of what it sends back."""
  if isinstance(form, _forms.MapReduceForm):
    return form.prepare.type_signature.result, form.work.type_signature.result
  return (
    form.server_to_client_broadcast.type_signature.result,
    form.client_work.type_signature.result,
  )
