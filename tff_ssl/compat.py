"""What a new version of TensorFlow Federated or TensorFlow has elsewhere.

The package names these things through this module alone, so that a move to
another version is a matter of one file. Most of them become names of the
package `federated_language` with the release after TFF 0.87; what does not is
listed apart. The imports below are those that simulations need beyond the
public interfaces.
"""

# ruff: noqa: F401 (the imports are for other modules)

import tensorflow_federated as tff
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.python.eager.cancellation import CancellationManager
from tensorflow.python.eager.context import context as eager_context
from tensorflow.python.eager.execute import execute_with_cancellation
from tensorflow.python.framework.graph_to_function_def import (
  graph_to_function_def,
)
from tensorflow_federated.python.core.impl.execution_contexts.mergeable_comp_execution_context import (  # noqa: E501
  MergeableCompExecutionContextValue,
)
from tensorflow_federated.python.core.impl.executors.cardinalities_utils import (  # noqa: E501
  infer_cardinalities,
)
from tensorflow_federated.python.core.impl.types.type_conversions import (
  type_to_tf_structure,
)
from tensorflow_federated.python.core.impl.utils.tensorflow_utils import (
  make_data_set_from_elements,
)
from tensorflow_federated.python.tensorflow_libs.serialization_utils import (
  unpack_graph_def,
)

# Types, placements and values: `federated_language`.
CLIENTS = tff.CLIENTS
SERVER = tff.SERVER
Computation = tff.Computation
FederatedType = tff.FederatedType
FunctionType = tff.FunctionType
SequenceType = tff.SequenceType
StructType = tff.StructType
TensorType = tff.TensorType
Type = tff.Type
Value = tff.Value
to_type = tff.types.to_type

# Computations and what they call: `federated_language`.
federated_aggregate = tff.federated_aggregate
federated_broadcast = tff.federated_broadcast
federated_computation = tff.federated_computation
federated_eval = tff.federated_eval
federated_map = tff.federated_map
federated_secure_sum_bitwidth = tff.federated_secure_sum_bitwidth
federated_sum = tff.federated_sum
federated_value = tff.federated_value
federated_zip = tff.federated_zip

# Contexts and compiled computations: `federated_language.framework`.
AsyncContext = tff.framework.AsyncContext
Block = tff.framework.Block
Call = tff.framework.Call
CompiledComputation = tff.framework.CompiledComputation
ConcreteComputation = tff.framework.ConcreteComputation
ExecutorFactory = tff.framework.ExecutorFactory
Intrinsic = tff.framework.Intrinsic
Lambda = tff.framework.Lambda
Literal = tff.framework.Literal
Reference = tff.framework.Reference
RetryableError = tff.framework.RetryableError
Selection = tff.framework.Selection
Struct = tff.framework.Struct
SyncContext = tff.framework.SyncContext
SyncExecutionContext = tff.framework.SyncExecutionContext
get_context_stack = tff.framework.get_context_stack
set_default_context = tff.framework.set_default_context
type_to_py_container = tff.types.type_to_py_container

# Programs: `federated_language.program`.
FederatedDataSource = tff.program.FederatedDataSource
FederatedDataSourceIterator = tff.program.FederatedDataSourceIterator
MemoryReleaseManager = tff.program.MemoryReleaseManager
NativeFederatedContext = tff.program.NativeFederatedContext

# In `tff.tensorflow`, in inner modules, or no longer anywhere.
EncodedSumFactory = tff.aggregators.EncodedSumFactory
assert_not_contains_unsecure_aggregation = (
  tff.test.assert_not_contains_unsecure_aggregation
)
contains = tff.types.contains
compression_aggregator = tff.learning.compression_aggregator
deserialize_computation = tff.framework.deserialize_computation
from_container = tff.structure.from_container
iter_elements = tff.structure.iter_elements
name_list = tff.structure.name_list
serialize_computation = tff.framework.serialize_computation
type_to_tf_tensor_specs = tff.types.type_to_tf_tensor_specs
