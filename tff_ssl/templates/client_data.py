"""What a client holds: its examples, and optionally its context.

Every process of this library takes plain data and data in context:

```
plain       <x=..., y=...>*                                   a Sequence
in context  <examples=<x=..., y=...>*, context=<client=int32, group=int32>*>
in slots    the same with context=<client, group, slot, start_group>*
in sets     the same with context=<client, group, class_priors=float32[M,d],
            set_shares=float32[M]>*
with faults the same with the fields <corrupt, work> after group or start_group
```

`x` are images (`uint8` or `float32` in [0, 1]), feature vectors, numbers of
words, or a dict or tuple of these for a model of several inputs. `y` is the
label that the process may see, `int32`, -1 where there is none. A simulation
may know more, `true_y` (`int32`, -1 where unknown): metrics read it, and of
all that trains `TwoExperts(experts='truth')` alone.

Elements of the sequence are single examples or batches of any size. The process
cuts the minibatches of training itself, so do not shuffle or repeat the
sequence.

`context` is a sequence of exactly one element, the constants of this client in
this round: `client`, an index that its randomness derives from, and `group`,
which the sampler of clients has put it into. A slot is a position among the
C participants of a round. Processes that keep something for each slot need two
more fields: `slot`, in [0, C), and `start_group`, the group whose model the
client starts from.

In sets (Lu et al.), `y` is the index of the set that an example lies in, in
[0, M), and nobody has labels. Row m of `class_priors` are the shares of the d
classes in set m, and `set_shares[m]` is the set's share of the client's
examples. A client with fewer than M sets has rows of zeros at the end.

With faults, which only a simulation has, `corrupt` is 1 for a client whose
message or data go wrong (`tff_ssl.Corruption`) and 0 for others, and `work` is
the share of its local steps that a client gets done, in percent. Where several
things go wrong, `corrupt` says which: 1 for the first of them.
"""

import collections
import dataclasses
from typing import Any

import tensorflow as tf

from tff_ssl import checks, compat, protocols
from tff_ssl.models import functional, structures

_CONTEXT_NAMES = ('client', 'group')
_SLOT_NAMES = ('slot', 'start_group')
_FAULT_NAMES = ('corrupt', 'work')
_SET_NAMES = ('class_priors', 'set_shares')

_REQUIRED_KEYS = ('x', 'y')
_OPTIONAL_KEYS = ('true_y',)


def image_element_spec(
  input_shape: tuple[int, ...],
  *,
  dtype: tf.DType = tf.uint8,
  batched: bool = True,
  true_labels: bool = False,
) -> collections.OrderedDict[str, tf.TensorSpec]:
  """Returns the element spec of a client's sequence.

  Args:
    input_shape: Shape of one example, such as `(28, 28, 1)`.
    dtype: `tf.uint8`, or `tf.float32` with values in [0, 1].
    batched: Whether elements are batches (of any size) of examples.
    true_labels: Whether the simulation's `true_y` is present.

  Returns:
    An ordered dict of `tf.TensorSpec` with keys `x`, `y` and maybe `true_y`.
  """
  lead = [None] if batched else []
  spec = collections.OrderedDict(
    x=tf.TensorSpec(lead + list(input_shape), dtype),
    y=tf.TensorSpec(lead, tf.int32),
  )
  if true_labels:
    spec['true_y'] = tf.TensorSpec(lead, tf.int32)
  return spec


@dataclasses.dataclass(frozen=True)
class ClientDataSpec:
  """The type of the client data of one process.

  Attributes:
    element_spec: Spec of one element of the examples (`image_element_spec`): an
      ordered dict with the keys `x`, `y` and maybe `true_y`, or a pair of `x`
      and `y`. Labels are of any integer type, and may have a last dimension
      of 1.
    in_context: Whether a context sequence stands beside the examples.
    num_slots: C, the participants of a round, where the context names slot and
      start group, too.
    priors_shape: `(M, d)`, the largest number of sets of a client and the
      number of classes, where examples lie in sets.
    has_faults: Whether the context says what goes wrong at the client, in a
      simulation.
    num_clients: All clients that may ever take part, where a process asks for
      it; with a context, their indices are below it.
  """

  element_spec: (
    collections.OrderedDict[str, tf.TensorSpec]
    | tuple[tf.TensorSpec, tf.TensorSpec]
  )
  in_context: bool = False
  num_slots: int | None = None
  priors_shape: tuple[int, int] | None = None
  has_faults: bool = False
  num_clients: int | None = None

  def __post_init__(self):
    _check_element(self.element_spec)
    checks.integers_at_least(
      1,
      optional=True,
      num_slots=self.num_slots,
      num_clients=self.num_clients,
    )
    for name, why in (
      ('num_slots', 'slot and start group are fields of the context'),
      ('priors_shape', 'class priors and shares of sets are fields of it'),
      ('has_faults', 'what goes wrong at a client stands in its context'),
    ):
      if getattr(self, name) and not self.in_context:
        raise TypeError(
          f'{name}={getattr(self, name)} needs in_context=True: {why}.'
        )
    shape = self.priors_shape
    if shape is not None and not (
      isinstance(shape, tuple)
      and len(shape) == 2
      and all(isinstance(size, int) and size > 0 for size in shape)
    ):
      raise ValueError(
        f'priors_shape={shape!r} must be a pair of whole numbers above 0: the '
        'largest number of sets of a client, and the number of classes.'
      )

  @property
  def checked_num_clients(self) -> int:
    """`num_clients`; a `ValueError` where there is none."""
    if self.num_clients is None:
      raise ValueError(
        'num_clients must be an integer >= 1, but is None: give '
        'ClientDataSpec(..., num_clients=...), all that may ever take part.'
      )
    return self.num_clients

  @property
  def context_fields(self) -> collections.OrderedDict[str, tf.TensorSpec]:
    """The fields of the context, in order."""
    names = _CONTEXT_NAMES + (() if self.num_slots is None else _SLOT_NAMES)
    names += _FAULT_NAMES if self.has_faults else ()
    fields = [(name, tf.TensorSpec([], tf.int32)) for name in names]
    if self.priors_shape is not None:
      shapes = (self.priors_shape, self.priors_shape[:1])
      fields += [
        (name, tf.TensorSpec(shape, tf.float32))
        for name, shape in zip(_SET_NAMES, shapes, strict=True)
      ]
    return collections.OrderedDict(fields)

  @property
  def batched(self) -> bool:
    """Whether elements are batches: read off the shape of `y`."""
    return _is_batched(self.named)

  @property
  def named(self) -> collections.OrderedDict[str, tf.TensorSpec]:
    """The spec of an element by key, whatever its structure."""
    return _named(self.element_spec)

  @property
  def input_spec(self) -> protocols.Structure:
    """The `tf.TensorSpec` of a batch of `x`, or a structure of them."""
    return tf.nest.map_structure(
      lambda spec: tf.TensorSpec(
        [None, *_example_shape(spec, self)], spec.dtype
      ),
      self.named['x'],
    )

  @property
  def type(self) -> compat.Type:
    """The unplaced TFF type of one client's data."""
    examples = compat.SequenceType(
      structures.type_from_specs(self.element_spec)
    )
    if not self.in_context:
      return examples
    context = compat.SequenceType(
      structures.type_from_specs(self.context_fields)
    )
    return compat.to_type(
      collections.OrderedDict(examples=examples, context=context)
    )

  def check_model(self, model: functional.FunctionalModel) -> None:
    """Raises `TypeError` unless `model` takes these examples."""
    if not hasattr(model, 'weights_spec'):
      raise TypeError(
        f'model is a {type(model).__module__}.{type(model).__name__}, which '
        'is no tff_ssl.FunctionalModel: convert it with tff_ssl.from_keras or '
        'from_tff_functional_model.'
      )
    given, wanted = (
      structures.describe(spec) for spec in (self.input_spec, model.input_spec)
    )
    if given != wanted:
      raise TypeError(
        f'The examples have shape {given}, but the model takes {wanted}: build '
        f'the model with input_shape={given}.'
      )

  def check_slots(self, **arguments: str) -> None:
    """Raises `TypeError` if an argument is 'slot' and data name no slots."""
    for name, value in arguments.items():
      if value == 'slot' and self.num_slots is None:
        raise TypeError(
          f'{name}={value!r} needs client data with a context that names the '
          'slot: use ClientDataSpec(..., in_context=True, num_slots=(clients '
          'per round)).'
        )

  def check_sets(self) -> None:
    """Raises `TypeError` unless examples lie in sets with class priors."""
    if self.priors_shape is None:
      raise TypeError(
        'data_spec has priors_shape=None, but this process learns from sets '
        'with class priors: give priors_shape=(largest number of sets of a '
        'client, number of classes) and in_context=True.'
      )


def _named(structure: Any) -> collections.OrderedDict[str, Any]:
  """Returns the parts of an element, or of its spec, by key."""
  if hasattr(structure, 'keys'):
    return collections.OrderedDict(structure)
  return collections.OrderedDict(zip(_REQUIRED_KEYS, structure, strict=True))


def _check_element(element_spec: Any) -> None:
  """Raises `TypeError` unless this is the spec of examples with labels."""
  is_dict = hasattr(element_spec, 'keys')
  keys = tuple(element_spec) if is_dict else ()
  known = _REQUIRED_KEYS + _OPTIONAL_KEYS
  is_pair = isinstance(element_spec, (tuple, list)) and len(element_spec) == 2
  if not is_pair and (
    keys[:2] != _REQUIRED_KEYS or any(k not in known for k in keys)
  ):
    raise TypeError(
      'element_spec must be a pair of examples and labels, or an ordered dict '
      'with the keys x, y and optionally true_y, in this order, but is '
      f'{list(keys) if is_dict else element_spec}: map the datasets to this '
      'form first.'
    )
  named = _named(element_spec)
  for key, spec in named.items():
    for part in tf.nest.flatten(spec) if key == 'x' else [spec]:
      if not isinstance(part, tf.TensorSpec):
        raise TypeError(
          f'element_spec[{key!r}] is {spec}, and must be one tf.TensorSpec'
          + (', or a dict of them.' if key == 'x' else '.')
        )
      if part.shape.rank is None:
        raise TypeError(
          f'element_spec[{key!r}] has an unknown number of dimensions: say it, '
          'with tf.ensure_shape.'
        )
    if key == 'x':
      continue
    if not spec.dtype.is_integer:
      raise TypeError(
        f'element_spec[{key!r}] is {spec.dtype.name}: give labels as whole '
        'numbers (-1 marks an unlabelled example).'
      )
    rank = spec.shape.rank
    if rank > 2 or (rank == 2 and spec.shape[1] != 1):
      raise TypeError(
        f'element_spec[{key!r}] has the shape {spec.shape}: give one number '
        'for each example, and no one-hot vector (tf.argmax).'
      )
  _check_batches(named)


def _is_batched(named: collections.OrderedDict[str, tf.TensorSpec]) -> bool:
  """Returns whether examples come in batches; labels may be [n] or [n, 1]."""
  x, y = tf.nest.flatten(named['x'])[0].shape, named['y'].shape
  if y.rank != 1 or y[0] != 1:
    return y.rank > 0
  # One example with a label of shape [1], or a batch of one.
  return x.rank > 0 and x[0] == 1


def _check_batches(named) -> None:
  """Raises `TypeError` unless all parts have the same batch, or none."""
  batched = _is_batched(named)
  parts = [
    (key, part.shape)
    for key, spec in named.items()
    for part in tf.nest.flatten(spec)
  ]
  sizes = {shape[0] if batched and shape.rank else None for _, shape in parts}
  ranks = {shape.rank for key, shape in parts if key != 'x'}
  is_scalar = batched and not all(
    shape.rank for key, shape in parts if key == 'x'
  )
  if len(sizes) > 1 or len(ranks) > 1 or is_scalar:
    shapes = ', '.join(f'{key} {shape}' for key, shape in parts)
    raise TypeError(
      f'element_spec has the shapes {shapes}: batch all of them alike '
      '(dataset.batch), or none.'
    )


def collect(
  dataset: tf.data.Dataset, spec: ClientDataSpec
) -> collections.OrderedDict[str, tf.Tensor]:
  """Gathers a client's n >= 0 examples into one tensor `[n, ...]` per key.

  Labels are `int32 [n]`.
  """
  # Batches are joined as they are: to take them apart first is several times
  # slower for the one batch of a client store.
  gather = dataset.rebatch if spec.batched else dataset.batch
  # No function is mapped or reduced over the dataset: instantiating one costs
  # more, for each client, than all the rest of this.
  empty = tf.nest.map_structure(
    lambda element: tf.zeros(
      [0] + _example_shape(element, spec), element.dtype
    ),
    spec.element_spec,
  )
  gathered = (
    gather(tf.int64.max)
    .concatenate(tf.data.Dataset.from_tensors(empty))
    .take(1)
    .get_single_element()
  )
  collected = _named(gathered)
  for key, labels in collected.items():
    if key != 'x':
      flat = labels if labels.shape.rank == 1 else labels[:, 0]
      collected[key] = tf.cast(flat, tf.int32)
  return collected


def _example_shape(element: tf.TensorSpec, spec: ClientDataSpec) -> list[int]:
  shape = element.shape.as_list()
  return shape[1:] if spec.batched else shape


def read_context(
  client_data, spec: ClientDataSpec
) -> tuple[
  collections.OrderedDict[str, tf.Tensor],
  collections.OrderedDict[str, tf.Tensor],
]:
  """Splits one client's data into its examples and its context.

  The examples are as of `collect`, the context has the `context_fields` of the
  spec. Without a context, `client` is a fingerprint of the examples, so that
  equal data give equal randomness in any order of clients, and `group` is -1,
  "not assigned".
  """
  if spec.in_context:
    context = client_data['context'].take(1).get_single_element()
    return collect(client_data['examples'], spec), context
  examples = collect(client_data, spec)
  # Not `true_y`, which may not have a part in training.
  content = tf.strings.join(
    [
      tf.io.serialize_tensor(part)
      for key in _REQUIRED_KEYS
      for part in tf.nest.flatten(examples[key])
    ]
  )
  digest = tf.strings.to_hash_bucket_fast(content, 2**31 - 1)
  context = collections.OrderedDict(
    client=tf.cast(digest, tf.int32), group=tf.constant(-1)
  )
  return examples, context
